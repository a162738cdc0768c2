"""The file behind an open SQLite connection: whether its path still leads to it, and the file that takes its place.

SQLite continues with an open file after its path, or that of its log (`-wal`), was deleted or moved, and all that it
writes then is lost with the last process that has it open. Such a file is therefore written again from the open one,
while the lock on the open one keeps every other process out. A truncated file has lost its content: it is set aside,
and an empty one takes its place, in which the workers restore what they know. The new file names the one it follows, so
that the other processes accept it; any other file at the path is refused.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

FOLLOWED = "follows files"
"""The name of the note that lists the files that a file has followed."""

FileState = Literal["same", "deleted", "truncated", "replaced", "without its log"]

_HEADER_BYTES = 100


class Superseded(Exception):
    """Another file holds the state now: the connection must be opened again; `why` is empty where nothing was lost."""

    def __init__(self, why: str = "") -> None:
        self.why = why
        super().__init__(why)


class Replaced(Exception):
    """The path leads to a file that does not follow the open one."""


class OpenFile:
    """The file of an open connection.

    Parameters
    ----------
    path : Path
        The path that was opened.
    create : callable
        Writes the tables of an empty store to a connection.
    """

    def __init__(self, path: Path, create: Callable[[sqlite3.Connection], None]) -> None:
        found = path.stat()
        self._path, self._create = path, create
        self._device, self._inode, self._size = found.st_dev, found.st_ino, found.st_size
        self._log, self._log_inode = f"{path}-wal", _inode_of(f"{path}-wal")

    def check(self, connection: sqlite3.Connection) -> None:
        """Return if the path leads to the open file; otherwise put another in its place.

        Parameters
        ----------
        connection : sqlite3.Connection
            The connection to the open file; only inside its transaction is a file that was deleted, or whose log was,
            written again.

        Raises
        ------
        Superseded
            If another file holds the state now.
        Replaced
            If the path leads to a file that has nothing to do with this one.
        """
        state = self._state()
        if state in {"deleted", "without its log"} and connection.in_transaction:
            self._write_again(connection)
            what = "was deleted" if state == "deleted" else "has lost its log (-wal)"
            raise Superseded(f"{what} while in use, and is written again from the open file")
        if state == "truncated":
            raise Superseded(self._set_aside())
        if state == "replaced":
            if self._name not in _followed_by(self._path):
                raise Replaced
            raise Superseded

    @property
    def _name(self) -> str:
        return f"{self._device}:{self._inode}"

    def _state(self) -> FileState:
        try:
            found = os.stat(self._path)  # noqa: PTH116  # half the time of Path.stat, at every exchange
        except FileNotFoundError:
            return "deleted"
        if found.st_ino != self._inode or found.st_dev != self._device:
            return "replaced"
        if found.st_size < self._size:
            return "truncated"
        self._size = found.st_size
        return "same" if _inode_of(self._log) == self._log_inode else "without its log"

    def _write_again(self, connection: sqlite3.Connection) -> None:
        """Write the content of the open file to its path."""
        self._put_in_place(connection.serialize())  # a backup is not possible inside a transaction

    def _set_aside(self) -> str:
        """Rename a truncated file and put an empty one in its place; return what happened, for the error."""
        with _folder_locked(self._path.parent):
            if self._state() != "truncated" or _is_whole(self._path):  # another process has done it; or a VACUUM
                return ""
            aside = self._path.with_name(f"{self._path.name}.damaged-{time.time_ns()}")
            for suffix in ("-wal", "-shm", ""):
                part = self._path.with_name(self._path.name + suffix)
                if part.exists():
                    part.rename(aside.with_name(aside.name + suffix))
            self._put_in_place(b"")
        return f"was truncated while in use: it is now {aside.name}, and what the running workers know is restored"

    def _put_in_place(self, content: bytes) -> None:
        """Write a file that follows this one, and put it at the path: in place of none, or of one without its log."""
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as target:
                self._create(target)
                followed = ",".join([*_notes_in(target), self._name])
                target.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (FOLLOWED, followed))
            for suffix in ("-wal", "-shm"):  # SQLite would apply them to the new file
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            if self._state() == "without its log":
                draft.replace(self._path)
            else:
                os.link(draft, self._path)
        except FileExistsError:
            raise Replaced from None
        finally:
            draft.unlink(missing_ok=True)


def _inode_of(path: str) -> int | None:
    try:
        return os.stat(path).st_ino  # noqa: PTH116  # half the time of Path.stat, at every exchange
    except FileNotFoundError:
        return None


def _followed_by(path: Path) -> list[str]:
    """Return the names of the files that the file at a path follows."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return _notes_in(connection)
    except sqlite3.Error:
        return []


def _notes_in(connection: sqlite3.Connection) -> list[str]:
    row = connection.execute("SELECT note FROM notes WHERE name = ?", (FOLLOWED,)).fetchone()
    return [] if row is None else str(row[0]).split(",")


def _is_whole(path: Path) -> bool:
    """Return True if a file is as long as its header says, as after a VACUUM."""
    descriptor = os.open(path, os.O_RDONLY)  # not closed: that would end all locks of this process on the file
    header, size = os.read(descriptor, _HEADER_BYTES), os.fstat(descriptor).st_size
    if len(header) < _HEADER_BYTES:
        return False
    page_bytes, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    return size >= pages * (65_536 if page_bytes == 1 else page_bytes)


@contextmanager
def _folder_locked(folder: Path) -> Iterator[None]:
    """Keep other processes from setting a file of the folder aside at the same time."""
    if sys.platform == "win32":  # an open file cannot be renamed there: the caller gets the error
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
