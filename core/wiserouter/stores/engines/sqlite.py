"""The engine on one SQLite file: for several processes on one machine, durable across crashes.

Every exchange is one transaction. The file is in WAL mode: readers and writers do not block each other, two writers do.
A process that is killed loses nothing that was committed; uncommitted work is rolled back. A file that is deleted or
truncated while in use is noticed at the next exchange (`sqlite_file.py`). With `synchronous="normal"`
a power cut may lose the last commits but never damages the file; "full" waits for the disk at each commit.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Literal, TypeVar
from weakref import finalize

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from wiserouter.errors import InvalidInput, StoreDamaged, StoreError, StoreUnavailable
from wiserouter.parallel.forks import held_at_fork
from wiserouter.stores.engines.base import NOTHING, ReadRequest, Reply
from wiserouter.stores.engines.events import Event
from wiserouter.stores.engines.sqlite_file import OpenFile, Replaced, Superseded
from wiserouter.stores.engines.sqlite_schema import MIGRATIONS, SCHEMA, SCHEMA_VERSION
from wiserouter.stores.engines.sqlite_texts import TextCursor
from wiserouter.stores.engines.sqlite_transaction import Transaction
from wiserouter.stores.ids import WorkerIdentity

T = TypeVar("T")

_APPLICATION = 0x57495345  # "WISE", in the header of the file


class SQLiteEngine:
    """An engine that keeps the state of a shared store in one file.

    Parameters
    ----------
    path : str or Path
        The file; created if missing, with access for its owner only. An existing file keeps its mode.
    clock : callable returning float, default time.time
        Seconds since 1970; a fake in tests.
    reservation_ttl_s : float, default 900
        Time after which an unsettled call is presumed to have been billed.
    decision_ttl_s : float, default 7 days
        Time for which a settled decision is kept.
    max_conversations : int, default 100,000
        Beyond this many, the conversations kept longest ago are forgotten, as are the caps of runs.
    synchronous : {"normal", "full"}, default "normal"
        Whether a commit waits for the disk.
    timeout_s : float, default 10
        Time limit for other writers to finish.
    create : bool, default True
        Whether to create a missing file.

    Raises
    ------
    InvalidInput
        If `synchronous` is neither of the two.
    StoreUnavailable
        If the file cannot be opened or created.
    StoreDamaged
        If it is not a store, is damaged, or comes from a newer version; it is left unchanged.
    """

    near = True

    def __init__(
        self,
        path: str | Path,
        clock: Callable[[], float] = time.time,
        *,
        reservation_ttl_s: float = 900.0,
        decision_ttl_s: float = 7 * 86_400.0,
        max_conversations: int = 100_000,
        synchronous: Literal["normal", "full"] = "normal",
        timeout_s: float = 10.0,
        create: bool = True,
    ) -> None:
        if synchronous not in ("normal", "full"):
            raise InvalidInput(f"synchronous must be 'normal' or 'full', got {synchronous!r}", value=synchronous)
        self.path, self._create = Path(path), create
        self._clock = clock
        self._bounds = reservation_ttl_s, decision_ttl_s, max_conversations
        self._synchronous, self._timeout_s = synchronous, timeout_s
        self._waits_s = timeout_s
        self._lock = held_at_fork(RLock(), self)  # SQLite forbids a child even to close the connection of its parent
        self._connection: sqlite3.Connection | None = None
        self._file: OpenFile | None = None
        self._owner = WorkerIdentity()
        with self._lock:
            self._connected()

    def __repr__(self) -> str:
        """Return the class and the file."""
        return f"SQLiteEngine({str(self.path)!r})"

    def exchange(self, events: Sequence[Event], reading: ReadRequest = NOTHING, within_s: float | None = None) -> Reply:
        """Apply the events in order, all in one transaction, and read; wait at most `within_s` for other writers."""
        with self._lock, self._named_errors():
            self._waits_s = self._timeout_s if within_s is None else min(within_s, self._timeout_s)
            try:
                return self._applied(events, reading)
            except Superseded as ended:
                self.close()
                if ended.why:
                    raise StoreUnavailable(f"{self._url} {ended.why}", store=self._url) from ended
                return self._applied(events, reading)

    def _applied(self, events: Sequence[Event], reading: ReadRequest) -> Reply:
        with self._transaction() as cursor:
            now_s = float(self._clock())  # of a program, which may use numpy
            transaction = Transaction(cursor, now_s, *self._bounds)
            transaction.tidy()
            results = transaction.apply_each(events)
            scopes = transaction.scopes() if reading.scopes is None else reading.scopes
            accounts = {scope: transaction.account(scope) for scope in scopes}
            notes = {name: transaction.note(name) for name in reading.notes}
            caps = {key: transaction.cap(key) for key in reading.caps}
            return Reply(
                now_s,
                results,
                {scope: account for scope, account in accounts.items() if account is not None},
                {name: transaction.sums(name) for name in reading.sums},
                {name: note for name, note in notes.items() if note is not None},
                {key: cap for key, cap in caps.items() if cap is not None},
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._close_connection()
                self._connection = None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._connected().cursor(TextCursor)
        try:
            self._when_free(self._begin, cursor)
            yield cursor
            self._when_free(cursor.execute, "COMMIT")
        except BaseException:
            if cursor.connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise
        finally:
            cursor.close()

    def _when_free(self, step: Callable[[T], object], argument: T) -> None:
        """Take a step, and take it again while another process writes, until the time for that is over."""
        try:
            step(argument)
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
            _while_busy(self._waits_s)(step, argument)

    def _begin(self, cursor: sqlite3.Cursor) -> None:
        """Begin a transaction on the file that the path leads to: while it runs, no other process replaces the file."""
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.DatabaseError:
            self._check_file(cursor.connection)
            raise
        self._check_file(cursor.connection)

    def _check_file(self, connection: sqlite3.Connection) -> None:
        """Raise if the path leads to another file, or to none."""
        try:
            if self._file is not None:
                self._file.check(connection)
        except Replaced as error:
            raise self._damaged(
                "another file has taken its place while it was in use", "stop all workers and"
            ) from error

    def _connected(self) -> sqlite3.Connection:
        """Return the connection of this process: one opened before a fork must not be used after it."""
        if self._connection is None or not self._owner.is_current:
            with self._named_errors():
                self._connection = self._connect()
            self._close_connection = finalize(self, self._connection.close)  # Python 3.13 warns where it is left open
            self._close_connection.atexit = False  # a router may still write what it has kept back
            self._file = OpenFile(self.path, self._migrate)
            self._owner.renew_after_fork()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._check_header()
        self._create_private()
        connection = sqlite3.connect(
            self.path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            self._write_ahead(connection)
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._migrate(connection)
            connection.execute("PRAGMA busy_timeout = 0")  # SQLite's own wait may leave one of many processes out
        except BaseException:
            connection.close()
            raise
        return connection

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Set the WAL mode; SQLite does not wait where another process is doing so, whatever the `busy_timeout`."""
        _while_busy(self._timeout_s)(connection.execute, "PRAGMA journal_mode = WAL")

    def _check_header(self) -> None:
        """Refuse a missing file, or one that is not a store, before anything is written to it."""
        if not self._create and not (self.path.exists() and self.path.stat().st_size):
            why = "there is no such file; give the file of a router's store"
            raise StoreUnavailable(f"{self._url} cannot be used: {why}", store=self._url)
        if self.path.is_file() and self.path.stat().st_size:
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                connection.execute("BEGIN")  # both as of one moment: another process may create the tables meanwhile
                (application,) = connection.execute("PRAGMA application_id").fetchone()
                made = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
            if application != _APPLICATION and (application or made):  # a file that is being created has no tables yet
                raise self._damaged("it is the database of another program")

    def _create_private(self) -> None:
        """Create a missing file with access for its owner only; SQLite gives its WAL and its index the same mode."""
        if self._create:
            if not self.path.exists() and self.path.with_name(f"{self.path.name}-wal").exists():
                why = "it was deleted, not its log (-wal): running workers write it again, without any delete the log"
                raise StoreUnavailable(f"{self._url} cannot be used: {why}", store=self._url)
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Create the tables, or migrate those of an older version."""
        cursor = connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        (version,) = cursor.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise self._damaged(
                f"it has version {version}, this WISERouter reads up to {SCHEMA_VERSION}: upgrade wiserouter"
            )
        if version < SCHEMA_VERSION:
            scripts = [SCHEMA] if version == 0 else [MIGRATIONS[older] for older in range(version, SCHEMA_VERSION)]
            for statement in ";".join(scripts).split(";"):
                cursor.execute(statement)
            cursor.execute(f"PRAGMA application_id = {_APPLICATION}")
            cursor.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        cursor.execute("COMMIT")

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Convert errors of SQLite into errors that name the store."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise self._damaged(str(error)) from error
            raise self._unavailable(error) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error
        except OSError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> StoreError:
        remedy = "check that its folder exists, is writable and is not full"
        if _is_busy(error):
            remedy = f"another process writes for longer than {self._waits_s:g} s: end its transaction"
        elif isinstance(error, sqlite3.Error) and error.sqlite_errorcode == sqlite3.SQLITE_IOERR_SHORT_READ:
            log, index = f"{self.path.name}-wal", f"{self.path.name}-shm"
            remedy = f"its log was cut: stop all workers, delete {log} and {index}, and start them without what it held"
        lasts = isinstance(error, _WRONG_PATH) or getattr(error, "sqlite_errorcode", None) in _FORBIDDEN
        return StoreUnavailable(f"{self._url} cannot be used: {error}; {remedy}", store=self._url, lasts=lasts)

    def _damaged(self, why: str, first: str = "") -> StoreError:
        remedy = f"{first} restore a copy, or name another file".strip()
        return StoreDamaged(f"{self._url} cannot be read: {why}; it was left unchanged: {remedy}", store=self._url)

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.path}"


_WRONG_PATH = FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError
_FORBIDDEN = sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN


def _while_busy(within_s: float) -> Retrying:
    """Return a caller that takes a step again and again while another process writes.

    SQLite's own wait asks ever less often, down to ten times a second. Where many processes write without a pause, one
    that has waited for long would then find the file free more seldom than those that have just begun.
    """
    wait, stop = wait_random(0, 0.02), stop_after_delay(within_s)
    return Retrying(retry=retry_if_exception(_is_busy), wait=wait, stop=stop, reraise=True)


def _is_busy(error: BaseException) -> bool:
    """Return True if another process writes to the file, or recovers it after a crash."""
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
