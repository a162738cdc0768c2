"""The layout of a log: the columns with the score and cost of each model.

- wide: one row per query; per model the columns `score|<model>` and `cost|<model>`;
- RouterBench's own wide files: `<model>` for the score and `<model>|total_cost`;
- long: one row per call; `prompt`, `model`, `reward`, `cost_usd`, and `query_id` where calls share a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wiserouter.errors import LogError
from wiserouter.fitting.log.limits import check_models

LayoutName = Literal["wide", "long"]

_LONG = ("prompt", "model", "reward", "cost_usd")
_KNOWN = (
    "wide (prompt, and score|<model> with cost|<model> or <model> with <model>|total_cost per model) or "
    "long (prompt, model, reward, cost_usd; query_id optional)"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table.

    Attributes
    ----------
    name : {"wide", "long"}
        One row per query, or per call.
    columns : dict of str to tuple of str
        Wide: the score and cost column of each model, in the file's order. Long: empty.
    query_id : bool
        Long: whether calls of one query share an id.
    """

    name: LayoutName
    columns: dict[str, tuple[str, str]]
    query_id: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns read as text."""
        if self.name == "wide":
            return ("prompt",)
        return ("prompt", "model", "query_id") if self.query_id else ("prompt", "model")

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns read as numbers: all scores, then all costs."""
        if self.name == "long":
            return ("reward", "cost_usd")
        return (*(score for score, _ in self.columns.values()), *(cost for _, cost in self.columns.values()))


def layout_of(columns: Sequence[str], wanted: LayoutName | None, file: Path | None) -> Layout:
    """Return the layout of a table with these columns.

    Raises
    ------
    LogError
        If they fit no layout, or not the wanted one; the message lists the columns missing and those found.
    """
    pairs = _model_columns(columns)
    name = wanted or ("wide" if pairs else "long")
    missing = [column for column in (("prompt",) if name == "wide" else _LONG) if column not in columns]
    if missing or (name == "wide" and not pairs):
        lacking = f"it lacks {', '.join(missing)}" if missing else "it has no column pair of any model"
        found = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
        raise LogError(f"a log must be {_KNOWN}; read as {name}, {lacking}; found: {found}", file=file)
    if name == "long":
        return Layout("long", {}, query_id="query_id" in columns)
    _check_partners(columns, file)
    check_models(file, len(pairs))
    return Layout("wide", pairs)


def _check_partners(columns: Sequence[str], file: Path | None) -> None:
    """Refuse a score without its cost, or the reverse: the model would be silently left out."""
    partner, present = {"score|": "cost|", "cost|": "score|"}, set(columns)
    for column in columns:
        for mine, other in partner.items():
            needed = other + column.removeprefix(mine)
            if column.startswith(mine) and needed not in present:
                rule = f"a model needs both columns, and {needed!r} is missing: add it (it may be empty) or drop this"
                raise LogError(rule, file=file, column=column)


def _model_columns(columns: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the score and cost column of each model of a wide table."""
    present = set(columns)
    ours = {c[6:]: (c, f"cost|{c[6:]}") for c in columns if c.startswith("score|") and f"cost|{c[6:]}" in present}
    if ours:
        return ours
    return {c: (c, f"{c}|total_cost") for c in columns if f"{c}|total_cost" in present}
