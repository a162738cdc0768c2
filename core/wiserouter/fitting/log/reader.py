"""A routing log: past calls, streamed from parquet, csv or jsonl."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import InvalidInput, LogError, UnknownModel
from wiserouter.fitting.log import files
from wiserouter.fitting.log.batch import LogBatch, merged
from wiserouter.fitting.log.cells import Cells, earliest
from wiserouter.fitting.log.layout import Layout, LayoutName, layout_of
from wiserouter.fitting.log.limits import check_models
from wiserouter.fitting.log.query_keys import query_keys
from wiserouter.validation import check_count

if TYPE_CHECKING:
    import polars as pl

BATCH_ROWS = 8_192


class RoutingLog:
    """A table of past calls, opened by `read` or `from_arrays`.

    Attributes
    ----------
    models : tuple of str
        The models, in the order of the columns of every batch.
    layout : Layout
        The columns of scores and costs.
    path : Path or None
        The file.

    Notes
    -----
    Rows are streamed at every pass and none is kept, so that a log may be larger than memory. Opening reads the schema;
    a long log is read once to find its models, and a jsonl to find its columns, since a key may first appear late.

    Null, NaN and an empty cell of a number are not observed. In a csv `""` is an empty prompt, an empty cell is none.
    """

    def __init__(
        self, frame: pl.LazyFrame, layout: Layout, models: Sequence[str] | None = None, path: Path | None = None
    ) -> None:
        self._frame = frame
        self.layout = layout
        self.path = path
        known = tuple(layout.columns) if layout.name == "wide" else self._read_models()
        self.models = known if models is None else _chosen(models, known)

    @classmethod
    def read(
        cls, path: str | Path, *, layout: LayoutName | None = None, models: Sequence[str] | None = None
    ) -> RoutingLog:
        """Open a log; its rows are read and checked on each pass.

        Parameters
        ----------
        path : str or Path
            A .parquet, .csv, .csv.gz, .jsonl or .ndjson file.
        layout : {"wide", "long"}, optional
            Its layout; derived from the columns by default.
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
        frame = files.scan(file)
        return cls(frame, layout_of(files.column_names(frame, file), layout, file), models, file)

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
        import polars as pl

        u, c = np.asarray(reward, dtype=np.float64), np.asarray(cost_usd, dtype=np.float64)
        shape = (len(prompts), len(models))
        if u.shape != shape or c.shape != shape:
            raise InvalidInput(f"reward and cost_usd must have shape {shape}, got {u.shape} and {c.shape}")
        _check_unique(models)
        data: dict[str, Any] = {"prompt": list(prompts)}
        data |= {f"score|{name}": u[:, k] for k, name in enumerate(models)}
        data |= {f"cost|{name}": c[:, k] for k, name in enumerate(models)}
        return cls(pl.LazyFrame(data), Layout("wide", {name: (f"score|{name}", f"cost|{name}") for name in models}))

    @classmethod
    def from_frame(
        cls, frame: pl.DataFrame, *, layout: LayoutName | None = None, models: Sequence[str] | None = None
    ) -> RoutingLog:
        """Return a log of a polars frame, with the columns and the errors of `read`."""
        return cls(frame.lazy(), layout_of(frame.columns, layout, None), models)

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
            If there is no row, or a cell is missing or out of range; the error names file, row and column, and no row
            of that batch is returned.
        """
        check_count("rows", rows, least=1)
        done = 0
        for frame in files.batches(self._frame, (*self.layout.texts, *self._numbers()), rows, self.path):
            cells = Cells(frame, done + 1, self.path)
            batch = self._wide(cells) if self.layout.name == "wide" else self._long(cells)
            done += frame.height
            if batch.prompts:  # a long log's batch is empty where `models` keeps none of its rows
                yield batch
        if not done:
            raise LogError("the log must hold at least one row, got none", file=self.path)

    def table(self) -> LogBatch:
        """Return the whole log in memory, one row per query, numbered from 0 by first appearance.

        A query keeps the prompt of its first row; several calls of one model on it are averaged.
        """
        return merged(list(self.batches()))

    def _numbers(self) -> tuple[str, ...]:
        if self.layout.name == "long":
            return self.layout.numbers
        return tuple(column for name in self.models for column in self.layout.columns[name])

    def _wide(self, cells: Cells) -> LogBatch:
        columns = [self.layout.columns[name] for name in self.models]
        reads: list[Callable[[], Any]] = [partial(cells.texts, "prompt")]
        reads += [partial(cells.rewards, score) for score, _ in columns]
        reads += [partial(cells.costs, cost) for _, cost in columns]
        prompts, *tables = earliest(reads)
        reward, cost_usd = np.split(np.stack(tables, axis=1), 2, axis=1)
        return LogBatch(prompts, cells.first_row - 1 + np.arange(len(prompts)), reward, cost_usd)

    def _long(self, cells: Cells) -> LogBatch:
        reads: list[Callable[[], Any]] = [partial(cells.texts, column) for column in self.layout.texts]
        reads += [partial(cells.rewards, "reward"), partial(cells.costs, "cost_usd")]
        prompts, models, *names, reward, cost_usd = earliest(reads)
        index = {name: k for k, name in enumerate(self.models)}
        column = np.array([index.get(name, -1) for name in models])
        kept = np.flatnonzero(column >= 0)
        tables = np.full((2, len(prompts), self.n_models), np.nan)
        for table, values in zip(tables, (reward, cost_usd), strict=True):
            table[kept, column[kept]] = values[kept]
        query = cells.first_row - 1 + np.arange(len(prompts))
        if names:
            query = query_keys(names[0])
        ids_kept = [names[0][i] for i in kept] if names else None
        return LogBatch([prompts[i] for i in kept], query[kept], tables[0, kept], tables[1, kept], ids_kept)

    def _read_models(self) -> tuple[str, ...]:
        """Return the models of a long log, sorted, after one pass over their column."""
        found: set[str] = set()
        done = 0
        for frame in files.batches(self._frame, ["model"], BATCH_ROWS, self.path):
            found.update(Cells(frame, done + 1, self.path).texts("model"))
            done += frame.height
            check_models(self.path, len(found), row=done)
        if not done:
            raise LogError("the log must hold at least one row, got none", file=self.path)
        return tuple(sorted(found))


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
