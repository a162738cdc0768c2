r"""The estimated quality of calls with other models, with an interval that says how little is known.

A mean over calls is :math:`\sum_{jk} a_{jk} \theta_{jk}`, where :math:`\theta_{jk}` is the mean score of model
:math:`k` in context :math:`j` and :math:`a_{jk}` the share of the calls; for the difference of two ways to route, the
difference of their shares. :math:`\theta_{jk}` is estimated as in `wiserouter.learning.shrinkage`, with the mean over
all contexts as :math:`\kappa` further scores. Its variance has three parts: the scores there, the mean of all scores,
and the deviation of the context from it, whose variance is :math:`s^2 / \kappa`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.learning.random_effects import PRIOR_REWARD_VARIANCE
from wiserouter.learning.shrinkage import PRIOR_COUNT, UNIDENTIFIED_STRENGTH, spreads
from wiserouter.routing.pool_figures import PoolFigures
from wiserouter.types import FloatArray

Z_95 = 1.959963984540054

MOST_STRENGTH = 64.0
"""Where few scores show no difference between contexts, the interval still allows that of this strength."""


class Quality(NamedTuple):
    """An estimated mean score, its 95 % interval, and the number of scores that it rests on."""

    mean: float
    low: float
    high: float
    scores: int


class ScoreModel:
    """Means and variances of the scores per (context, model).

    Parameters
    ----------
    figures : PoolFigures
        The sums of the scores.
    """

    def __init__(self, figures: PoolFigures) -> None:
        count, total, square = (figures.sums[name] for name in ("labels", "reward", "reward_sq"))
        self._count, self._total, self._freq = count, total, figures.freq
        of = spreads(count, total, square)
        self._kappa = np.where(count > 0, of.pseudo_counts, of.pseudo_counts or UNIDENTIFIED_STRENGTH)
        # and scores of the greatest variance: few equal ones promise nothing
        inside = of.within * of.freedom + PRIOR_COUNT * PRIOR_REWARD_VARIANCE
        self._variance = inside / (of.freedom + PRIOR_COUNT)
        self.scores: FloatArray = count.sum(axis=0)

    def mean_of(self, shares: FloatArray, *, bounded: bool = True) -> Quality | None:
        """Return the mean score of shares, of shape (n_contexts + 1, n_models); None if no model has a score.

        Shares of the last row, of other contexts, count like the usual mix of contexts. A model without scores counts
        as 0.5, and the interval allows 0 to 1 for it.
        """
        weights = shares[:-1] + self._freq[:, None] * shares[-1]
        used, scored = np.abs(weights).sum(axis=0) > 1e-12, self.scores > 0
        if used.any() and not (used & scored).any():
            return None
        mean, variance = 0.0, 0.0
        for k in np.flatnonzero(used & scored):
            of_model = self._linear(int(k), weights[:, k])
            mean, variance = mean + of_model[0], variance + of_model[1]
        unscored = weights[:, used & ~scored].sum(axis=0)
        mean += 0.5 * float(unscored.sum())
        wide = Z_95 * variance**0.5 + 0.5 * float(np.abs(unscored).sum())
        low, high = mean - wide, mean + wide
        if bounded:
            mean, low, high = (min(max(one, 0.0), 1.0) for one in (mean, low, high))
        return Quality(mean, low, high, round(self.scores[used].sum()))

    def _linear(self, k: int, weight: FloatArray) -> tuple[float, float]:
        """Return the mean and the variance of a weighted sum of the mean scores of one model."""
        count, kappa, variance = self._count[:, k], self._kappa[:, k], float(self._variance[k])
        pooled = np.isinf(kappa)
        with np.errstate(invalid="ignore", divide="ignore"):
            own = np.where(pooled, 0.0, count / (count + np.where(pooled, 1.0, kappa)))
            deviation = np.where(kappa == 0.0, 0.0, variance / np.minimum(kappa, MOST_STRENGTH))
        own = np.where(count > 0, own, 0.0)
        share = count / count.sum()
        used = weight * own + (weight * (1.0 - own)).sum() * share  # the weight of the mean of each context
        there = np.where(count > 0, self._total[:, k] / np.maximum(count, 1e-12), 0.0)
        sampling = variance * float((used**2 / np.maximum(count, 1e-12))[count > 0].sum())
        return float(used @ there), sampling + float(((weight * (1.0 - own)) ** 2 * deviation).sum())
