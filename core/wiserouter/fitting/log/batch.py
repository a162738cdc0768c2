"""A batch of a log: some rows, or all of them with the calls of a query in one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wiserouter.types import Embedding, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Some rows of a log.

    Attributes
    ----------
    prompts : list of str
        One per row.
    query : ndarray of int of shape (n,)
        Identifies queries: the number of the row, or a key made of the query's id, which all its rows share.
    reward, cost_usd : ndarray of shape (n, n_models)
        Scores in [0, 1] and costs in USD; NaN where not observed.
    ids : list of str or None
        The ids of the queries in the log, one per row, where it has any.
    embeddings : ndarray of shape (n, dim) or None
        The embeddings of the prompts, where they are read from the log.
    """

    prompts: list[str]
    query: IntArray
    reward: FloatArray
    cost_usd: FloatArray
    ids: list[str] | None = None
    embeddings: Embedding | None = None


def merged(parts: Sequence[LogBatch]) -> LogBatch:
    """Return all rows, with those of one query averaged into one, and queries numbered by first appearance."""
    prompts = [prompt for part in parts for prompt in part.prompts]
    query, reward, cost = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("query", "reward", "cost_usd")
    )
    first = first_rows(query)
    number = np.arange(len(first))
    if len(first) == len(query):
        return LogBatch(prompts, number, reward, cost)
    order = np.argsort(query[first])
    row = order[np.searchsorted(query[first], query, sorter=order)]
    return LogBatch(
        [prompts[i] for i in first], number, _mean_by(row, reward, len(first)), _mean_by(row, cost, len(first))
    )


def total(parts: Sequence[LogBatch], *, all_models: bool) -> LogBatch:
    """Return one row per query, with the cost of all its rows and their mean score: the rows are the calls of a run.

    Parameters
    ----------
    parts : sequence of LogBatch
        The rows.
    all_models : bool
        Whether each row has the cost of every model. A cost that is missing in one row is then missing in the total of
        that model, and otherwise in the totals of all models.
    """
    mean = merged(parts)
    query, cost = (np.concatenate([getattr(part, name) for part in parts]) for name in ("query", "cost_usd"))
    first = first_rows(query)
    order = np.argsort(query[first])
    row = order[np.searchsorted(query[first], query, sorter=order)]
    sums = np.zeros((len(first), cost.shape[1]))
    known = cost if all_models else np.where(np.isnan(cost).all(axis=1, keepdims=True), np.nan, np.nan_to_num(cost))
    np.add.at(sums, row, known)
    cost_usd = np.where(np.isnan(mean.cost_usd), np.nan, sums)
    return LogBatch(mean.prompts, mean.query, mean.reward, cost_usd)


def first_rows(query: IntArray) -> IntArray:
    """Return the first row of each query, in the order of the rows.

    Examples
    --------
    >>> first_rows(np.array([7, 3, 7, 5]))
    array([0, 1, 3])
    """
    return np.sort(np.unique(query, return_index=True)[1])


def _mean_by(row: IntArray, values: FloatArray, n_rows: int) -> FloatArray:
    """Return the mean of the observed values of each row, NaN where there is none."""
    seen = ~np.isnan(values)
    total, count = np.zeros((n_rows, values.shape[1])), np.zeros((n_rows, values.shape[1]))
    np.add.at(total, row, np.where(seen, values, 0.0))
    np.add.at(count, row, seen)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / count)
