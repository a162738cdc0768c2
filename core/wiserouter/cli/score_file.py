"""The scores that `wiserouter judge` has paid for, kept line by line."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wiserouter.cli.judged_log import CallToJudge
from wiserouter.errors import InvalidInput
from wiserouter.fitting.log.cell_texts import DIGEST_OF, digest
from wiserouter.validation import read_text


class ScoreFile:
    """A file of scores that is added to, so that a run that was stopped goes on and pays for nothing twice.

    Parameters
    ----------
    path : Path
        The file; where it exists, its scores are read.
    key, model, prompt, answer : str
        The columns of the log that name a call and its model, which each line has, and those of its texts, of which
        each line has a digest.
    source, judge : str
        The source of the scores, and the function that gives them.

    Raises
    ------
    InvalidInput
        If the file holds something else.
    """

    def __init__(self, path: Path, key: str, model: str, prompt: str, answer: str, source: str, judge: str) -> None:
        self.path, self.key, self.model, self.source, self.judge = path, key, model, source, judge
        self._digests = DIGEST_OF + prompt, DIGEST_OF + answer
        self._calls: dict[str | int, dict[str, Any]] = {}
        lines = read_text(path).split("\n") if path.is_file() else [""]
        if lines.pop():
            raise InvalidInput(f"{path} must end with a whole line: remove its last one", value=path)
        for at, text in enumerate(lines, start=1):
            line = self._read(at, text)
            self._calls[line[key]] = {name: line[name] for name in (model, *self._digests)}

    def __enter__(self) -> Self:
        self._file = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def has(self, call: CallToJudge) -> bool:
        """Return True if a call has a score; raise `InvalidInput` where that is one of another model or text."""
        known = self._calls.get(call.id)
        if known is None:
            return False
        other = [name for name, value in self._content(call).items() if known[name] != value]
        if other:
            raise InvalidInput(
                f"{self.path} must hold scores of this log, got for {self.key} {call.id} that of another "
                f"{other[0].removeprefix(DIGEST_OF)}: choose another file, or delete it",
                value=known[other[0]],
            )
        return True

    def add(self, call: CallToJudge, score: float) -> None:
        """Keep a score."""
        of = {"score": score, "source": self.source, "judged_by": self.judge}
        self._file.write(json.dumps({self.key: call.id, **self._content(call), **of}) + "\n")
        self._file.flush()  # it was paid for

    def _content(self, call: CallToJudge) -> dict[str, str]:
        """Return the model of a call and the digests of its texts, by column."""
        prompt, answer = self._digests
        return {self.model: call.model, prompt: digest(call.prompt), answer: digest(call.answer)}

    def _read(self, at: int, text: str) -> dict[str, Any]:
        names = {self.key, self.model, *self._digests, "score", "judged_by"}
        try:
            line: dict[str, Any] = json.loads(text)
            sound = line["source"] == self.source and names <= line.keys()
        except (ValueError, TypeError, KeyError, RecursionError):
            sound = False
        if not sound:
            raise InvalidInput(
                f"{self.path}, line {at} must be a score of {self.source} by {self.key}, got {text[:80]!r}: choose "
                f"another file, or delete it",
                value=text,
            )
        if line["judged_by"] != self.judge:
            raise InvalidInput(
                f"{self.path}, line {at} must be a score by {self.judge}, got one by {line['judged_by']}: choose "
                f"another file, or delete it",
                value=line["judged_by"],
            )
        return line
