"""The journal: one JSON line per event of a router, for `wiserouter explain` and for off-policy evaluation.

Lines hold what a decision rested on, its probabilities, and what became of it; never a prompt, a word of one, or a key.
Whoever notes an event waits for nothing: a background thread turns events into lines and writes them.
"""

from __future__ import annotations

import json
import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

from wiserouter.errors import UnknownDecision
from wiserouter.validation import check_count

logger = logging.getLogger("wiserouter")

Line = Callable[[], Mapping[str, Any]]
"""Makes the JSON object of one event, in the writer's thread."""

MAX_BYTES = 64 * 2**20
"""Size from which a file is set aside."""

KEPT_FILES = 3
"""Files set aside that are kept: `journal.jsonl.1` is the latest."""

MAX_WAITING = 10_000
"""Events that may wait for the writer; further ones are dropped, and counted."""

_MOST_AT_ONCE = 256


class Journal:
    """Appends events to a file without making anybody wait.

    Parameters
    ----------
    path : str or Path
        The file; its folder must exist. For one process: several may append, but only one may set files aside.
    max_bytes : int, default 64 MiB
        Size from which the file is set aside and a new one begun.
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
        self._max_waiting = check_count("max_waiting", max_waiting, least=1)
        self._waiting: SimpleQueue[Line | Event | None] = SimpleQueue()
        self._writer = _Writer(self.path, check_count("max_bytes", max_bytes, least=1))
        self._overflow = 0
        thread = Thread(target=_serve, args=(self._waiting, self._writer), name="wiserouter-journal", daemon=True)
        thread.start()
        self.close = weakref.finalize(self, _end, self._waiting, thread)
        """Write what waits, and end; also done when the process ends."""

    @property
    def dropped(self) -> int:
        """Events that were lost."""
        return self._overflow + self._writer.failed

    def note(self, line: Line) -> None:
        """Have an event written, unless too many wait already."""
        if self._waiting.qsize() < self._max_waiting:
            self._waiting.put(line)
            return
        self._overflow += 1
        if self._overflow == 1:
            logger.warning("the journal cannot keep up: more than %d events wait, one is dropped", self._max_waiting)

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything noted so far is written; return whether it was, in time."""
        done = Event()
        self._waiting.put(done)
        return done.wait(timeout_s)


class _Writer:
    """Appends lines to a file, and sets it aside when it is full; a file that fails is a warning, never an error."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self.failed = 0
        self._file = self._open()

    def append(self, lines: list[Line]) -> None:
        """Write some lines at once, so that those of other writers come before or after them."""
        try:
            data = b"".join(json.dumps(line(), allow_nan=False).encode() + b"\n" for line in lines)
            self._make_room(len(data))
            os.write(self._file, data)
        except Exception as error:  # whatever fails here must not end the thread
            self.failed += len(lines)
            if self.failed == len(lines):
                logger.warning("the journal %s cannot be written: %s", self._path, error)

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
        written = os.fstat(self._file).st_size
        if not written or written + size <= self._max_bytes:
            return
        for age in range(KEPT_FILES, 0, -1):
            older = _aged(self._path, age - 1)
            if older.exists():
                older.replace(_aged(self._path, age))
        os.close(self._file)
        self._file = self._open()


def _serve(waiting: SimpleQueue[Line | Event | None], writer: _Writer) -> None:
    """Write events as they come, several at once where several wait, until the end is told."""
    while True:
        met = [waiting.get(), *_those_waiting(waiting)]
        writer.append([one for one in met if callable(one)])
        for one in met:
            if isinstance(one, Event):
                one.set()
        if None in met:
            return writer.close()


def _those_waiting(waiting: SimpleQueue[Line | Event | None]) -> Iterator[Line | Event | None]:
    for _ in range(_MOST_AT_ONCE - 1):
        try:
            yield waiting.get_nowait()
        except Empty:
            return


def _end(waiting: SimpleQueue[Line | Event | None], thread: Thread) -> None:
    waiting.put(None)
    thread.join(timeout=5.0)


def _aged(path: Path, age: int) -> Path:
    return path.with_name(f"{path.name}.{age}") if age else path


@dataclass(slots=True)
class JournalReader:
    """A walk through a journal, its set-aside files first.

    Attributes
    ----------
    path : Path
        The newest file.
    skipped : int
        Lines that could not be read so far, as the last one where a process died while it wrote.
    """

    path: Path
    skipped: int = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the events in order.

        Raises
        ------
        FileNotFoundError
            If there is no journal.
        """
        older = [each for age in range(KEPT_FILES, 0, -1) if (each := _aged(self.path, age)).exists()]
        for path in [*older, self.path]:
            with path.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    event = _read(line)
                    if event is not None:
                        yield event
                    elif line.strip():
                        self.skipped += 1


def find_explanation(reading: JournalReader, decision_id: str) -> dict[str, Any]:
    """Return what a journal tells of a decision, as `Explanation.as_dict` does, with what became of it.

    Parameters
    ----------
    reading : JournalReader
        The journal.
    decision_id : str
        An id, or "last".

    Raises
    ------
    UnknownDecision
        If no decision has this id.
    FileNotFoundError
        If there is no journal.
    """
    found: dict[str, Any] = {}
    for event in reading:
        told = event.get("event")
        if told == "decision" and decision_id in {"last", event.get("id")}:
            later = {"state": "in flight", "answered_by": event["model"], "cost_usd": None, "reward": None}
            found = {**event, **later}
            del found["event"]
        elif found and event.get("id") == found["id"]:
            found |= _OUTCOMES[told](event) if told in _OUTCOMES else {}
    if not found:
        raise UnknownDecision(decision_id)
    return found


_OUTCOMES: dict[Any, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "charge": lambda event: {"state": "charged", "cost_usd": event["cost_usd"], "answered_by": event["model"]},
    "release": lambda _: {"state": "released"},
    "reward": lambda event: {"reward": event["reward"]},
}


def _read(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
