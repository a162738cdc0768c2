r"""The margin of a batch for wrong costs: the quantile of its total (chance constraint).

Errors of means are common to all queries which share the mean, so they do not average out; those of single calls do.
The mean of a group has an error of its own, :math:`m_{jk}`, and a part :math:`a_{jk}` in that of its model's mean,
toward which all groups are shrunk. With :math:`n_{jk}` queries of group :math:`j` on model :math:`k`, the total
deviates by

.. math::
    \sigma_m^2 = \sum_{jk} n_{jk}^2\,m_{jk}^2 + \sum_k \Big(\sum_j n_{jk}\,a_{jk}\Big)^2,
    \qquad \sigma_c^2 = \sum_i s_{i k(i)}^2,

and the quantile of the confidence is held back (Charnes and Cooper 1959). Sums of positive costs lean to the right, and
so does what is known of a mean that such costs have estimated. Where both are gamma distributed, the total over its
estimate :math:`C` has Fisher's F distribution with :math:`2 (C / \sigma_c)^2` and :math:`2 (C / \sigma_m)^2` degrees of
freedom, as a normal mean has Student's. Its quantile counts, or a normal one, whichever is larger.

A share that holds exactly is missed by half of all samples of totals. The level is the least one of which a sample of
`SAMPLED_TOTALS` shows the stated share, by the score interval of Wilson (1927).
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import InvalidInput
from wiserouter.types import FloatArray, IntArray
from wiserouter.validation import check_delta

SAMPLED_TOTALS = 1_000
"""Of so many totals the stated share stays within the budget, and not only of infinitely many."""

SAMPLE_CONFIDENCE = 0.99
"""The probability with which it does."""

_MOST_SHAPE = 1e12  # of a gamma distribution; from here on it is a normal one to all digits


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
    shared_usd : array-like of shape (n_groups, n_models), optional
        Standard deviation of the error of each mean cost that all groups of a model share; none by default.

    Attributes
    ----------
    selection_usd : float, USD
        Added to each margin for the preference of an allocation for what looks cheap; 0 unless it is set.

    Examples
    --------
    >>> errors = CostErrors(0.95, [0, 0, 0, 0], [[0.0]], [[1.0]])
    >>> round(errors.margin_usd(np.zeros(4, dtype=int), 1_000.0), 2)
    3.59
    """

    def __init__(
        self,
        confidence: float,
        group: ArrayLike,
        mean_usd: ArrayLike,
        call_usd: ArrayLike,
        shared_usd: ArrayLike | None = None,
    ) -> None:
        check_delta("confidence", confidence)
        if confidence < 0.5:
            raise InvalidInput(f"confidence must be at least 0.5, got {confidence!r}", value=confidence)
        self.level, self.selection_usd = sampled_level(confidence), 0.0
        self._quantile = NormalDist().inv_cdf(self.level)
        self.group: IntArray = np.asarray(group, dtype=np.int64)
        self._mean_sq: FloatArray = np.asarray(mean_usd, dtype=np.float64) ** 2
        self._call_sq: FloatArray = np.asarray(call_usd, dtype=np.float64) ** 2
        self._shared: FloatArray = (
            np.zeros_like(self._mean_sq) if shared_usd is None else np.asarray(shared_usd, dtype=np.float64)
        )
        if self._mean_sq.ndim != 2 or not self._mean_sq.shape == self._call_sq.shape == self._shared.shape:
            raise InvalidInput(
                f"mean_usd, call_usd and shared_usd must have the same shape (n_groups, n_models), got "
                f"{self._mean_sq.shape}, {self._call_sq.shape} and {self._shared.shape}"
            )

    def margin_usd(self, model: IntArray, total_usd: float) -> float:
        """Return the margin if the queries take these models, which cost `total_usd` in all by the estimates."""
        from scipy.special import fdtri  # most commands need no scipy, which takes as long to load as all else

        cells = self.group * self._mean_sq.shape[1] + model
        count = np.bincount(cells, minlength=self._mean_sq.size).reshape(self._mean_sq.shape)
        of_means = float((count**2 * self._mean_sq).sum() + ((count * self._shared).sum(axis=0) ** 2).sum())
        of_calls = float((count * self._call_sq).sum())
        normal = self._quantile * math.sqrt(of_means + of_calls)
        if total_usd <= 0.0:
            return normal + self.selection_usd
        shapes = (_shape(total_usd, variance) for variance in (of_calls, of_means))
        leaning = fdtri(*(2.0 * one for one in shapes), self.level) - 1.0
        return max(normal, total_usd * float(leaning)) + self.selection_usd

    def drawn(self, rng: np.random.Generator) -> FloatArray:
        """Return errors of the means, drawn from a normal distribution, of shape (n_groups, n_models)."""
        own = np.sqrt(self._mean_sq) * rng.standard_normal(self._mean_sq.shape)
        errors: FloatArray = own + self._shared * rng.standard_normal(self._mean_sq.shape[1])
        return errors


def sampled_level(confidence: float) -> float:
    """Return the level of which a sample of totals shows at least `confidence`.

    Examples
    --------
    >>> [round(sampled_level(share), 4) for share in (0.8, 0.95, 0.99)]
    [0.8278, 0.9638, 0.9951]
    """
    z_sq = NormalDist().inv_cdf(SAMPLE_CONFIDENCE) ** 2 / SAMPLED_TOTALS
    width = math.sqrt(z_sq * (confidence * (1.0 - confidence) + z_sq / 4.0))
    return (confidence + z_sq / 2.0 + width) / (1.0 + z_sq)


def _shape(total_usd: float, variance: float) -> float:
    """Return the shape of a gamma distribution of this mean and variance."""
    return min(total_usd**2 / variance, _MOST_SHAPE) if variance > 0.0 else _MOST_SHAPE
