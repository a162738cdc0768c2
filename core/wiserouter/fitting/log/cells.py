"""Checked cells: from text and number columns to arrays; an error names row and column of the bad cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from wiserouter.errors import LogError
from wiserouter.fitting.log.limits import MAX_ROW_BYTES
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

_REWARD_RULE = "a reward must lie in [0, 1]"
_COST_RULE = "a cost in USD must be a finite number of at least 0"


def earliest(reads: Iterable[Callable[[], T]]) -> list[T]:
    """Return the results of the reads; if some fail, raise the error of the first bad row, for any batch size."""
    done: list[T] = []
    errors: list[LogError] = []
    for read in reads:
        try:
            done.append(read())
        except LogError as error:
            errors.append(error)
    if errors:
        raise min(errors, key=lambda error: error.row or 0)
    return done


@dataclass(frozen=True, slots=True)
class Cells:
    """A frame of a file, and its first row in the file.

    Attributes
    ----------
    frame : polars.DataFrame
        Some rows.
    first_row : int
        The number of its first row, from 1.
    file : Path or None
        Named in errors.
    """

    frame: pl.DataFrame
    first_row: int
    file: Path | None

    def texts(self, column: str) -> list[str]:
        """Return a column of text; a missing one is an error, an empty one is not."""
        import polars as pl

        cells = self.frame[column]
        if cells.dtype.is_nested() or cells.dtype in (pl.Binary, pl.Object):
            raise self._error(f"text is wanted, got {cells.dtype}: convert the column", column)
        values = cells.cast(pl.String)
        if values.null_count():
            row = int(values.is_null().arg_max() or 0)
            raise self._error("text is missing: fill it in or drop the row", column, row)
        too_long = values.str.len_bytes() > MAX_ROW_BYTES
        if too_long.any():
            raise self._error(
                f"a text must have at most {MAX_ROW_BYTES:,} bytes: shorten it", column, int(too_long.arg_max() or 0)
            )
        return values.to_list()

    def rewards(self, column: str) -> FloatArray:
        """Return a column of numbers in [0, 1], or booleans; null, NaN and empty text are NaN: not observed."""
        import polars as pl

        cells = self.frame[column]
        if cells.dtype == pl.Boolean:
            cells = cells.cast(pl.Float64)
        if cells.dtype == pl.String:
            cells = cells.replace({"true": "1", "false": "0"})
        return self._numbers(cells, column, 1.0, _REWARD_RULE)

    def costs(self, column: str) -> FloatArray:
        """Return a column of finite amounts of at least 0; null, NaN and empty text are NaN: not observed."""
        return self._numbers(self.frame[column], column, np.inf, _COST_RULE)

    def _numbers(self, cells: pl.Series, column: str, most: float, rule: str) -> FloatArray:
        """Return the cells as floats, or raise `LogError` at the first that is text, infinite or out of [0, most]."""
        import polars as pl

        if cells.dtype == pl.String:
            cells = cells.str.strip_chars().replace("", None)
        elif not (cells.dtype.is_numeric() or cells.dtype == pl.Null):
            raise self._error(f"{rule}, got a column of {cells.dtype}: convert it", column)
        values = cells.cast(pl.Float64, strict=False)
        array = values.fill_null(float("nan")).to_numpy().astype(np.float64)
        unread = (values.is_null() & cells.is_not_null()).to_numpy()
        bad = unread | (array < 0) | (array > most) | np.isinf(array)
        if bad.any():
            row = int(bad.argmax())
            raise self._error(f"{rule}, got {cells[row]!r}: correct it, or leave it empty", column, row, cells[row])
        return array

    def _error(self, message: str, column: str, row: int | None = None, value: object = None) -> LogError:
        number = None if row is None else self.first_row + row
        return LogError(message, file=self.file, row=number, column=column, value=value)
