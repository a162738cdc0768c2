"""A routing log: past calls, streamed from parquet, csv or jsonl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from wiserouter.errors import InvalidInput, LogError, UnknownModel
from wiserouter.fitting.log import files
from wiserouter.fitting.log.batch import LogBatch, merged, total
from wiserouter.fitting.log.cells import Cells
from wiserouter.fitting.log.columns import LogColumns
from wiserouter.fitting.log.failed_lines import without_failed_lines
from wiserouter.fitting.log.layout import Layout, LayoutName, layout_of
from wiserouter.fitting.log.limits import check_models
from wiserouter.fitting.log.log_files import LogFile, LogPath, open_files, parts_of
from wiserouter.fitting.log.rows import EMBEDDING, Prices, long_batch, wide_batch
from wiserouter.fitting.log.scores import UNIT, Scale
from wiserouter.pricing.arms import split_arm
from wiserouter.pricing.prices import Price
from wiserouter.validation import check_count, check_table

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
    scale : Scale
        Worst and best score.
    prices : mapping of str to Price
        Prices of token counts, by model.
    failed_lines : int
        Number of lines of a batch that failed or expired, which are left out; rows are numbered without them.

    Notes
    -----
    Rows are streamed at every pass and none is kept, so that a log may be larger than memory. Opening reads the schema;
    a long log is read once to find its models, and a jsonl to find its columns, since a key may first appear late.

    Null, NaN and an empty cell of a number are not observed. In a csv `""` is an empty prompt, an empty cell is none.
    A prompt may be a list of messages, of which the question is taken.
    """

    def __init__(
        self,
        frame: pl.LazyFrame,
        layout: Layout,
        models: Sequence[str] | None = None,
        path: Path | None = None,
        *,
        scale: Scale | tuple[float, float] = UNIT,
        prices: Mapping[str, Price] | None = None,
        files_of: Sequence[LogFile] = (),
    ) -> None:
        given = tuple(files_of) or (LogFile(frame, path),)
        self._files, self.failed_lines = without_failed_lines(given, layout)
        self._is_part = self._is_embedded = False
        self.layout = layout
        self.path = path
        self.scale = Scale.of(scale)
        self.prices: Prices = dict(prices or {})
        known = tuple(layout.columns) if layout.name == "wide" else self._read_models()
        self.models = known if models is None else _chosen(models, known)
        self.prices |= _of_arms(known, self.prices)

    @classmethod
    def read(
        cls,
        path: LogPath | Sequence[LogPath],
        *,
        layout: LayoutName | None = None,
        models: Sequence[str] | None = None,
        columns: LogColumns | None = None,
        scale: Scale | tuple[float, float] = UNIT,
        prices: Mapping[str, Price] | None = None,
        joined: Sequence[str | Path] = (),
    ) -> RoutingLog:
        """Open a log; its rows are read and checked on each pass.

        Parameters
        ----------
        path : str, Path, or sequence of them
            A .parquet, .csv, .csv.gz, .jsonl or .ndjson file; a folder of them, in which folders such as `day=3` are
            columns; a pattern such as `calls/*.parquet`; or a URL of these, such as `s3://bucket/calls` (fsspec).
        layout : {"wide", "long"}, optional
            Its layout; derived from the columns by default.
        models : sequence of str, optional
            Keep only these, in this order. By default all: in the file's order, or sorted in a long log.
        columns : LogColumns, optional
            The columns of a long log, where they have other names; by default well-known names are looked for.
        scale : Scale or (worst, best), default (0, 1)
            The scale of the scores, such as (1, 5) or (-1, 1).
        prices : mapping of str to Price, optional
            By model; they turn token counts into costs where the log has none.
        joined : sequence of str or Path, optional
            Files with more columns of the same calls, joined in memory by an id that both have: the requests of an
            OpenAI batch to its answers, or scores.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        LogError
            If the file cannot be read or its columns fit no layout.
        UnknownModel
            If a model of `models` is not in the log.
        """
        found = open_files(path)
        if joined:
            found = [one.joined([Path(other) for other in joined], alone=len(found) == 1) for one in found]
        first = found[0]
        fitting = layout_of(files.column_names(first.frame, first.path), layout, first.path, columns)
        return cls(first.frame, fitting, models, first.path, scale=scale, prices=prices, files_of=found)

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

        for name, given in (("prompts", prompts), ("models", models)):
            if isinstance(given, str):
                raise InvalidInput(f"{name} must be a list of texts, got the text {given!r}", value=given)
        u, c = check_table("reward", reward), check_table("cost_usd", cost_usd)
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
        cls,
        frame: pl.DataFrame | pl.LazyFrame,
        *,
        layout: LayoutName | None = None,
        models: Sequence[str] | None = None,
        columns: LogColumns | None = None,
        scale: Scale | tuple[float, float] = UNIT,
        prices: Mapping[str, Price] | None = None,
    ) -> RoutingLog:
        """Return a log of a polars frame, with the columns and the errors of `read`."""
        lazy = frame.lazy()
        fitting = layout_of(files.column_names(lazy, None), layout, None, columns)
        return cls(lazy, fitting, models, scale=scale, prices=prices)

    def priced(self, prices: Mapping[str, Price]) -> RoutingLog:
        """Return the same log with prices of more models."""
        if not prices.keys() - self.prices.keys():
            return self
        more = object.__new__(RoutingLog)
        more.__dict__.update(self.__dict__, prices={**prices, **self.prices})
        return more

    def embedded(self) -> RoutingLog:
        """Return the same log with batches that hold its column `embedding`; raise `LogError` if it has none."""
        if EMBEDDING not in self.columns():
            raise LogError(
                f"encoder='column' needs a column {EMBEDDING!r} of lists of numbers, got none", file=self.path
            )
        more = object.__new__(RoutingLog)
        more.__dict__.update(self.__dict__, _is_embedded=True)
        return more

    @property
    def n_models(self) -> int:
        """Number of models."""
        return len(self.models)

    @property
    def name(self) -> str:
        """The file's name, for titles."""
        return self.path.name if self.path is not None else "log"

    def columns(self) -> list[str]:
        """Return the names of all columns."""
        return files.column_names(self._files[0].frame, self.path)

    def paths(self) -> list[Path]:
        """Return the files; none for a log in memory."""
        return [one.path for one in self._files if one.path is not None]

    def parts(self) -> list[RoutingLog]:
        """Return the log in parts for tasks, which depend on its files alone; each can be sent to another process."""
        return [self._part(one) for one in parts_of(self._files, numbered="query_id" not in self.layout.fields)]

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
        self._check_prices()
        columns = [self.layout.columns[name] for name in self.models] if self.layout.name == "wide" else []
        for cells in self.cells(rows):
            if self.layout.name == "wide":
                batch = wide_batch(cells, self.layout, columns)
            else:
                batch = long_batch(cells, self.layout, self.models, self.prices)
            if batch.prompts:  # a long log's batch is empty where `models` keeps none of its rows
                yield batch

    def cells(self, rows: int = BATCH_ROWS, fields: Sequence[str] | None = None) -> Iterator[Cells]:
        """Yield the rows unchecked, with the columns of the layout's fields and, in a wide log, of the models.

        Raises
        ------
        LogError
            If there is no row, or the file is damaged.
        """
        check_count("rows", rows, least=1)
        before = self._files[0].before
        for file in self._files:
            done = 0
            for frame in files.batches(file.frame, self._selected(file, fields), rows, file.read_from):
                yield Cells(frame, file.first + done + 1, file.path, self.scale, self.layout.shown, before)
                done += frame.height
            before += done
        if before == self._files[0].before and not self._is_part:
            raise LogError("the log must hold at least one row, got none", file=self.path)

    def table(self) -> LogBatch:
        """Return the whole log in memory, one row per query, numbered from 0 by first appearance.

        A query keeps the prompt of its first row; several calls of one model on it are averaged.
        """
        return merged(list(self.batches()))

    def totals(self) -> LogBatch:
        """Return the whole log in memory like `table`, with the sum of the costs of each query and its mean score.

        It reads a log whose rows are the calls of runs: their id is given as that of the query.
        """
        return total(list(self.batches()), all_models=self.layout.name == "wide")

    def _selected(self, file: LogFile, fields: Sequence[str] | None) -> list[pl.Expr]:
        """Return the columns of a file that the log is read from."""
        schema = files.schema_of(file.frame, file.path)
        chosen = self.layout.selection(schema, self.layout.fields if fields is None else fields)
        if self.layout.name == "wide":
            chosen += files.columns(name for one in self.models for name in self.layout.columns[one])
        return chosen + (files.columns([EMBEDDING]) if self._is_embedded and fields is None else [])

    def _part(self, file: LogFile) -> RoutingLog:
        """Return the log of some of the rows."""
        part = object.__new__(RoutingLog)
        part.__dict__.update(self.__dict__, _files=(file,), _is_part=True)
        return part

    def _read_models(self) -> tuple[str, ...]:
        """Return the models of a long log, sorted, after one pass over their column."""
        found: set[str] = set()
        for cells in self.cells(fields=["model"]):
            found.update(cells.names("model"))
            check_models(self.path, len(found), row=cells.first_row - 1 + cells.frame.height)
        return tuple(sorted(found))

    def _check_prices(self) -> None:
        """Refuse a log without costs if tokens cannot be priced either."""
        has_costs = self.layout.name == "wide" or "cost_usd" in self.layout.fields
        missing = [] if has_costs else [name for name in self.models if name not in self.prices]
        if missing:
            raise LogError(
                f"the log counts tokens and has no cost, which takes a price of every model, got none of "
                f"{', '.join(missing)}: give prices (Model(price=...), --prices), or a column cost_usd",
                file=self.path,
            )


def _of_arms(models: Sequence[str], prices: Prices) -> dict[str, Price]:
    """Return the prices of arms that have none of their own: those of their model."""
    family = {name: split_arm(name).model for name in models if name not in prices}
    return {name: prices[model] for name, model in family.items() if model in prices}


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
