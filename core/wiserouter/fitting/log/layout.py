"""The layout of a log: the columns with the score and cost of each model.

- wide: one row per query; per model the columns `score|<model>` and `cost|<model>`;
- RouterBench's own wide files: `<model>` for the score and `<model>|total_cost`;
- long: one row per call; `prompt`, `model`, `reward`, `cost_usd`, and `query_id` where calls share a query, by these
  names or others (`wiserouter.fitting.log.columns`). Scores may be missing, and costs where tokens are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from wiserouter.errors import LogError
from wiserouter.fitting.log.columns import TOKENS, LogColumns, Places, arm_names, expression
from wiserouter.fitting.log.limits import check_models
from wiserouter.fitting.log.other_files import refuse_empty
from wiserouter.validation import check_kind

if TYPE_CHECKING:
    import polars as pl

LayoutName = Literal["wide", "long"]

_KNOWN = (
    "wide (prompt, and score|<model> with cost|<model> or <model> with <model>|total_cost per model) or "
    "long (prompt, model, cost_usd or token counts, reward where there are scores; query_id optional)"
)
CONVERSATION = "conversation"
"""The column that says which run a call belongs to."""

_WIDE = ("prompt", "query_id")
_OPTIONS = {"prompt": "--prompt", "model": "--model", "cost_usd": "--cost"}


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table.

    Attributes
    ----------
    name : {"wide", "long"}
        One row per query, or per call.
    columns : dict of str to tuple of str
        Wide: the score and cost column of each model, in the file's order. Long: empty.
    places : mapping of str to tuple of str
        The columns, or paths into them, that hold each field: of a wide log the prompt only.
    """

    name: LayoutName
    columns: dict[str, tuple[str, str]]
    places: Places = field(default_factory=lambda: {"prompt": ("prompt",)})

    @property
    def query_id(self) -> bool:
        """Whether the rows of one query share an id; in a wide log only where a column was given for it."""
        return "query_id" in self.places

    @property
    def of_runs(self) -> bool:
        """Whether that id is the conversation of a call, which not every call has."""
        return self.places.get("query_id") == (CONVERSATION,)

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of each row, which are the columns of the frames that `selection` gives."""
        return tuple(field for field in self.places if field != "effort")

    def selection(self, schema: pl.Schema, fields: Sequence[str]) -> list[pl.Expr]:
        """Return the expressions of some fields, each under the field's name; the effort is part of the model."""
        return [self._expression(one, schema).alias(one) for one in fields]

    def _expression(self, field: str, schema: pl.Schema) -> pl.Expr:
        value = expression(self.places[field], schema)
        if field != "model" or "effort" not in self.places:
            return value
        return arm_names(value, expression(self.places["effort"], schema))

    def shown(self, column: str) -> str:
        """Return the place of a field as errors name it."""
        return self.places.get(column, (column,))[0]


def layout_of(
    columns: Sequence[str], wanted: LayoutName | None, file: Path | None, given: LogColumns | None = None
) -> Layout:
    """Return the layout of a table with these columns.

    Raises
    ------
    LogError
        If they fit no layout, or not the wanted one; the message lists the columns missing and those found.
    """
    if given is not None:
        check_kind("columns", given, LogColumns, 'LogColumns(reward="rating")')
    pairs = _model_columns(columns)
    places: Places
    name = wanted or ("wide" if pairs else "long")
    given = given or LogColumns()
    if name == "wide":
        _check_given(given, file)
        kept = ("prompt",) if given.query_id is None else ("prompt", "query_id")
        known = LogColumns(prompt=given.prompt, query_id=given.query_id).places(columns, file)
        missing = [] if "prompt" in columns or given.prompt else ["prompt"]
        places = {} if missing else {field: known[field] for field in kept}
    else:
        places = given.places(columns, file)
        missing = [one for one in ("prompt", "model") if one not in places]
        missing += [] if "cost_usd" in places or set(TOKENS[:2]) <= set(places) else ["cost_usd"]
    if missing and not any(column.strip() for column in columns):
        refuse_empty(file)
    if missing or (name == "wide" and not pairs):
        lacking = f"it lacks {', '.join(missing)}" if missing else "it has no column pair of any model"
        found = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
        named = [f"{option} COLUMN" for one, option in _OPTIONS.items() if name == "long" and one in missing]
        remedy = f"; name it with {' '.join(named)} (in Python LogColumns) if it is there" if named else ""
        raise LogError(f"a log must be {_KNOWN}; read as {name}, {lacking}; found: {found}{remedy}", file=file)
    if name == "long":
        return Layout("long", {}, places)
    _check_partners(columns, file)
    check_models(file, len(pairs))
    return Layout("wide", pairs, places)


def _check_given(given: LogColumns, file: Path | None) -> None:
    """Refuse columns that a wide log cannot have: they would be silently left out."""
    others = [one.name for one in fields(given) if one.name not in _WIDE and getattr(given, one.name) is not None]
    if others:
        rule = "a wide log names its scores and costs by model, score|<model> and cost|<model>"
        raise LogError(f"{rule}, got a column for {', '.join(others)}: leave that out", file=file)


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
