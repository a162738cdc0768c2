"""The outcome model of the doubly robust estimator: at each decision the means of the earlier outcomes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wiserouter.types import FloatArray, IntArray


def running_mean_predictions(
    group: IntArray, chosen: IntArray, outcome: FloatArray, known: NDArray[np.bool_], n_actions: int
) -> FloatArray:
    """Return the predicted outcome of every action at each decision, from earlier decisions only.

    Parameters
    ----------
    group : ndarray of shape (n,)
        Context of each decision, as any integer.
    chosen : ndarray of shape (n,)
        Action taken.
    outcome : ndarray of shape (n,)
        Reward or cost of the action; read only where `known`.
    known : ndarray of bool, shape (n,)
        True where the outcome is known.
    n_actions : int
        Number of actions.

    Returns
    -------
    ndarray of shape (n, n_actions)
        Mean of the action in that context before that decision, shrunk toward its mean in all contexts, which is shrunk
        toward the mean of all actions, and that toward 0; each prior counts as one observation.

    Examples
    --------
    >>> nothing, all_known = np.zeros(3, dtype=np.int64), np.ones(3, dtype=bool)
    >>> running_mean_predictions(nothing, np.array([0, 0, 1]), np.array([1.0, 1.0, 0.5]), all_known, 2).round(3)
    array([[0.   , 0.   ],
           [0.875, 0.5  ],
           [0.963, 0.667]])
    """
    taken = np.zeros((len(chosen), n_actions))
    taken[np.arange(len(chosen)), chosen] = known
    seen = np.hstack([taken, taken * np.where(known, outcome, 0.0)[:, np.newaxis]])
    count, total = np.hsplit(seen.cumsum(axis=0) - seen, 2)
    overall = total.sum(axis=1, keepdims=True) / (count.sum(axis=1, keepdims=True) + 1.0)
    of_action = (total + overall) / (count + 1.0)
    count, total = np.hsplit(_before(group, seen), 2)
    mean: FloatArray = (total + of_action) / (count + 1.0)
    return mean


def _before(group: IntArray, values: FloatArray) -> FloatArray:
    """Return the sum of the earlier rows of its group for each row."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    sums = np.cumsum(values[order], axis=0) - values[order]
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(group)), 0))
    result = np.empty_like(sums)
    result[order] = sums - sums[first]
    return result
