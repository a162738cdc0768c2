"""The accuracy of the estimates after exploration (paper, Appendix "Exploration Estimation Accuracy")."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wiserouter.evaluation.baselines.router_methods import explored
from wiserouter.evaluation.bench.splits import TrainTestSplit, split_table
from wiserouter.evaluation.datasets import LoadedTable
from wiserouter.evaluation.report.section import ReportSection
from wiserouter.learning.estimates import Estimates
from wiserouter.types import FloatArray

PASSES = (1, 2, 3, 4)
TEXT = """
Means of every context and model at the end of Algorithm 2's exploration, against the true means over the whole table:
mean absolute error and Pearson correlation over the pairs that were tried; costs are shares of the most expensive call
of the table. Mean and standard deviation over seeds (paper, Table "Estimation accuracy", exploration 4x the training
set)."""


def accuracy(
    loaded: LoadedTable, seeds: Iterable[int] = range(5), encoder: str | None = None, n_contexts: int = 16
) -> ReportSection:
    """Return the section on the accuracy of the estimates by length of the exploration."""
    table = loaded.table
    splits = [
        split_table(table, seed, encoder=encoder, n_contexts=n_contexts, embeddings=loaded.embeddings) for seed in seeds
    ]
    head = ("exploration", "tried", "reward MAE", "reward Pearson r", "cost MAE", "cost Pearson r")
    rows = [_row(passes, splits, float(table.cost_usd.max())) for passes in PASSES]
    return ReportSection("accuracy", "Accuracy after exploration", TEXT, head, rows)


def compared(estimates: Estimates, split: TrainTestSplit, max_cost_usd: float) -> FloatArray:
    """Return the share of pairs tried, and MAE and correlation of rewards and of costs."""
    true = Estimates(split.contexts.n_contexts, len(split.models))
    for half in (split.train, split.test):
        true.add_table(half.context_ids, *half.answers)
    tried = (estimates.calls > 0) & (true.calls > 0)
    figures = [float(tried.mean())]
    for learned, known, scale in zip(
        estimates.means(shrink=False), true.means(shrink=False), (1.0, max_cost_usd), strict=True
    ):
        a, b = learned[tried] / scale, known[tried] / scale
        figures += [float(np.abs(a - b).mean()), float(np.corrcoef(a, b)[0, 1])]
    return np.array(figures)


def _row(passes: int, splits: list[TrainTestSplit], max_cost_usd: float) -> list[str]:
    each = [
        compared(explored(split.training(), passes, np.random.default_rng([split.seed, 2])), split, max_cost_usd)
        for split in splits
    ]
    mean, error = np.mean(each, axis=0), np.std(each, axis=0)
    cells = [f"{m:.4g} ± {e:.1g}" for m, e in zip(mean[1:], error[1:], strict=True)]
    return [f"{passes}x", f"{mean[0]:.1%}", *cells]
