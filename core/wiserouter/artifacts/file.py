"""The artifact: everything that was fitted, in one file.

A zip of `manifest.json` and one `.npy` member per array. The manifest holds the format's version and the SHA-256 of the
content, so that a damaged file, or one of a newer format, is refused by name. Nothing in it is code: arrays are read
with pickling off. Equal content gives equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import DamagedArtifact, NewerArtifact, NotAnArtifact

FORMAT = "wiserouter-artifact"
VERSION = 1

Arrays = Mapping[str, NDArray[Any]]

_MANIFEST = "manifest.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first date that a zip can hold


def write_artifact(path: str | Path, manifest: Mapping[str, Any], arrays: Arrays) -> str:
    """Write one artifact, replacing `path` at once or not at all, and return the content's hash.

    Parameters
    ----------
    path : str or Path
        The file to write; its folder must exist.
    manifest : mapping
        JSON values.
    arrays : mapping of str to ndarray
        Numbers only.
    """
    members = _members_of(arrays)
    digest = _digest(manifest, members)
    head = {"format": FORMAT, "version": VERSION, "sha256": digest, "content": dict(manifest)}
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as file:
            for name, data in {_MANIFEST: _json(head), **members}.items():
                file.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return digest


def read_artifact(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the manifest and the arrays of one artifact.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    NotAnArtifact, DamagedArtifact, NewerArtifact
        If it cannot be used; the error says why.
    """
    members = _members(Path(path))
    head = _head(Path(path), members.pop(_MANIFEST, b""))
    if head["sha256"] != _digest(head["content"], members):
        raise DamagedArtifact(path, "its content does not match its hash: fit or copy it again")
    arrays = {
        name.removesuffix(".npy"): np.load(io.BytesIO(data), allow_pickle=False) for name, data in members.items()
    }
    return head["content"], arrays


def _members(path: Path) -> dict[str, bytes]:
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise NotAnArtifact(path, "not a WISERouter artifact: make one with WiseRouter.save() or `wiserouter fit`")
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise DamagedArtifact(path, f"truncated or damaged ({error}): fit or copy it again") from error
    except Exception as error:
        if type(error).__module__ != "zlib":
            raise
        raise DamagedArtifact(path, f"damaged ({error}): fit or copy it again") from error


def _head(path: Path, data: bytes) -> dict[str, Any]:
    try:
        head = json.loads(data)
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT or not isinstance(head.get("version"), int):
        raise NotAnArtifact(path, "a zip, but not a WISERouter artifact: make one with WiseRouter.save()")
    if head["version"] > VERSION:
        raise NewerArtifact(path, f"format {head['version']}, and this WISERouter reads up to {VERSION}: upgrade it")
    if not isinstance(head.get("sha256"), str) or not isinstance(head.get("content"), dict):
        raise DamagedArtifact(path, "its manifest lacks its hash or content: fit or copy it again")
    return head


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
