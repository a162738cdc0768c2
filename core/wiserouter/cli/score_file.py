"""The scores that `wiserouter judge` has paid for, kept line by line."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wiserouter.errors import InvalidInput


class ScoreFile:
    """A file of scores that is added to, so that a run that was stopped goes on and pays for nothing twice.

    Parameters
    ----------
    path : Path
        The file; where it exists, its scores are read.
    key, model : str
        The columns of the log that name a call and its model; each line has both.
    source : str
        The source of the scores.

    Attributes
    ----------
    models : dict
        The model of each call that has a score, by the call's id.

    Raises
    ------
    InvalidInput
        If the file holds something else.
    """

    def __init__(self, path: Path, key: str, model: str, source: str) -> None:
        self.path, self.key, self.model, self.source = path, key, model, source
        self.models: dict[str | int, str] = {}
        lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else [""]
        if lines.pop():
            raise InvalidInput(f"{path} must end with a whole line: remove its last one", value=path)
        for at, text in enumerate(lines, start=1):
            line = self._read(at, text)
            self.models[line[key]] = line[model]

    def __enter__(self) -> Self:
        self._file = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def has(self, call_id: str | int, model: str) -> bool:
        """Return True if a call has a score; raise `InvalidInput` where that is one of another model."""
        known = self.models.get(call_id)
        if known not in (None, model):
            raise InvalidInput(
                f"{self.path} must hold scores of this log, got one of {known!r} for {self.key} {call_id}, which is of "
                f"{model!r}: choose another file",
                value=known,
            )
        return known is not None

    def add(self, call_id: str | int, model: str, score: float) -> None:
        """Keep a score."""
        line = {self.key: call_id, self.model: model, "score": score, "source": self.source}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()  # it was paid for

    def _read(self, at: int, text: str) -> dict[str, Any]:
        try:
            line: dict[str, Any] = json.loads(text)
            if line["source"] == self.source and {self.key, self.model, "score"} <= line.keys():
                return line
        except (ValueError, TypeError, KeyError):
            pass
        raise InvalidInput(
            f"{self.path}, line {at} must be a score of {self.source} by {self.key}, got {text[:80]!r}: choose another "
            f"file",
            value=text,
        )
