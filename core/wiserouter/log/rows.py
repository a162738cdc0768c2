"""From text and number columns to arrays, with every bad cell named by row and column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wiserouter.errors import LogError
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    import polars as pl


def texts(frame: pl.DataFrame, column: str, first_row: int, file: Path | None) -> list[str]:
    """Return a column of text; a missing one is an error, an empty one is not."""
    import polars as pl  # noqa: PLC0415

    values = frame[column].cast(pl.String)
    if values.null_count():
        row = first_row + int(values.is_null().arg_max() or 0)
        raise LogError("text is missing: fill it in or drop the row", file=file, row=row, column=column)
    return values.to_list()


def numbers(frame: pl.DataFrame, column: str, first_row: int, file: Path | None, *, at_most: float) -> FloatArray:
    """Return a column of finite numbers in [0, at_most]; null, NaN and empty text are NaN: not observed.

    Raises
    ------
    LogError
        If a cell is text, infinite, negative or too large.
    """
    import polars as pl  # noqa: PLC0415

    cells = frame[column]
    if cells.dtype == pl.String:
        cells = cells.str.strip_chars().replace("", None)
    values = cells.cast(pl.Float64, strict=False)
    unread = values.is_null() & cells.is_not_null()
    array = values.fill_null(float("nan")).to_numpy().astype(np.float64)
    with np.errstate(invalid="ignore"):
        bad = unread.to_numpy() | (array < 0) | (array > at_most) | np.isinf(array)
    if bad.any():
        raise _bad_cell(cells, int(bad.argmax()), column, first_row, file, at_most)
    return array


def _bad_cell(cells: pl.Series, where: int, column: str, first_row: int, file: Path | None, at_most: float) -> LogError:
    value = cells[where]
    rule = "a reward must lie in [0, 1]" if at_most == 1.0 else "a cost in USD must be a finite number of at least 0"
    return LogError(f"{rule}, got {value!r}", file=file, row=first_row + where, column=column, value=value)
