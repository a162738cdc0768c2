"""Bootstrap intervals over seeds and queries.

Each replicate draws seeds with replacement, and for each of them the queries of its test half with replacement. All
methods and budgets share the draws, so that differences between them are paired.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wiserouter.types import FloatArray

REPLICATES = 1_000
LEVEL = 0.95


def replicate_means(by_seed: Sequence[FloatArray], rng: np.random.Generator) -> FloatArray:
    """Return the mean of every replicate, of shape (REPLICATES, n_columns).

    Parameters
    ----------
    by_seed : sequence of ndarray of shape (n_queries, n_columns)
        One table per seed, all with the same columns: one figure per query.
    rng : numpy.random.Generator
        Draws the replicates.

    Examples
    --------
    >>> means = replicate_means([np.array([[0.0], [1.0]] * 50)] * 5, np.random.default_rng(0))
    >>> means.shape, round(float(means.mean()), 2)
    ((1000, 1), 0.5)
    """
    drawn = np.stack([_resampled(table, rng) for table in by_seed])  # seed, replicate, column
    seeds = rng.integers(len(by_seed), size=(REPLICATES, len(by_seed)))
    rows = (np.arange(REPLICATES)[:, np.newaxis] + np.arange(len(by_seed))) % REPLICATES
    means: FloatArray = drawn[seeds, rows].mean(axis=1)  # a seed drawn twice is resampled twice
    return means


def _resampled(table: FloatArray, rng: np.random.Generator) -> FloatArray:
    n = len(table)
    weights = rng.multinomial(n, np.full(n, 1.0 / n), size=REPLICATES) / n
    means: FloatArray = weights @ table
    return means


def interval(means: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the central 95 % interval of each column, each of shape (n_columns,)."""
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail], axis=0)
    return low, high
