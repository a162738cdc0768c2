"""Prior qualities of models: published scores, by task family, each with its benchmark, date, source and licence.

A prior decides while nothing is learned, and counts for few observations after that. Only the scores of one family are
compared with one another. A model that is not listed has no prior quality: its price is all that is known of it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.pricing.pool import SCORE_WEIGHT, Model
from wiserouter.validation import check_kind, read_text

_COLUMNS = ("model", "score")
_DATED = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")


class PriorScore(NamedTuple):
    """A published score of a model.

    Attributes
    ----------
    model : str
        The model's name at its provider, without a date.
    score : float
        The score in [0, 1].
    standard_error : float
        Its standard error; 0 where none is known.
    family : str
        The kind of task: "code", for example.
    benchmark, setting, date, source, licence : str
        Where the score comes from.
    """

    model: str
    score: float
    standard_error: float = 0.0
    family: str = ""
    benchmark: str = ""
    setting: str = ""
    date: str = ""
    source: str = ""
    licence: str = ""

    @property
    def weight(self) -> float:
        """The number of observations that the score counts for, at most 20: its questions were not yours.

        Examples
        --------
        >>> PriorScore("small", 0.5, 0.25).weight, PriorScore("small", 0.5, 0.01).weight
        (4.0, 20.0)
        """
        variance = self.standard_error**2
        return min(self.score * (1.0 - self.score) / variance, SCORE_WEIGHT) if variance else SCORE_WEIGHT


class PriorScores:
    """The prior scores of one family, found by the names of models.

    Parameters
    ----------
    rows : iterable of PriorScore
        One for each model.

    Raises
    ------
    InvalidInput
        If a model has two scores.

    Examples
    --------
    >>> scores = PriorScores([PriorScore("small", 0.4), PriorScore("large", 0.7)])
    >>> [(model.name, model.score) for model in scores.applied([Model("openai/large-2025-08-07"), Model("other")])]
    [('openai/large-2025-08-07', 0.7), ('other', None)]
    """

    def __init__(self, rows: Iterable[PriorScore]) -> None:
        self.rows = tuple(rows)
        self._by_name: dict[str, PriorScore] = {}
        for row in self.rows:
            name = _plain_name(row.model)
            if name in self._by_name:
                raise InvalidInput(
                    f"prior scores must hold one score of each model, got two of {row.model!r}: keep one family",
                    value=row.model,
                )
            self._by_name[name] = row

    @classmethod
    def open(cls, family_or_file: str) -> PriorScores:
        """Return the published scores of a family, such as "code", or those of a csv file.

        Raises
        ------
        InvalidInput
            If there is no such family, or the file lacks a column or holds a score outside [0, 1].
        OSError
            If the file cannot be read.
        """
        check_kind("priors", family_or_file, str, "'code' or 'own.csv'")
        if family_or_file.endswith(".csv"):
            return cls(read_scores(Path(family_or_file)))
        found = [row for row in published_scores() if row.family == family_or_file]
        if not found:
            families = ", ".join(sorted({row.family for row in published_scores()}))
            raise InvalidInput(
                f"priors must be a family of published scores ({families}) or a .csv file, got {family_or_file!r}",
                value=family_or_file,
            )
        return cls(found)

    def find(self, *names: str) -> PriorScore | None:
        """Return the score of the first of a model's names that is listed; None if none is.

        The provider before the last slash and a date at the end do not count, nor does the case of letters.
        """
        return next((self._by_name[name] for name in map(_plain_name, names) if name in self._by_name), None)

    def applied(self, models: Sequence[Model]) -> list[Model]:
        """Return the models with their prior scores; a score of their own stays."""
        return [model if model.score is not None else self._with_prior(model) for model in models]

    def _with_prior(self, model: Model) -> Model:
        row = self.find(model.name)
        return model if row is None else replace(model, score=row.score, score_weight=row.weight)


def published_scores() -> list[PriorScore]:
    """Return the scores that come with this package."""
    text = files("wiserouter.pricing").joinpath("published_scores.csv").read_text(encoding="utf-8")
    return _scores_of(text.splitlines(), "published_scores.csv")


def read_scores(path: Path) -> list[PriorScore]:
    """Return the scores of a csv file; columns `model` and `score`, the other fields of `PriorScore` optional."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file: correct the path")
    return _scores_of(read_text(path).splitlines(), str(path))


def _scores_of(lines: list[str], where: str) -> list[PriorScore]:
    reader = csv.DictReader(lines)
    reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
    missing = [name for name in _COLUMNS if name not in reader.fieldnames]
    if missing:
        got = f"{lines[0]!r:.80}" if lines else "nothing"
        rule = f"{where} must have the columns model and score, lacks {', '.join(missing)}"
        raise InvalidInput(f"{rule}, got {got}: name them so, with commas between them")
    return [_score_of(row, f"{where}, row {i}") for i, row in enumerate(reader, start=1)]


def _score_of(row: dict[str, str | None], where: str) -> PriorScore:
    texts = {name: (row.get(name) or "").strip() for name in PriorScore._fields}
    if not texts["model"]:
        raise InvalidInput(f"{where}: model must not be empty")
    score = _number(texts.pop("score"), f"{where}: score")
    error = _number(texts.pop("standard_error") or "0", f"{where}: standard_error")
    return PriorScore(score=score, standard_error=error, **texts)


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise InvalidInput(
            f"{what} must lie in [0, 1], got {text!r}: write decimals with a point, and divide percentages by 100",
            value=text,
        )
    return value


def _plain_name(name: str) -> str:
    """Return a name without provider and date, in lower case."""
    return _DATED.sub("", name.rpartition("/")[2].strip().casefold())
