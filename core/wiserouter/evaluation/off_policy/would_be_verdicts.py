"""Verdicts on would-be answers, and the file that keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.off_policy.observed_calls import ObservedCall
from wiserouter.validation import read_text


class WouldBeVerdict(NamedTuple):
    """What became of a judged call.

    Attributes
    ----------
    preference : float or None
        1 where the would-be answer is better, 0 where it is worse, 0.5 for a tie; None where there is no verdict.
    answer_usd : float or None, USD
        Cost of the would-be answer; None where it is not known.
    spent_usd : float, USD
        Cost of the answer and of the judgement.
    """

    preference: float | None
    answer_usd: float | None
    spent_usd: float


@dataclass(slots=True)
class VerdictFile:
    """A file that keeps verdicts, so that a report that was stopped goes on and pays for nothing twice.

    It holds ids, models, preferences and costs, never a text.

    Attributes
    ----------
    verdicts : dict of str to WouldBeVerdict
        The verdicts by decision.
    spent_usd : float, USD
        What all runs have spent; a call that was under way when a run was stopped counts at its bound.
    """

    path: Path | None
    verdicts: dict[str, WouldBeVerdict] = field(default_factory=dict)
    spent_usd: float = 0.0
    _file: IO[str] | None = None

    def __post_init__(self) -> None:
        if self.path is None:
            return
        if self.path.is_file():
            self._read(read_text(self.path).splitlines())
        self._file = self.path.open("a", encoding="utf-8")

    def begin(self, call: ObservedCall, most_usd: float) -> None:
        """Note that a call is going to be judged, and the most that this costs."""
        self._write({"id": call.id, "begun_usd": most_usd})

    def add(self, call: ObservedCall, verdict: WouldBeVerdict) -> None:
        """Keep a verdict."""
        if verdict.preference is not None:
            self.verdicts[call.id] = verdict
        self.spent_usd += verdict.spent_usd
        self._write({"id": call.id, "ran": call.ran, "would_be": call.would_be, **verdict._asdict()})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def _read(self, lines: Iterable[str]) -> None:
        begun: dict[str, float] = {}
        for line in _verdict_lines(lines, self.path):
            if "begun_usd" in line:
                begun[line["id"]] = line["begun_usd"]
                continue
            begun.pop(line["id"], None)
            self.spent_usd += line["spent_usd"]
            if line["preference"] is not None:
                self.verdicts[line["id"]] = WouldBeVerdict(line["preference"], line["answer_usd"], line["spent_usd"])
        self.spent_usd += sum(begun.values())


def _verdict_lines(lines: Iterable[str], path: Path | None) -> Iterator[dict[str, Any]]:
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            amounts = [line["begun_usd"]] if "begun_usd" in line else [line["spent_usd"], line["answer_usd"] or 0.0]
            preference = line.get("preference") or 0.0
            right = isinstance(line["id"], str) and min(amounts) >= 0.0 and 0.0 <= preference <= 1.0
        except (ValueError, TypeError, KeyError, RecursionError):
            right = False
        if not right:
            raise InvalidInput(f"{path} must hold verdicts of former runs, got another line, number {number}")
        yield line
