"""The wide table: one parquet file, checked cell by cell, converted from a data set with columns of any name.

Columns: the texts (`sample_id`, `prompt` and others that identify a query), then `score|<model>` and `cost|<model>` in
USD for every model, as `RoutingLog`, `wiserouter fit` and `wiserouter replay` read them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import LogError
from wiserouter.fitting.log.cells import Cells, earliest
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    import polars as pl

Mask = NDArray[np.bool_]

ROW_GROUP = 8_192
"""Rows per row group, the unit in which a reader loads the file."""

MOST_CHARACTERS = 2**30
"""Largest amount of text in a column: a small pickle can refer to one long text in every row."""


class WideTable(NamedTuple):
    """A complete table, with the numbers of rows left out.

    Attributes
    ----------
    frame : polars.DataFrame
        Texts, then `score|<model>` and `cost|<model>` of every model.
    models : tuple of str
        Names of the models.
    incomplete, repeated : int
        Rows left out for an empty cell, and for a repeated id.
    """

    frame: pl.DataFrame
    models: tuple[str, ...]
    incomplete: int
    repeated: int


def wide(
    frame: pl.DataFrame, columns: Mapping[str, tuple[str, str]], *, file: Path | None = None, drop_faulty: bool = False
) -> WideTable:
    """Return the wide table of a frame with columns of other names.

    Parameters
    ----------
    frame : polars.DataFrame
        `sample_id`, `prompt`, any other columns to keep, and the scores and costs.
    columns : mapping of str to (str, str)
        The score and the cost column of every model.
    file : Path, optional
        File name for errors.
    drop_faulty : bool, default False
        Leave out rows with an empty cell or a repeated id, instead of refusing the table.

    Raises
    ------
    LogError
        If a score is outside [0, 1], a cost is not a finite amount of at least 0, a cell is empty or an id is repeated;
        the error names row (from 1) and column.
    """
    import polars as pl

    ids, values = _checked(Cells(frame, 1, file), columns)
    names = [name for pair in columns.values() for name in pair]
    missing = np.isnan(values)
    incomplete: Mask = np.asarray(missing.any(axis=1))
    if incomplete.any() and not drop_faulty:
        row = int(incomplete.argmax())
        _refuse(f"the score or cost of {ids[row]!r} is missing", file, row, names[int(missing[row].argmax())])
    repeated = _repeated(ids, ~incomplete)
    if repeated.any() and not drop_faulty:
        row = int(repeated.argmax())
        _refuse(f"an id must be unique, got {ids[row]!r} again", file, row, "sample_id")
    short = short_names(list(columns))
    data = {f"{kind}|{name}": values[:, 2 * k + i] for k, name in enumerate(short) for i, kind in enumerate(_KINDS)}
    kept = ~incomplete & ~repeated
    if not kept.any():
        raise LogError("the table must hold at least one complete row, got none", file=file)
    table = frame.drop(names).hstack(pl.DataFrame(data)).filter(pl.Series(kept))
    return WideTable(table, tuple(short), int(incomplete.sum()), int(repeated.sum()))


def write(table: WideTable, output: Path) -> None:
    """Write the table as parquet; an existing file is replaced atomically."""
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.unfinished")
    table.frame.write_parquet(unfinished, row_group_size=ROW_GROUP)
    unfinished.replace(output)


def series(name: str, values: Sequence[Any] | FloatArray, file: Path | None = None) -> pl.Series:
    """Return a column of numbers, or of text where any cell is text.

    Raises
    ------
    LogError
        If a cell is neither text, a number nor None, or the column has more text than `MOST_CHARACTERS`.

    Examples
    --------
    >>> series("cost", [1, None, 0.5]).to_list(), series("cost", [1, "n/a"]).to_list()
    ([1.0, None, 0.5], ['1', 'n/a'])
    """
    import polars as pl

    if isinstance(values, np.ndarray):
        return pl.Series(name, values)
    for row, value in enumerate(values):
        if not (value is None or isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 2**63)):
            kind = "a huge number" if isinstance(value, int) else type(value).__name__
            raise LogError(f"a cell must be text or a number, got {kind}", file=file, row=row + 1, column=name)
    if not any(isinstance(value, str) for value in values):
        return pl.Series(name, [None if value is None else float(value) for value in values], dtype=pl.Float64)
    texts = [_text(value) for value in values]
    characters = sum(len(text) for text in texts if text is not None)
    if characters > MOST_CHARACTERS:
        raise LogError(f"at most {MOST_CHARACTERS} characters are read, got {characters}", file=file, column=name)
    try:
        return pl.Series(name, texts, dtype=pl.String)
    except UnicodeEncodeError as error:
        raise LogError(f"text must be valid Unicode: {error.reason}", file=file, column=name) from error


def short_names(models: Sequence[str]) -> list[str]:
    """Return the model names without vendors, if they remain distinct.

    Examples
    --------
    >>> short_names(["mistralai/mistral-large", "gpt-5"]), short_names(["a/m", "b/m"])
    (['mistral-large', 'gpt-5'], ['a/m', 'b/m'])
    """
    short = [name.rsplit("/", 1)[-1] for name in models]
    return short if len(set(short)) == len(short) else list(models)


_KINDS = ("score", "cost")


def _checked(cells: Cells, columns: Mapping[str, tuple[str, str]]) -> tuple[list[str], FloatArray]:
    """Return the ids, and score and cost of every model in adjacent columns, of shape (n_rows, 2 * n_models)."""
    reads: list[Callable[[], Any]] = [partial(cells.texts, "sample_id"), partial(cells.texts, "prompt")]
    for score, cost in columns.values():
        reads += [partial(cells.rewards, score), partial(cells.costs, cost)]
    ids, _, *values = earliest(reads)
    return ids, np.stack(values, axis=1)


def _repeated(ids: Sequence[str], candidates: Mask) -> Mask:
    """Return True for each candidate whose id an earlier candidate has."""
    seen: set[str] = set()
    again = np.zeros(len(ids), dtype=np.bool_)
    for row, (name, counts) in enumerate(zip(ids, candidates, strict=True)):
        if counts:
            again[row] = name in seen
            seen.add(name)
    return again


def _refuse(rule: str, file: Path | None, row: int, column: str) -> None:
    message = f"{rule}: correct the file, or pass --drop-faulty to leave such rows out"
    raise LogError(message, file=file, row=row + 1, column=column)


def _text(value: Any) -> str | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):  # pandas' missing text
        return None
    return value if isinstance(value, str) else repr(value)
