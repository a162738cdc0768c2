r"""The margin of a batch for wrong costs: the quantile of its total (chance constraint).

Two errors add up. That of a mean cost is common to all queries which share that mean, so it does not average out; that
of a single call is its own. With :math:`n_{jk}` queries of group :math:`j` on model :math:`k`, the total deviates by

.. math::
    \sigma^2 = \sum_{jk} n_{jk}^2\,m_{jk}^2 + \sum_i s_{i k(i)}^2,

and the quantile of the confidence is held back (Charnes and Cooper 1959): that of a normal or of a lognormal total with
this deviation, whichever is larger, since sums of costs lean to the right.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import InvalidInput
from wiserouter.types import FloatArray, IntArray
from wiserouter.validation import check_delta


class CostErrors:
    """How far the costs of a batch may be from their estimates.

    Parameters
    ----------
    confidence : float
        The probability with which the total is to stay within the budget, from 0.5 up to below 1.
    group : array-like of int of shape (n_queries,)
        The group of each query whose means are estimated together, such as its context.
    mean_usd : array-like of shape (n_groups, n_models)
        Standard deviation of the error of each mean cost.
    call_usd : array-like of shape (n_groups, n_models)
        Standard deviation of the cost of one call.

    Examples
    --------
    >>> errors = CostErrors(0.95, [0, 0, 0, 0], [[0.0]], [[1.0]])
    >>> round(errors.margin_usd(np.zeros(4, dtype=int), 1_000.0), 2)
    3.29
    """

    def __init__(self, confidence: float, group: ArrayLike, mean_usd: ArrayLike, call_usd: ArrayLike) -> None:
        check_delta("confidence", confidence)
        if confidence < 0.5:
            raise InvalidInput(f"confidence must be at least 0.5, got {confidence!r}", value=confidence)
        self.quantile = NormalDist().inv_cdf(confidence)
        self._group: IntArray = np.asarray(group, dtype=np.int64)
        self._mean_sq: FloatArray = np.asarray(mean_usd, dtype=np.float64) ** 2
        self._call_sq: FloatArray = np.asarray(call_usd, dtype=np.float64) ** 2
        if self._mean_sq.ndim != 2 or self._mean_sq.shape != self._call_sq.shape:
            raise InvalidInput(
                f"mean_usd and call_usd must have the same shape (n_groups, n_models), got {self._mean_sq.shape} and "
                f"{self._call_sq.shape}"
            )

    def margin_usd(self, model: IntArray, total_usd: float) -> float:
        """Return the margin if the queries take these models, which cost `total_usd` in all by the estimates."""
        cells = self._group * self._mean_sq.shape[1] + model
        count = np.bincount(cells, minlength=self._mean_sq.size).reshape(self._mean_sq.shape)
        variance = (count**2 * self._mean_sq + count * self._call_sq).sum()
        deviation = math.sqrt(float(variance))
        normal = self.quantile * deviation
        if total_usd <= 0.0:
            return normal
        log_variance = math.log1p((deviation / total_usd) ** 2)
        leaning = math.expm1(self.quantile * math.sqrt(log_variance) - log_variance / 2.0)
        return max(normal, total_usd * leaning)
