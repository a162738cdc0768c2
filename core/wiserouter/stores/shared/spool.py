"""The spool: a file of the events that a worker could not send, for the case that it ends before its store answers.

A worker writes to it only while the store is away, and deletes it when everything is sent. It holds a lock on the file,
which ends with the process: a worker that starts sends what it finds in files without a lock. Every event counts once,
so nothing is lost, and nothing is counted twice where some of them had been sent.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable
from glob import escape
from pathlib import Path
from typing import Any

from wiserouter.budgets.run_caps import RunCap
from wiserouter.stores.engines.events import (
    Alias,
    EndConversation,
    Event,
    KeepConversation,
    Renew,
    Reserve,
    Settle,
    Spend,
    WindowOpening,
)
from wiserouter.stores.ids import WorkerIdentity

logger = logging.getLogger("wiserouter")

_KINDS = (Reserve, Settle, Spend, Alias, Renew, KeepConversation, EndConversation)
_SPOOLED: dict[str, type] = {one.__name__: one for one in _KINDS}


class Spool:
    """The unsent events of one worker, as JSON lines.

    Parameters
    ----------
    path : Path
        The beginning of the names of the files; the workers of one store give the same.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = WorkerIdentity()
        self._file: int | None = None
        self._failed = False

    def keep(self, events: Iterable[Event]) -> None:
        """Write events to the file; where that fails, which is logged once, they are kept in memory only."""
        lines = [json.dumps(_plain(event)) + "\n" for event in events if type(event) in _SPOOLED.values()]
        try:
            if lines:
                _append(self._opened(), "".join(lines).encode())
        except OSError as error:
            if not self._failed:
                logger.warning("unsent events cannot be written beside %s and stay in memory: %s", self._path, error)
            self._failed = True

    def clear(self) -> None:
        """Delete the file: all events were sent."""
        self._failed = False
        if self._file is not None and self._identity.is_current:
            self._own_path.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        """Leave the file to a worker that starts later."""
        if self._file is not None and self._identity.is_current:
            os.close(self._file)
        self._file = None

    def left_behind(self) -> tuple[list[Event], list[Path]]:
        """Return the events of workers that have ended, and their files, to be deleted once the events are sent."""
        events: list[Event] = []
        files = []
        for path in sorted(self._path.parent.glob(f"{escape(self._path.name)}.unsent-*")):
            file = os.open(path, os.O_RDWR)
            try:
                if _locked(file):
                    lines = path.read_text("utf-8", "replace").splitlines()
                    events += [event for line in lines for event in _read(line)]
                    files.append(path)
            finally:
                os.close(file)
        return events, files

    @property
    def _own_path(self) -> Path:
        return self._path.with_name(f"{self._path.name}.unsent-{self._identity.name}")

    def _opened(self) -> int:
        if self._identity.renew_after_fork():
            self._file = None  # the parent's
        if self._file is None:
            self._file = os.open(self._own_path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            _locked(self._file)
        return self._file


def _append(file: int, lines: bytes) -> None:
    """Write whole lines, or none: half a line would take the next one with it."""
    size = os.fstat(file).st_size
    try:
        while lines:
            lines = lines[os.write(file, lines) :]
    except OSError:
        os.ftruncate(file, size)
        raise


def _locked(file: int) -> bool:
    """Lock a file; return False if a worker that runs holds it, or files cannot be locked."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _plain(event: Event) -> dict[str, Any]:
    fields = {"kind": type(event).__name__, **event._asdict()}
    if isinstance(event, Renew):
        fields["window"] = {**event.window._asdict(), "counters": dict(event.window.counters)}
    return fields


def _read(line: str) -> list[Event]:
    """Return the event of a line; none for a line that a crash cut short."""
    try:
        fields = json.loads(line)
        kind = _SPOOLED[fields.pop("kind")]
        if kind is Renew:
            fields["window"] = WindowOpening(**fields["window"])
        if kind is Reserve:
            fields["caps"] = [RunCap(*cap) for cap in fields.get("caps", ())]
        return [kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})]
    except (ValueError, TypeError, KeyError):
        logger.warning("a line of unsent events cannot be read, and is left out")
        return []
