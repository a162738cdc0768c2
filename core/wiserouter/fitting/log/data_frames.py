"""Logs given as they are: a `RoutingLog`, a file, or a data frame of polars or pandas."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.fitting.log.reader import RoutingLog
from wiserouter.pricing.prices import Price

DataFrame = Any
"""A data frame of polars or pandas, of which neither needs to be installed for the types."""


def opened_log(log: RoutingLog | DataFrame | str | Path, prices: Mapping[str, Price] | None = None) -> RoutingLog:
    """Return the log that a caller gave.

    Parameters
    ----------
    log : RoutingLog, str, Path, sequence of paths, or data frame of polars or pandas
        A frame has the columns of a file that `RoutingLog.read` reads.
    prices : mapping of str to Price, optional
        By model, for logs that count tokens.

    Raises
    ------
    InvalidInput
        If it is none of these.
    LogError
        If it cannot be read.

    Examples
    --------
    >>> import polars as pl
    >>> opened_log(pl.DataFrame({"prompt": ["hi"], "score|small": [1.0], "cost|small": [0.1]})).models
    ('small',)
    """
    if isinstance(log, RoutingLog):
        return log.priced(prices or {})
    if isinstance(log, str | Path) or _are_paths(log):
        return RoutingLog.read(log, prices=prices)
    package = type(log).__module__.partition(".")[0]
    if package == "polars" and hasattr(log, "lazy"):
        return RoutingLog.from_frame(log, prices=prices)
    if package == "pandas" and hasattr(log, "columns"):
        return _of_pandas(log, prices)
    raise InvalidInput(
        f"log must be a RoutingLog, the path of a file, or a data frame of polars or pandas, got {type(log).__name__}",
        value=log,
    )


def _are_paths(log: object) -> bool:
    return isinstance(log, list | tuple) and bool(log) and all(isinstance(one, str | Path) for one in log)


def _of_pandas(frame: DataFrame, prices: Mapping[str, Price] | None) -> RoutingLog:
    """Return the log of a pandas frame, copied column by column, since polars' own conversion needs pyarrow."""
    import polars as pl

    names = [str(name) for name in frame.columns]
    columns = [frame.iloc[:, k].array for k in range(len(names))]
    series = {name: _series(_cells(column)) for name, column in zip(names, columns, strict=True)}
    return RoutingLog.from_frame(pl.DataFrame(series), prices=prices)


def _cells(column: Any) -> list[Any]:
    """Return the cells of a column of pandas, None where it has NaN, NaT or `pandas.NA`."""
    pairs = zip(column.tolist(), column.isna().tolist(), strict=True)
    return [None if empty else cell for cell, empty in pairs]


def _series(cells: list[Any]) -> Any:
    """Return the cells of a column: lists and objects, such as messages, as they are; several types as texts."""
    import polars as pl

    if any(isinstance(value, list | dict) for value in cells):
        return pl.Series(cells, dtype=pl.Object)
    try:
        return pl.Series(cells)
    except (TypeError, ValueError, OverflowError, AttributeError):  # of types that polars does not mix
        return pl.Series([None if cell is None else str(cell) for cell in cells])
