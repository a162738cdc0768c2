"""The variance of reward and cost within contexts (paper, Appendix "Intra-Cluster Variance")."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wiserouter.evaluation.bench.splits import embedder
from wiserouter.evaluation.datasets import LoadedTable
from wiserouter.evaluation.report.section import ReportSection
from wiserouter.evaluation.table import random_halves
from wiserouter.prompts.contexts import Contexts
from wiserouter.types import FloatArray, IntArray

COUNTS = (1, 8, 16, 32)
TEXT = """
Variance of rewards, and of costs as shares of the most expensive call of the table, among the queries of one context
and one model: mean over queries and models, ± the standard deviation over seeds. J contexts are fitted on the training
half; J = 1 is the variance without contexts (paper, Table "Average intra-cluster variance")."""


def variance(loaded: LoadedTable, seeds: Iterable[int] = range(5), encoder: str | None = None) -> ReportSection:
    """Return the section on the variance within contexts, for several numbers of contexts."""
    counts = [count for count in COUNTS if count <= len(loaded.table.prompts) // 2]
    found = np.array([_of_seed(loaded, seed, encoder, counts) for seed in seeds])  # seed, count, reward and cost
    rows = [_row(count, found[:, i]) for i, count in enumerate(counts)]
    return ReportSection("variance", "Variance within contexts", TEXT, ("J", "reward", "normalised cost"), rows)


def within(values: FloatArray, context_ids: IntArray) -> float:
    """Return the mean variance of the columns of (n_queries, n_columns) among the rows of one context.

    Examples
    --------
    >>> within(np.array([[0.0], [1.0], [5.0], [5.0]]), np.array([0, 0, 1, 1]))
    0.125
    """
    spread = np.empty_like(values)
    for context in np.unique(context_ids):
        inside = context_ids == context
        spread[inside] = values[inside].var(axis=0)
    return float(spread.mean())


def _of_seed(loaded: LoadedTable, seed: int, encoder: str | None, counts: list[int]) -> list[tuple[float, float]]:
    """Return the variance of rewards and of costs, for each number of contexts."""
    table = loaded.table
    train, _ = random_halves(len(table.prompts), seed)
    encode = embedder(table.prompts, loaded.embeddings if encoder is None else None, train, encoder)
    rows, cost = encode(np.arange(len(table.prompts))), table.cost_usd / table.cost_usd.max()
    fitted = [Contexts.fit(rows[train], count, seed=seed).assign_many(rows) for count in counts]
    return [(within(table.reward, context_ids), within(cost, context_ids)) for context_ids in fitted]


def _row(count: int, found: FloatArray) -> list[str]:
    mean, error = found.mean(axis=0), found.std(axis=0)
    return [str(count), f"{mean[0]:.4f} ± {error[0]:.4f}", f"{mean[1]:.3g} ± {error[1]:.1g}"]
