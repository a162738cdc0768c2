"""A suite: the same methods on many tables, so that a constant or a default is judged where it was not chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wiserouter.errors import LogError, UnknownModel
from wiserouter.evaluation.baselines import METHODS, Method
from wiserouter.evaluation.bench.budget_grid import budgets_of_table
from wiserouter.evaluation.bench.oracles import BOUNDS
from wiserouter.evaluation.bench.runner import Bench, run_bench
from wiserouter.evaluation.datasets import LoadedTable, open_table
from wiserouter.fitting.log import RoutingLog

if TYPE_CHECKING:
    import polars as pl

    from wiserouter.evaluation.replay import Tick

SUFFIXES = (".parquet", ".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
"""The files of a folder that are tables."""


class BenchSettings(NamedTuple):
    """The settings that all benches of a suite have in common; `Bench` and `budgets_of` describe them."""

    seeds: tuple[int, ...]
    n_budgets: int = 6
    n_log_budgets: int = 0
    encoder: str | None = None
    n_contexts: int = 16


def tables_in(folder: Path) -> list[Path]:
    """Return the tables of a folder by name.

    Raises
    ------
    LogError
        If it is not a folder, or holds no table, or two of one name.
    """
    found = sorted(path for path in folder.glob("*") if path.is_file() and path.name.endswith(SUFFIXES))
    if not found:
        raise LogError(f"a suite must be a folder with tables ({', '.join(SUFFIXES)}), got none", file=folder)
    names = [path.name.split(".")[0] for path in found]
    for name in names:
        if names.count(name) > 1:
            raise LogError(f"the tables of a suite must have different names, got {name!r} twice", file=folder)
    return found


def open_suite(folder: Path, *, leave_out: Iterable[str] | None = None) -> list[LoadedTable]:
    """Return the tables of a folder; `leave_out` as for `open_table`, where a table has such models.

    Raises
    ------
    UnknownModel
        If a model to leave out is in none of them.
    """
    paths = tables_in(folder)
    if leave_out is None:
        return [open_table(path, leave_out=None) for path in paths]
    models, left_out = {path: RoutingLog.read(path).models for path in paths}, tuple(leave_out)
    known = dict.fromkeys(name for names in models.values() for name in names)
    for name in left_out:
        if name not in known:
            raise UnknownModel(name, tuple(known))
    return [open_table(path, leave_out=[name for name in left_out if name in models[path]]) for path in paths]


def default_methods() -> list[str]:
    """Return the methods of a suite: all but those that practise with several calls per training query."""
    return [name for name, make in METHODS.items() if make().learns_from != "several answers"]


def benches(tables: Iterable[LoadedTable], methods: Iterable[Method], settings: BenchSettings) -> list[Bench]:
    """Return the bench of every table."""
    seeds, n_budgets, n_log_budgets, encoder, n_contexts = settings
    order = (*(method.name for method in methods), *BOUNDS)
    return [
        Bench(table, budgets_of_table(table, n_budgets, n_log_budgets), order, seeds, encoder, n_contexts)
        for table in tables
    ]


def run_suite(
    work: Iterable[Bench], folder: Path, *, jobs: int | None = 1, tick: Tick | None = None
) -> Iterator[tuple[Bench, pl.DataFrame]]:
    """Run the benches one after the other, and yield each with its rows; finished rows are taken from `folder`."""
    for bench in work:
        yield bench, run_bench(bench, folder, jobs=jobs, tick=tick)
