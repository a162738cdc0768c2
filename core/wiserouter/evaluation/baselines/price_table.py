"""The price of cost that meets a budget: the spend of a rule "reward minus price times cost" on past queries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.baselines.base import Answers
from wiserouter.evaluation.baselines.metallm import price_grid
from wiserouter.types import FloatArray


class PriceTable(NamedTuple):
    """Prices in ascending order, and the mean spend of the rule at each; arrays of shape (n_prices,)."""

    prices: FloatArray
    spend_usd: FloatArray

    def price(self, rate_usd: float) -> float:
        """Return the least price at which the rule spends at most a rate, or the largest price if it never does.

        Examples
        --------
        >>> table = PriceTable(np.array([0.0, 1.0, 2.0]), np.array([9.0, 5.0, 1.0]))
        >>> table.price(5.0), table.price(8.9), table.price(0.5)
        (1.0, 1.0, 2.0)
        """
        fits = np.flatnonzero(self.spend_usd <= rate_usd)
        return float(self.prices[fits[0] if len(fits) else -1])


def price_table(expected: Answers, cost_usd: FloatArray) -> PriceTable:
    """Return the prices of `price_grid` with the spend at each.

    Parameters
    ----------
    expected : Answers
        Expected reward and cost of every model on every past query, by which the rule chooses.
    cost_usd : ndarray of shape (n_queries, n_models)
        Costs that are paid.
    """
    prices = price_grid(np.maximum(expected.cost_usd, expected.cost_usd.max() * 1e-9))
    rows = np.arange(len(cost_usd))
    chosen = [(expected.reward - price * expected.cost_usd).argmax(axis=1) for price in prices]
    return PriceTable(prices, np.array([cost_usd[rows, models].mean() for models in chosen]))
