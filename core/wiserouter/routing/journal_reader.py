"""The reader of a journal: its events in order, and the explanation of one decision with its outcome."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from wiserouter.errors import InvalidInput, UnknownDecision
from wiserouter.learning.source_scores import SourceScore, evidence, with_event
from wiserouter.routing.journal import KEPT_FILES, aged
from wiserouter.routing.journal_lines import event_of, journal_lines


@dataclass(slots=True)
class JournalReader:
    """Iterates over the events of a journal, its rotated files first.

    Attributes
    ----------
    path : Path or str
        The newest file.
    skipped : int
        Lines that could not be read so far, such as the last one of a process that died while it wrote, or one that
        lacks a field.
    """

    path: Path | str
    skipped: int = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the events in order.

        Raises
        ------
        FileNotFoundError
            If there is no journal.
        """
        newest, files = Path(self.path), dict[tuple[int, int], TextIO]()
        with ExitStack() as opened:  # all at once, for a writer may rotate them while they are read
            for age in range(KEPT_FILES + 1):  # the newest first: one that is set aside meanwhile is met once more
                with suppress(FileNotFoundError):  # also the newest one, where it was just set aside
                    file = opened.enter_context(aged(newest, age).open(encoding="utf-8-sig", errors="replace"))
                    found = os.fstat(file.fileno())
                    files.setdefault((found.st_dev, found.st_ino), file)
            if not files:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(newest))
            for line in chain.from_iterable(map(journal_lines, reversed(files.values()))):
                event = event_of(line)
                if event is not None:
                    yield event
                elif line.strip():
                    self.skipped += 1


def find_explanation(reading: JournalReader, decision_id: str) -> dict[str, Any]:
    """Return the explanation of a decision as `Explanation.as_dict` does, with the outcome of its call.

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
    InvalidInput
        If none has it, and some lines are damaged: it may stand in one of these; or the journal has no decision.
    FileNotFoundError
        If there is no journal.
    """
    found: dict[str, Any] = {}
    scores: dict[str, SourceScore] = {}
    for event in reading:
        kind = event.get("event")
        if kind == "decision" and decision_id in {"last", event.get("id")}:
            later = {"state": "in flight", "answered_by": event["model"], "cost_usd": None, "reward": None}
            found = {"prices": {}, **event, **later}
            del found["event"]
            scores = {}
        elif found and event.get("id") == found["id"]:
            if kind == "reward":
                scores = with_event(scores, event)
                learned = evidence(scores)
                found["reward"] = None if learned is None else learned.reward
            found |= _OUTCOMES[kind](event) if kind in _OUTCOMES else {}
    if not found and reading.skipped:
        raise InvalidInput(
            f"{reading.path}: decision {decision_id!r} is unknown, and {reading.skipped} lines are damaged or cut: "
            f"it may be in one of them, pass the id of another decision",
            value=decision_id,
        )
    if not found and decision_id == "last":
        raise InvalidInput(f"{reading.path} must hold decisions, got none: keep them with journal_to()")
    if not found:
        raise UnknownDecision(decision_id)
    return found


_OUTCOMES: dict[Any, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "charge": lambda event: {"state": "charged", "cost_usd": event["cost_usd"], "answered_by": event["model"]},
    "release": lambda _: {"state": "released", "cost_usd": None},
    "presume": lambda event: {"state": "presumed", "cost_usd": event["cost_usd"]},
}
