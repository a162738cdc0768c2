"""The runner of the bench: all methods, seeds and budgets that are not in the cache, over several processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wiserouter.evaluation.baselines import module_of, open_methods
from wiserouter.evaluation.baselines.base import FittedMethod, Method, Terms, Training
from wiserouter.evaluation.bench import oracles
from wiserouter.evaluation.bench.budget_grid import Budgets
from wiserouter.evaluation.bench.code_digest import digest_of
from wiserouter.evaluation.bench.metrics import ResultRow, row_of
from wiserouter.evaluation.bench.oracles import BOUNDS
from wiserouter.evaluation.bench.results_cache import ResultsCache, key_of
from wiserouter.evaluation.bench.serve import serve_all
from wiserouter.evaluation.bench.splits import TrainTestSplit, split_table
from wiserouter.evaluation.datasets import LoadedTable
from wiserouter.evaluation.replay import Tick
from wiserouter.parallel.shared import Shared
from wiserouter.parallel.tasks import run_each

if TYPE_CHECKING:
    import polars as pl


class Bench(NamedTuple):
    """The specification of a bench.

    Attributes
    ----------
    table : LoadedTable
        The table.
    budgets : Budgets
        USD per query.
    methods : tuple of str
        Names as `open_methods` takes them.
    seeds : tuple of int
        Each determines a split, its contexts, and the draws of the methods.
    encoder : str, optional
        As `open_encoder` takes it; by default the embeddings of the table, or tfidf if it has none.
    n_contexts : int
        Number of contexts J.
    """

    table: LoadedTable
    budgets: Budgets
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    encoder: str | None = None
    n_contexts: int = 16

    def keys(self) -> dict[str, tuple[str, int, float]]:
        """Return the method, seed and budget of every row by its key."""
        table = self.table.sha256, self.table.table.models
        common = *table, self.encoder, self.n_contexts
        return {
            key_of(*common, digest_of(_module_of(method)), method, seed, rate): (method, seed, rate)
            for seed in self.seeds
            for method in self.methods
            for rate in self.budgets.all
        }


class Task(NamedTuple):
    """The missing budgets of one method on one seed, by key."""

    method: str
    seed: int
    rates: dict[str, float]


def run_bench(bench: Bench, folder: str | Path, *, jobs: int | None = 1, tick: Tick | None = None) -> pl.DataFrame:
    """Run the rows that are not in the cache, and return all rows.

    Parameters
    ----------
    bench : Bench
        Table, budgets, methods and seeds.
    folder : str or Path
        The cache of finished rows.
    jobs : int or None, default 1
        Number of workers, -1 for all; None is that of `joblib.parallel_config`. It changes no figure except times.
    tick : callable, optional
        Called with the number of rows just finished, first with that of the rows already in the cache.

    Returns
    -------
    polars.DataFrame
        One row per method, seed and budget, with its key, `table`, `rate_usd`, the columns of `row_of`, `fit_s` and
        `start_s` (training latency, once and per budget) and `collected_usd` (cost of the training data used).
    """
    open_methods(name for name in bench.methods if name not in BOUNDS)
    keys, store = bench.keys(), ResultsCache(folder)
    tasks = tasks_of(keys, store.done())
    report = tick or _silent
    report(len(keys) - sum(len(task.rates) for task in tasks))
    with closing(_spread(bench, tasks, jobs)) as done:
        for rows in done:
            store.add(rows)
            report(len(rows))
    return store.read(keys)


def tasks_of(keys: dict[str, tuple[str, int, float]], done: set[str]) -> list[Task]:
    """Return the rows still to run, grouped so that a method is fitted once per seed."""
    tasks: dict[tuple[str, int], Task] = {}
    for key, (method, seed, rate) in keys.items():
        if key not in done:
            tasks.setdefault((method, seed), Task(method, seed, {})).rates[key] = rate
    return list(tasks.values())


class BenchWorker:
    """Runs tasks in one process, and keeps the split of each seed."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._splits: dict[int, TrainTestSplit] = {}

    def run(self, task: Task) -> list[ResultRow]:
        """Fit a method on the training half of a seed, and serve the test half under each budget.

        Linear algebra runs on one thread: the bench is parallel over processes, and sums stay the same.
        """
        import sklearn.cluster  # noqa: F401
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            return self._run(task)

    def _run(self, task: Task) -> list[ResultRow]:
        split = self._split_of(task.seed)
        if task.method in BOUNDS:
            return [self._row(key, rate, _bound(task.method, split, rate)) for key, rate in task.rates.items()]
        [method] = open_methods([task.method])
        training = split.training()
        began = process_time()
        fitted = method.fit(training, _rng(task.seed, 1))
        fit_s = process_time() - began
        return [
            self._row(key, rate, _cell(method, fitted, split, training, rate), fit_s)
            for key, rate in task.rates.items()
        ]

    def _row(self, key: str, rate_usd: float, figures: ResultRow, fit_s: float = 0.0) -> ResultRow:
        return {"key": key, "table": self._bench.table.name, "rate_usd": rate_usd, **figures, "fit_s": fit_s}

    def _split_of(self, seed: int) -> TrainTestSplit:
        if seed not in self._splits:
            loaded, _, _, _, encoder, n_contexts = self._bench
            self._splits[seed] = split_table(
                loaded.table, seed, encoder=encoder, n_contexts=n_contexts, embeddings=loaded.embeddings
            )
        return self._splits[seed]


def _module_of(method: str) -> str:
    return oracles.__name__ if method in BOUNDS else module_of(method)


def _bound(name: str, split: TrainTestSplit, rate_usd: float) -> ResultRow:
    terms = Terms(rate_usd * split.test.n, split.test.n)
    return row_of(name, split, terms, BOUNDS[name](split, terms)) | {"start_s": 0.0, "collected_usd": 0.0}


def _cell(
    method: Method, fitted: FittedMethod, split: TrainTestSplit, training: Training, rate_usd: float
) -> ResultRow:
    n = split.test.n
    terms = Terms(rate_usd * n, n)
    asked_usd = training.asked_usd
    began = process_time()
    server = fitted.start(terms, _rng(split.seed, 2))
    start_s = process_time() - began
    trace = serve_all(server, split.test, terms, sees_truth=method.sees_truth)
    collected_usd = training.collected_usd
    training.asked_usd = asked_usd  # calls made for one budget are not billed to the next
    return row_of(method.name, split, terms, trace) | {"start_s": start_s, "collected_usd": collected_usd}


def _spread(bench: Bench, tasks: list[Task], jobs: int | None) -> Generator[list[ResultRow]]:
    """Yield the rows of each task as it is done."""
    for _, rows in run_each(partial(_run, Shared(bench), os.getpid()), tasks, n_jobs=jobs):
        yield rows


def _run(bench: Shared[Bench], caller: int, task: Task) -> list[ResultRow]:
    """Return the rows of a task, by the worker that this process keeps for the bench."""
    if os.getpid() != caller:
        logging.getLogger("wiserouter").setLevel(logging.ERROR)  # it warns of budgets too small to last
    return _worker(bench).run(task)


@lru_cache(maxsize=1)
def _worker(bench: Shared[Bench]) -> BenchWorker:
    return BenchWorker(bench.value)


def _rng(seed: int, stage: int) -> np.random.Generator:
    return np.random.default_rng([seed, stage])


def _silent(rows: int) -> None:
    """Ignore the progress."""
