"""The artifact: everything that was fitted, in one file.

A zip of `manifest.json` and one `.npy` member per array. The manifest holds the format's version and the SHA-256 of the
content, so that a damaged file, or one of a newer format, is refused by name. Nothing in it is code: arrays are read
with pickling off. Equal content gives equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wiserouter.artifacts.json_values import check_json
from wiserouter.artifacts.unzip import MAX_UNPACKED_BYTES, read_members
from wiserouter.errors import DamagedArtifact, InvalidInput, NewerArtifact, NotAnArtifact
from wiserouter.validation import check_folder, check_replaceable

FORMAT = "wiserouter-artifact"
VERSION = 1

MAX_MANIFEST_BYTES = 2**24
"""Most bytes of the manifest, 16 MiB."""

Arrays = Mapping[str, NDArray[Any]]

_MANIFEST = "manifest.json"
_ZIP = b"PK"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first date that a zip can hold


def write_artifact(
    path: str | Path,
    manifest: Mapping[str, Any],
    arrays: Arrays,
    check: Callable[[Path], object] | None = None,
) -> str:
    """Write one artifact, replacing `path` at once or not at all, and return the content's hash.

    Parameters
    ----------
    path : str or Path
        The file to write; its folder must exist.
    manifest : mapping
        JSON values.
    arrays : mapping of str to ndarray
        Numbers only.
    check : callable, optional
        Called with the finished file before that replaces `path`; it raises what keeps `path` as it is.

    Raises
    ------
    InvalidInput
        If `path` is there and no regular file, or the artifact were too large to be read again (`MAX_UNPACKED_BYTES`,
        `MAX_MANIFEST_BYTES`).
    """
    target = Path(path)
    check_target(target)
    members = _members_of(arrays)
    digest = _digest(manifest, members)
    head = {"format": FORMAT, "version": VERSION, "sha256": digest, "content": dict(manifest)}
    _check_size("an artifact", sum(map(len, members.values())) + MAX_MANIFEST_BYTES, MAX_UNPACKED_BYTES)
    _check_size("the manifest of an artifact", len(_json(head)), MAX_MANIFEST_BYTES)
    draft = target.with_name(f".{target.name}.{os.urandom(8).hex()}.draft")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as file:
            for name, data in {_MANIFEST: _json(head), **members}.items():
                file.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
        if check is not None:
            check(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return digest


def check_target(path: Path) -> None:
    """Raise an error if an artifact cannot be written to a path: its folder is missing, or another file is there.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    InvalidInput
        If there is a folder, a device or a file that is no artifact.
    """
    check_folder(path)
    check_replaceable(path)
    if path.is_file():
        with path.open("rb") as file:
            begins = file.read(len(_ZIP))
        if begins not in (_ZIP, b""):
            raise InvalidInput(f"{path} is there and no artifact: name another file, or delete it", value=path)


def read_artifact(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the manifest and the arrays of one artifact.

    Raises
    ------
    MissingArtifact
        If there is no such file.
    NotAnArtifact, DamagedArtifact, NewerArtifact
        If it cannot be used; the error says why.
    """
    members = read_members(Path(path))
    head = _head(Path(path), members.pop(_MANIFEST, b""))
    if head["sha256"] != _digest(head["content"], members):
        raise DamagedArtifact(path, "its content does not match its hash: fit or copy it again")
    arrays = {name.removesuffix(".npy"): _array(Path(path), name, data) for name, data in members.items()}
    return head["content"], arrays


def _check_size(what: str, n_bytes: int, most: int) -> None:
    if n_bytes > most:
        raise InvalidInput(f"{what} must have at most {most:,} bytes, got {n_bytes:,}: fit fewer dimensions")


def _head(path: Path, data: bytes) -> dict[str, Any]:
    head = _parsed(path, data)
    if not isinstance(head, dict) or head.get("format") != FORMAT or not _is_version(head.get("version")):
        raise NotAnArtifact(path, "a zip, but not a WISERouter artifact: make one with WiseRouter.save()")
    if head["version"] > VERSION:
        raise NewerArtifact(path, f"format {head['version']}, and this WISERouter reads up to {VERSION}: upgrade it")
    if not isinstance(head.get("sha256"), str) or not isinstance(head.get("content"), dict):
        raise DamagedArtifact(path, "its manifest lacks its hash or content: fit or copy it again")
    try:
        check_json(head["content"])
    except ValueError as error:
        raise DamagedArtifact(path, f"{error}: fit it again") from error
    return head


def _parsed(path: Path, data: bytes) -> object:
    if len(data) > MAX_MANIFEST_BYTES:
        raise DamagedArtifact(
            path, f"its manifest must have at most {MAX_MANIFEST_BYTES:,} bytes, got {len(data):,}: fit it again"
        )
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _array(path: Path, name: str, data: bytes) -> NDArray[Any]:
    """Return the array of a member whose header agrees with its size."""
    try:
        if not name.endswith(".npy"):
            raise ValueError("a member must be the manifest or an array")
        _check_header(data)
        return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except (ArithmeticError, LookupError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        raise DamagedArtifact(path, f"{name!r} is not an array of numbers ({error}): fit it again") from error


def _check_header(data: bytes) -> None:
    """Raise `ValueError` unless the shape and type of an array need exactly the bytes that follow its header."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"its .npy version must be 1.0, got {version}")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject or dtype.fields is not None:
        raise ValueError(f"its type is {dtype}")
    needed, got = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
    if min(shape, default=0) < 0 or needed != got:
        raise ValueError(f"shape {shape} needs {needed} bytes, it has {got}")


def content_hash(manifest: Mapping[str, Any], arrays: Arrays) -> str:
    """Return the SHA-256 of JSON values and arrays, as an artifact of them has it.

    Examples
    --------
    >>> content_hash({"models": []}, {"freq": np.ones(1)})[:8]
    'b60a78b4'
    """
    return _digest(manifest, _members_of(arrays))


def _members_of(arrays: Arrays) -> dict[str, bytes]:
    return {f"{name}.npy": _npy(array) for name, array in sorted(arrays.items())}


def _digest(manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(_json(manifest))
    for name in sorted(members):
        digest.update(f"\0{name}\0{len(members[name])}\0".encode())
        digest.update(members[name])
    return digest.hexdigest()


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()
