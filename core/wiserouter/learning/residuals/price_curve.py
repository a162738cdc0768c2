"""The price curve: the spend, at each shadow price, of queries that are routed by estimates of their own.

The plan computes its spend from the means of contexts. Queries that deviate from their context choose differently and
spend differently: at a tight budget the plan's price would spend too much early and leave too little for the end. So
the spend at each price is measured on held-out queries, with predictions of a fit that has not seen them.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wiserouter.types import FloatArray, IntArray

N_PRICES = 256


class PriceCurve:
    """The spend per query at each shadow price.

    Parameters
    ----------
    price : ndarray of shape (n,)
        Reward per USD, rising from 0.
    spend_usd : ndarray of shape (n,)
        USD per query, never rising.

    Examples
    --------
    >>> PriceCurve(np.array([0.0, 10.0]), np.array([3.0, 1.0])).at(2.0)
    5.0
    """

    def __init__(self, price: FloatArray, spend_usd: FloatArray) -> None:
        self.price, self.spend_usd = price, np.minimum.accumulate(spend_usd)
        self._rising_spend: list[float] = self.spend_usd[::-1].tolist()
        self._falling_price: list[float] = price[::-1].tolist()

    def at(self, rate_usd: float) -> float | None:
        """Return the price at which queries spend `rate_usd` on average; None below the least spend.

        The models that look cheapest cost more than they look: the plan may have a price where the curve has none.
        """
        spend, price = self._rising_spend, self._falling_price
        above = bisect(spend, rate_usd)
        if not 0 < above < len(spend):
            return None if above == 0 else price[-1]
        less_usd, highest = spend[above - 1], price[above - 1]
        slope = (price[above] - highest) / (spend[above] - less_usd)
        return highest + slope * (rate_usd - less_usd)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays."""
        return {"price": self.price, "spend_usd": self.spend_usd}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> PriceCurve:
        """Return the curve whose `arrays()` these are."""
        return cls(arrays["price"], arrays["spend_usd"])


def price_grid(cost_usd: FloatArray) -> FloatArray:
    """Return prices from 0, where only rewards count, to where only costs count."""
    paid = cost_usd[cost_usd > 0]
    if not paid.size:
        return np.array([0.0, 1.0])
    return np.concatenate(([0.0], np.geomspace(1e-3 / paid.max(), 1e3 / paid.min(), N_PRICES - 1)))


def best_models(reward: FloatArray, cost_usd: FloatArray, price: float) -> IntArray:
    """Return the model of each query with the best reward less price x cost; the cheaper one at a tie of rewards."""
    cheaper_first = price if price > 0 else 1e-12 / max(float(cost_usd.max()), 1e-300)
    return np.asarray((reward - cheaper_first * cost_usd).argmax(axis=1), dtype=np.int64)
