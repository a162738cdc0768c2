"""`RoutingLog`: past calls, streamed from parquet, csv or jsonl."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import InvalidInput, LogError, UnknownModel
from wiserouter.log import rows, source
from wiserouter.log.layout import Layout, LayoutName, layout_of
from wiserouter.types import FloatArray, IntArray, check_count

if TYPE_CHECKING:
    import polars as pl

BATCH_ROWS = 8_192


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Some rows of a log.

    Attributes
    ----------
    prompts : list of str
        One per row.
    query : ndarray of int of shape (n,)
        Numbers the queries by first appearance; rows of one query share a number.
    reward, cost_usd : ndarray of shape (n, n_models)
        Scores in [0, 1] and costs in USD; NaN where not observed.
    """

    prompts: list[str]
    query: IntArray
    reward: FloatArray
    cost_usd: FloatArray


class RoutingLog:
    """A table of past calls, opened by `read` or `from_arrays`.

    Attributes
    ----------
    models : tuple of str
        The models, in the order of the columns of every batch.
    layout : Layout
        Which columns hold what.
    path : Path or None
        The file.

    Notes
    -----
    Rows are streamed at every pass, so that a log may be larger than memory. Where a long log ties calls by `query_id`,
    the ids are kept: about 120 bytes per distinct query.
    """

    def __init__(
        self, frame: pl.LazyFrame, layout: Layout, models: Sequence[str] | None = None, path: Path | None = None
    ) -> None:
        self._frame = frame
        self.layout = layout
        self.path = path
        known = tuple(layout.columns) if layout.name == "wide" else self._models_met()
        self.models = known if models is None else _chosen(models, known)

    @classmethod
    def read(
        cls, path: str | Path, *, layout: LayoutName | None = None, models: Sequence[str] | None = None
    ) -> RoutingLog:
        """Open a log; its rows are read, and checked, when they are asked for.

        Parameters
        ----------
        path : str or Path
            A .parquet, .csv, .csv.gz, .jsonl or .ndjson file.
        layout : {"wide", "long"}, optional
            How to read it; told from the columns by default.
        models : sequence of str, optional
            Keep only these, in this order. By default all: in the file's order, or sorted in a long log.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        LogError
            If the file cannot be read or its columns fit no layout.
        UnknownModel
            If a model of `models` is not in the log.
        """
        file = Path(path)
        frame = source.scan(file)
        return cls(frame, layout_of(source.column_names(frame, file), layout, file), models, file)

    @classmethod
    def from_arrays(
        cls, prompts: Sequence[str], reward: ArrayLike, cost_usd: ArrayLike, models: Sequence[str]
    ) -> RoutingLog:
        """Return a log of arrays in memory.

        Parameters
        ----------
        prompts : sequence of str
            One per query.
        reward, cost_usd : array-like of shape (n_queries, n_models)
            Scores and costs; NaN where not observed.
        models : sequence of str
            Names of the columns.

        Examples
        --------
        >>> log = RoutingLog.from_arrays(["hi"], [[0.5, 1.0]], [[0.01, 0.03]], ["small", "large"])
        >>> log.models
        ('small', 'large')
        """
        import polars as pl  # noqa: PLC0415

        u, c = np.asarray(reward, dtype=np.float64), np.asarray(cost_usd, dtype=np.float64)
        shape = (len(prompts), len(models))
        if u.shape != shape or c.shape != shape:
            raise InvalidInput(f"reward and cost_usd must have shape {shape}, got {u.shape} and {c.shape}")
        _check_unique(models)
        data: dict[str, Any] = {"prompt": list(prompts)}
        data |= {f"score|{name}": u[:, k] for k, name in enumerate(models)}
        data |= {f"cost|{name}": c[:, k] for k, name in enumerate(models)}
        return cls(pl.LazyFrame(data), Layout("wide", {name: (f"score|{name}", f"cost|{name}") for name in models}))

    @property
    def n_models(self) -> int:
        """Number of models."""
        return len(self.models)

    @property
    def name(self) -> str:
        """The file's name, for titles."""
        return self.path.name if self.path is not None else "log"

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[LogBatch]:
        """Yield the rows in the order of the file.

        Parameters
        ----------
        rows : int, default 8192
            Rows per batch.

        Raises
        ------
        LogError
            If there is no row, or a cell is missing or out of range; file, row and column are named before the batch
            is handed out.
        """
        check_count("rows", rows, least=1)
        done = 0
        ids: dict[str, int] = {}
        for frame in source.batches(self._frame, (*self.layout.texts, *self._numbers()), rows, self.path):
            batch = self._wide(frame, done) if self.layout.name == "wide" else self._long(frame, done, ids)
            done += frame.height
            if batch.prompts:  # a long log's batch is empty where `models` keeps none of its rows
                yield batch
        if not done:
            raise LogError("the log must hold at least one row, got none", file=self.path)

    def table(self) -> LogBatch:
        """Return the whole log in memory, one row per query; several calls of one model on a query are averaged."""
        parts = list(self.batches())
        prompts = [prompt for part in parts for prompt in part.prompts]
        query = np.concatenate([part.query for part in parts])
        reward, cost = (np.concatenate([getattr(part, name) for part in parts]) for name in ("reward", "cost_usd"))
        _, first, row = np.unique(query, return_index=True, return_inverse=True)
        if len(first) == len(query):
            return LogBatch(prompts, query, reward, cost)
        merged = (_mean_by(row, values, len(first)) for values in (reward, cost))
        return LogBatch([prompts[i] for i in first], np.arange(len(first)), *merged)

    def _numbers(self) -> tuple[str, ...]:
        if self.layout.name == "long":
            return self.layout.numbers
        return tuple(column for name in self.models for column in self.layout.columns[name])

    def _wide(self, frame: pl.DataFrame, done: int) -> LogBatch:
        columns = [self.layout.columns[name] for name in self.models]
        reward = [rows.numbers(frame, score, done + 1, self.path, at_most=1.0) for score, _ in columns]
        cost = [rows.numbers(frame, cost, done + 1, self.path, at_most=np.inf) for _, cost in columns]
        return LogBatch(
            prompts=rows.texts(frame, "prompt", done + 1, self.path),
            query=np.arange(done, done + frame.height),
            reward=np.stack(reward, axis=1),
            cost_usd=np.stack(cost, axis=1),
        )

    def _long(self, frame: pl.DataFrame, done: int, ids: dict[str, int]) -> LogBatch:
        prompts = rows.texts(frame, "prompt", done + 1, self.path)
        index = {name: k for k, name in enumerate(self.models)}
        column = np.array([index.get(name, -1) for name in rows.texts(frame, "model", done + 1, self.path)])
        kept = np.flatnonzero(column >= 0)
        tables = np.full((2, frame.height, self.n_models), np.nan)
        for table, name, most in zip(tables, ("reward", "cost_usd"), (1.0, np.inf), strict=True):
            table[kept, column[kept]] = rows.numbers(frame, name, done + 1, self.path, at_most=most)[kept]
        query = self._queries(frame, done, ids)
        return LogBatch([prompts[i] for i in kept], query[kept], tables[0, kept], tables[1, kept])

    def _queries(self, frame: pl.DataFrame, done: int, ids: dict[str, int]) -> IntArray:
        if not self.layout.query_id:
            return np.arange(done, done + frame.height)
        names = rows.texts(frame, "query_id", done + 1, self.path)
        return np.array([ids.setdefault(name, len(ids)) for name in names], dtype=np.int64)

    def _models_met(self) -> tuple[str, ...]:
        """Return the models of a long log, sorted, after one pass over their column."""
        met: set[str] = set()
        done = 0
        for frame in source.batches(self._frame, ["model"], BATCH_ROWS, self.path):
            met.update(rows.texts(frame, "model", done + 1, self.path))
            done += frame.height
        if not done:
            raise LogError("the log must hold at least one row, got none", file=self.path)
        return tuple(sorted(met))


def _chosen(models: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    for name in models:
        if name not in known:
            raise UnknownModel(name, known)
    _check_unique(models)
    if not models:
        raise InvalidInput("models must name at least one model, got none")
    return tuple(models)


def _check_unique(models: Sequence[str]) -> None:
    for name in models:
        if list(models).count(name) > 1:
            raise InvalidInput(f"models must be unique, got {name!r} twice", value=name)


def _mean_by(row: IntArray, values: FloatArray, n_rows: int) -> FloatArray:
    """Return the mean of the observed values that go to each row, NaN where there is none."""
    seen = ~np.isnan(values)
    total, count = np.zeros((n_rows, values.shape[1])), np.zeros((n_rows, values.shape[1]))
    np.add.at(total, row, np.where(seen, values, 0.0))
    np.add.at(count, row, seen)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / count)
