"""The journal: one JSON line per event of a router, for `wiserouter explain` and for off-policy evaluation.

Lines hold the figures and probabilities of a decision and its outcome; never a prompt, a word of one, or a key. A
background thread turns events into lines and writes them, so that no request waits for the file.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, RLock, Thread, current_thread
from typing import TYPE_CHECKING, Any

from wiserouter.parallel.forks import call_before_multiprocessing_ends, held_at_fork, import_between_forks
from wiserouter.routing.observer import Line
from wiserouter.validation import check_count, check_folder

if TYPE_CHECKING:
    from wiserouter.planning.trace import DecisionTrace
    from wiserouter.types import Decision

logger = logging.getLogger("wiserouter")

MAX_BYTES = 64 * 2**20
"""Size from which a file is rotated."""

KEPT_FILES = 3
"""Rotated files that are kept: `journal.jsonl.1` is the latest."""

MAX_WAITING = 10_000
"""Events that may wait for the writer; further ones are dropped, and counted."""

_LINES_PER_WRITE = 256


class Journal:
    """Appends events to a file, in a thread of its own.

    Parameters
    ----------
    path : str or Path
        The file; its folder must exist. Several processes may append to it.
    max_bytes : int, default 64 MiB
        Size from which the file is rotated and a new one begun.
    max_waiting : int, default 10,000
        Events that may wait to be written.

    Attributes
    ----------
    path : Path
        The file.
    dropped : int
        Events that were lost because too many waited, or the file could not be written; the first is logged.

    Raises
    ------
    OSError
        If the file cannot be opened.
    """

    def __init__(self, path: str | Path, *, max_bytes: int = MAX_BYTES, max_waiting: int = MAX_WAITING) -> None:
        self.path = Path(path)
        check_folder(self.path)
        self._max_waiting = check_count("max_waiting", max_waiting, least=1)
        self._max_bytes = check_count("max_bytes", max_bytes, least=1)
        self._overflow, self._beginning = 0, held_at_fork(RLock(), innermost=True)
        self._begin()

    def _begin(self) -> None:
        """Open the file, and start the thread that writes to it; once per process."""
        self._writer = _Writer(self.path, self._max_bytes)
        self._waiting: SimpleQueue[Line | Event | None] = SimpleQueue()
        thread = Thread(
            target=_write_events, args=(self._waiting, self._writer), name="wiserouter-journal", daemon=True
        )
        thread.start()
        self.close = weakref.finalize(self, _end, self._waiting, thread)
        """Write the events that wait, and end the thread; also done when the process ends."""
        self._pid = os.getpid()
        call_before_multiprocessing_ends(self.close)

    def _begin_after_fork(self) -> None:
        """Begin again in a process that was forked from the one with the thread, which writes what waited there."""
        if self._pid == os.getpid():
            return
        with self._beginning:  # one thread does
            if self._pid != os.getpid() and self.close.alive:
                try:
                    self._begin()
                except (OSError, RuntimeError) as error:  # a warning; the next event tries again
                    self._writer.fail(1, error)

    @property
    def dropped(self) -> int:
        """Events that were lost."""
        return self._overflow + self._writer.failed

    def decision(self, decision: Decision, trace: DecisionTrace | None) -> None:
        """Record a decision with its figures, where the store keeps them."""
        if trace is not None:
            self.note(lambda: _decision_line(decision, trace))

    def event(self, name: str, decision_id: str, at_s: float, **figures: Any) -> None:
        """Record a charge, a release, a presumption or a reward of a decision."""
        usage = figures.pop("usage", None)
        line = {"event": name, "id": decision_id, "at": at_s, **figures}
        self.note((lambda: line) if usage is None else lambda: {**line, "tokens": asdict(usage)})

    def note(self, line: Line) -> None:
        """Have a line written, unless too many wait already."""
        self._begin_after_fork()
        if self._waiting.qsize() < self._max_waiting:
            self._waiting.put(line)
            return
        self._overflow += 1
        if self._overflow == 1:
            logger.warning("the journal cannot keep up: more than %d events wait, one is dropped", self._max_waiting)

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything recorded so far is written; return True if that was in time."""
        self._begin_after_fork()
        done = Event()
        self._waiting.put(done)
        return done.wait(timeout_s)


class _Writer:
    """Appends lines to a file, and rotates it when it is full; a file that fails is a warning, never an error."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self.failed = 0
        self._cut = False
        self._file = self._open()

    def append(self, lines: list[Line]) -> None:
        """Write some lines in one call, so that those of other writers come before or after them."""
        rest = b"".join(map(self._made, lines))
        if not rest:
            return
        try:
            self._make_room(len(rest))
            if self._cut:
                self._cut = not os.write(self._file, b"\n")
            while rest:  # a file may take only a part, as of a full disk
                written = os.write(self._file, rest)
                self._cut = not rest[:written].endswith(b"\n")
                rest = rest[written:]
        except OSError as error:  # no failure may end the thread
            self.fail(rest.count(b"\n"), error)

    def _made(self, line: Line) -> bytes:
        """Return a line as it stands in the file; nothing for one that cannot be made, which costs no other."""
        try:
            return json.dumps(line(), allow_nan=False).encode() + b"\n"
        except Exception as error:  # no failure may end the thread
            self.fail(1, error)
            return b""

    def fail(self, lost: int, error: Exception) -> None:
        """Count lines that are lost; the first error is logged."""
        if not self.failed:
            logger.warning("the journal %s cannot be written: %s", self._path, error)
        self.failed += lost

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open(self) -> int:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":  # a line that a crash cut short ends here
            os.write(file, b"\n")
        return file

    def _make_room(self, size: int) -> None:
        """Open the file that has the name now: another process may have set ours aside, or we do where it is full."""
        written = os.fstat(self._file).st_size
        if self._has_the_name() and (not written or written + size <= self._max_bytes):
            return
        with _locked(self._file):  # of several processes with one full file, one sets it aside
            if self._has_the_name():
                self._set_aside()
        former, self._file = self._file, self._open()  # in this order: the number of a closed file is soon another's
        os.close(former)
        self._cut = False

    def _has_the_name(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            return False

    def _set_aside(self) -> None:
        for age in range(KEPT_FILES, 0, -1):
            older = aged(self._path, age - 1)
            if older.exists():
                older.replace(aged(self._path, age))


@contextmanager
def _locked(file: int) -> Iterator[None]:
    """Keep other processes from taking the same lock meanwhile, where files can be locked."""
    if sys.platform == "win32":  # an open file cannot be renamed there
        yield
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        logger.debug("the journal cannot be locked: %s", error)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def _write_events(waiting: SimpleQueue[Line | Event | None], writer: _Writer) -> None:
    """Write events as they come, several at once where several wait, until the journal ends."""
    while True:
        met = [waiting.get(), *_those_waiting(waiting)]
        writer.append([one for one in met if callable(one)])
        for one in met:
            if isinstance(one, Event):
                one.set()
        if None in met:
            return writer.close()


def _those_waiting(waiting: SimpleQueue[Line | Event | None]) -> Iterator[Line | Event | None]:
    for _ in range(_LINES_PER_WRITE - 1):
        try:
            yield waiting.get_nowait()
        except Empty:
            return


def _end(waiting: SimpleQueue[Line | Event | None], thread: Thread) -> None:
    waiting.put(None)
    if thread is not current_thread():  # in which a journal may be collected, too
        thread.join(timeout=5.0)


def aged(path: Path, age: int) -> Path:
    """Return the path of the file that was rotated `age` times; the journal itself at 0."""
    return path.parent / f"{path.name}.{age}" if age else path


def _decision_line(decision: Decision, trace: DecisionTrace) -> dict[str, Any]:
    import_between_forks("wiserouter.routing.explanation")  # in the writer's thread, for those with a journal
    from wiserouter.routing.explanation import figures_of_decision

    return {"event": "decision", **figures_of_decision(decision, trace)}
