"""The bounded reader of an artifact's zip: a file of any origin is read within stated limits, or refused."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path

from wiserouter.errors import DamagedArtifact, MissingArtifact, NotAnArtifact

MAX_UNPACKED_BYTES = 2**30
"""Most that all members of an artifact may unpack to, 1 GiB."""

MAX_MEMBERS = 256
"""Most members of an artifact; a router has about thirty."""

_MAX_DIRECTORY_BYTES = 2**20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_END = struct.Struct("<4s4H2LH")  # end of central directory record, in PKWARE's APPNOTE 4.3.16
_ZIP64_LOCATOR = 20
_ERRORS = (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError)


def read_members(path: Path) -> dict[str, bytes]:
    """Return the members of a zip by name.

    Raises
    ------
    MissingArtifact
        If there is no such file.
    NotAnArtifact
        If it is no zip, or cannot be opened.
    DamagedArtifact
        If it is truncated, damaged or encrypted, holds a name twice, or exceeds `MAX_MEMBERS` or `MAX_UNPACKED_BYTES`.
    """
    if _signature(path) != b"PK\x03\x04":
        raise NotAnArtifact(path, "not a WISERouter artifact: make one with WiseRouter.save() or `wiserouter fit`")
    _check_directory(path)
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(path, archive.infolist())
            return {member.filename: _read(archive, member) for member in archive.infolist()}
    except _ERRORS as error:
        raise DamagedArtifact(path, f"truncated or damaged ({error}): fit or copy it again") from error


def _signature(path: Path) -> bytes:
    """Return the first bytes of a file."""
    try:
        with path.open("rb") as file:
            return file.read(4)
    except FileNotFoundError as error:
        raise MissingArtifact(path) from error
    except OSError as error:
        raise NotAnArtifact(path, f"cannot be read ({error.strerror}): name a file that can be") from error


def _check_directory(path: Path) -> None:
    """Refuse a directory of members that is too long, before it is read; an artifact needs no zip64 and no comment."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - _END.size - _ZIP64_LOCATOR, 0))
        end = file.read()
    signature, *_, n_members, n_bytes, _, _ = _END.unpack(end[-_END.size :].rjust(_END.size, b"\0"))
    if signature != b"PK\x05\x06" or end.startswith(b"PK\x06\x07"):
        raise DamagedArtifact(path, "truncated or damaged (it does not end as a zip does): fit or copy it again")
    if n_members > MAX_MEMBERS or n_bytes > _MAX_DIRECTORY_BYTES:
        raise DamagedArtifact(path, f"it must have at most {MAX_MEMBERS} members, got {n_members}: fit it again")


def _check_members(path: Path, members: list[zipfile.ZipInfo]) -> None:
    names = [member.filename for member in members]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DamagedArtifact(path, f"a member must come once, got {twice!r} twice: fit it again")
    for member in members:
        if member.flag_bits & 1 or member.compress_type not in _METHODS:
            raise DamagedArtifact(path, f"{member.filename!r} must be plain or deflated, not encrypted: fit it again")
    size = sum(member.file_size for member in members)
    if size > MAX_UNPACKED_BYTES:
        raise DamagedArtifact(
            path, f"it must unpack to at most {MAX_UNPACKED_BYTES:,} bytes, got {size:,}: fit it with fewer dimensions"
        )


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return a member; asked for its stated size, so that no more is unpacked where that is wrong."""
    with archive.open(member) as file:
        data = file.read(member.file_size + 1)
    if len(data) != member.file_size:
        raise EOFError(f"{member.filename!r} has {len(data)} bytes instead of {member.file_size}")
    return data
