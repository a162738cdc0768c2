"""The survey of a log: how it is read, what it holds per model, and which rows would be refused and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wiserouter.errors import LogError
from wiserouter.fitting.log.cells import Cells, Checked
from wiserouter.fitting.log.reader import RoutingLog
from wiserouter.fitting.log.rows import costs_usd
from wiserouter.fitting.log.scores import UNIT, Scale
from wiserouter.types import FloatArray

_USUAL_SCALES = (Scale(-1, 1), Scale(1, 5), Scale(0, 5), Scale(0, 10), Scale(0, 100))
"""Scales that people use, the narrowest first."""


@dataclass(slots=True)
class ModelCount:
    """The calls of one model: their number, and number and sum of their scores and of their costs."""

    calls: int = 0
    scores: int = 0
    score_sum: float = 0.0
    costs: int = 0
    cost_sum_usd: float = 0.0

    @property
    def mean_reward(self) -> float | None:
        """Mean score as a reward in [0, 1]; None without scores."""
        return self.score_sum / self.scores if self.scores else None

    @property
    def mean_cost_usd(self) -> float | None:
        """Mean cost of a call; None without costs."""
        return self.cost_sum_usd / self.costs if self.costs else None


@dataclass(slots=True)
class Refusal:
    """Rows that break a rule: their number, and the error of the first."""

    column: str
    rule: str
    rows: int
    first: str


@dataclass(slots=True)
class LogSurvey:
    """A survey of a log.

    Attributes
    ----------
    layout : str
        "wide" or "long".
    places : mapping of str to str
        The column, or the path into one, of each field.
    columns : list of str
        All columns of the log.
    rows : int
        Number of rows.
    models : dict of str to ModelCount
        Of the rows that can be read.
    refusals : list of Refusal
        The rules that rows break.
    unpriced : tuple of str
        Models whose token counts have no price, in a log without costs.
    scores : tuple of float, or None
        The smallest and the largest number in the column of scores.
    failed_lines : int
        Number of lines of a batch that failed, which are left out.
    """

    layout: str
    places: Mapping[str, str]
    columns: list[str]
    rows: int = 0
    models: dict[str, ModelCount] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    unpriced: tuple[str, ...] = ()
    scores: tuple[float, float] | None = None
    failed_lines: int = 0

    @property
    def calls(self) -> int:
        """Number of calls that can be read."""
        return sum(one.calls for one in self.models.values())

    @property
    def without_costs(self) -> tuple[str, ...]:
        """The models that have no cost."""
        return tuple(name for name, one in self.models.items() if not one.costs)

    @property
    def is_refused(self) -> bool:
        """Whether a fit refuses the log as it is."""
        return bool(self.refusals or self.unpriced or self.without_costs)

    @property
    def scores_are_rewards(self) -> bool:
        """Whether no number in the column of scores leaves [0, 1]."""
        return self.scores is None or (self.scores[0] >= UNIT.low and self.scores[1] <= UNIT.high)

    @property
    def suggested_scale(self) -> str | None:
        """The first usual scale that holds the scores, where they leave that of rewards; None where none does."""
        if self.scores is None or self.scores_are_rewards:
            return None
        low, high = self.scores
        found = next((one for one in _USUAL_SCALES if one.low <= low and high <= one.high), None)
        return None if found is None else f"{found.worst:g}..{found.best:g}"


def survey(log: RoutingLog) -> LogSurvey:
    """Return the survey of a log, after one pass over it.

    Raises
    ------
    LogError
        If there is no row, or the file is damaged.
    """
    layout = log.layout
    places = {name: layout.shown(name) for name in layout.places}
    found = LogSurvey(layout.name, places, log.columns(), models={name: ModelCount() for name in log.models})
    found.failed_lines = log.failed_lines
    priced = layout.name == "wide" or "cost_usd" in layout.fields
    found.unpriced = () if priced else tuple(name for name in log.models if name not in log.prices)
    for cells in log.cells():
        found.rows += cells.frame.height
        (_survey_wide if layout.name == "wide" else _survey_long)(found, cells, log)
    return found


def _survey_wide(found: LogSurvey, cells: Cells, log: RoutingLog) -> None:
    n = cells.frame.height
    prompts = _checked(found, cells, cells.check_prompts, "prompt")
    sound = np.ones(n, dtype=bool) if prompts is None else prompts[1]
    for name in log.models:
        score, cost = log.layout.columns[name]
        reward, cost_usd = (
            _numbers(found, cells, check, one, n)
            for check, one in ((cells.check_rewards, score), (cells.check_costs, cost))
        )
        called = sound & ~(np.isnan(reward) & np.isnan(cost_usd))
        _count(found.models[name], reward[called], cost_usd[called])


def _survey_long(found: LogSurvey, cells: Cells, log: RoutingLog) -> None:
    n, fields = cells.frame.height, log.layout.fields
    sound = np.ones(n, dtype=bool)
    texts: dict[str, list[str]] = {}
    for name, check in (
        ("prompt", cells.check_prompts),
        ("model", cells.check_names),
        ("query_id", cells.check_texts),
    ):
        read = _checked(found, cells, check, name) if name in fields else None
        if read is not None:
            texts[name], sound = read[0], sound & read[1]
    number_checks = {"reward": cells.check_rewards, "cost_usd": cells.check_costs}
    number_checks |= dict.fromkeys(("input_tokens", "output_tokens", "cached_tokens"), cells.check_tokens)
    numbers = {name: _numbers(found, cells, check, name, n) for name, check in number_checks.items() if name in fields}
    _note_range(found, cells, fields)
    models = np.array(texts.get("model", [""] * n), dtype=object)
    reward = numbers.get("reward", np.full(n, np.nan))
    cost_usd = costs_usd({"model": models, **numbers}, log.prices)
    for name, count in found.models.items():
        own = sound & (models == name)
        _count(count, reward[own], cost_usd[own])


def _count(count: ModelCount, reward: FloatArray, cost_usd: FloatArray) -> None:
    count.calls += len(reward)
    count.scores += int((~np.isnan(reward)).sum())
    count.score_sum += float(np.nansum(reward))
    count.costs += int((~np.isnan(cost_usd)).sum())
    count.cost_sum_usd += float(np.nansum(cost_usd))


def _numbers(found: LogSurvey, cells: Cells, check: Callable[[str], Checked], column: str, n: int) -> FloatArray:
    """Return a column of numbers, NaN where they cannot be read."""
    read = _checked(found, cells, check, column)
    return np.full(n, np.nan) if read is None else np.where(read[1], read[0], np.nan)


def _checked(found: LogSurvey, cells: Cells, check: Callable[[str], Checked], column: str) -> tuple[Any, Any] | None:
    """Return the values of a column and where they are sound, and note the faults; None if none can be read."""
    try:
        values, faults = check(column)
    except LogError as error:
        _note(found, column, "the column cannot be read", cells.frame.height, str(error))
        return None
    sound = np.ones(cells.frame.height, dtype=bool)
    for fault in faults:
        sound &= ~fault.rows
        _note(found, fault.column, fault.rule, int(fault.rows.sum()), str(fault.error(cells.first_row, None)))
    return values, sound


def _note(found: LogSurvey, column: str, rule: str, rows: int, first: str) -> None:
    known = next((one for one in found.refusals if (one.column, one.rule) == (column, rule)), None)
    if known is None:
        found.refusals.append(Refusal(column, rule, rows, first))
    else:
        known.rows += rows


def _note_range(found: LogSurvey, cells: Cells, fields: tuple[str, ...]) -> None:
    """Widen the range of the scores by a frame's."""
    import polars as pl

    if "reward" not in fields or cells.frame["reward"].dtype.is_nested():
        return
    numbers = cells.frame["reward"].cast(pl.Float64, strict=False).drop_nulls()
    numbers = numbers.filter(numbers.is_finite())
    if len(numbers):
        seen = (float(numbers.min()), float(numbers.max()))  # type: ignore[arg-type]
        found.scores = seen if found.scores is None else (min(found.scores[0], seen[0]), max(found.scores[1], seen[1]))
