"""Queries of a log that are routed by held-out predictions: what they earn and spend at a price, or at a rate.

Where a log lacks some scores, a choice counts only if it was observed, weighted by the inverse of the share of its
context's queries on which its model was (inverse propensity weighting).
"""

from __future__ import annotations

from bisect import bisect
from typing import NamedTuple

import numpy as np

from wiserouter.learning.residuals.price_curve import PriceCurve, best_models, price_grid
from wiserouter.learning.residuals.sample import Sample
from wiserouter.types import FloatArray


class Run(NamedTuple):
    """The contribution of each query to the mean reward and the mean cost, of shape (n_queries,) each."""

    reward: FloatArray
    cost_usd: FloatArray
    shadow_price: float


class HeldOutRouting:
    """Queries routed by predictions, at each of a grid of prices.

    Parameters
    ----------
    sample : Sample
        The queries, with their true scores and costs.
    reward, cost_usd : ndarray of shape (n_queries, n_models)
        Predictions by which they are routed.
    """

    def __init__(self, sample: Sample, reward: FloatArray, cost_usd: FloatArray) -> None:
        self._sample, self._weight = sample, observed_weight(sample)
        self._reward, self._cost_usd = reward, cost_usd
        self._prices = price_grid(cost_usd)
        self._spend_usd: dict[int, float] = {}

    def curve(self) -> PriceCurve:
        """Return the spend at each price."""
        return PriceCurve(self._prices, np.array([self.spend_usd(g) for g in range(len(self._prices))]))

    def spend_usd(self, g: int) -> float:
        """Return the true spend per query at a price of the grid."""
        if g not in self._spend_usd:
            self._spend_usd[g] = float(self._taken(float(self._prices[g]))[1].mean())
        return self._spend_usd[g]

    def at_rate(self, rate_usd: float) -> Run:
        """Route at the two neighbouring prices that spend more and less than the rate, and mix them."""
        prices = self._prices
        # the highest price whose spend is still at least the rate, and the next one
        binds = self.spend_usd(0) > rate_usd
        above = bisect(range(len(prices)), -rate_usd, key=lambda g: -self.spend_usd(g)) - 1 if binds else 0
        below = min(above + 1, len(prices) - 1) if binds else 0
        gap = self.spend_usd(above) - self.spend_usd(below)
        share = float(np.clip((rate_usd - self.spend_usd(below)) / gap, 0.0, 1.0)) if gap > 0 else 1.0
        (high, high_usd), (low, low_usd) = (self._taken(float(prices[g])) for g in (above, below))
        return Run(share * high + (1.0 - share) * low, share * high_usd + (1.0 - share) * low_usd, float(prices[above]))

    def _taken(self, price: float) -> tuple[FloatArray, FloatArray]:
        """Return the contribution of each query to the mean reward and mean cost at a price."""
        sample, rows = self._sample, np.arange(len(self._sample))
        model = best_models(self._reward, self._cost_usd, price)
        w = self._weight[rows, model]
        w = w / max(float(w.mean()), 1e-12)  # self-normalised
        score, cost = sample.reward[rows, model], sample.cost_usd[rows, model]
        return np.where(w > 0, w * score, 0.0), np.where(w > 0, w * cost, 0.0)


def observed_weight(sample: Sample) -> FloatArray:
    """Return the inverse of the observed share of each query's (context, model); 0 where it was not observed itself."""
    seen = (~np.isnan(sample.reward + sample.cost_usd)).astype(np.float64)
    if seen.all():
        return seen
    weight = np.zeros(seen.shape)
    for context in np.unique(sample.contexts):
        rows = sample.contexts == context
        weight[rows] = seen[rows] / np.maximum(seen[rows].mean(axis=0), 1e-12)
    return weight
