"""The reserve rule: a call must leave enough for the cheapest models to serve the requests that come after it.

A mean says little about one call where costs have heavy tails, so a call is taken at its mean cost plus some standard
deviations. The rule binds in the last calls of a budget, and all along a budget near the cheapest models' cost; it is
what keeps an expected budget from ending with one dear call too many.
"""

from __future__ import annotations

from wiserouter.budget import Funds
from wiserouter.estimates import Estimates
from wiserouter.plan import Plan

DEVIATIONS = 1.0
"""Standard deviations of a call's cost that are held against it."""


class Caution:
    """Which models the rest of a budget can bear.

    Parameters
    ----------
    plan : Plan
        Mean costs, and the least mean cost of a request.
    estimates : Estimates
        Spread of the costs of each model.
    """

    def __init__(self, plan: Plan, estimates: Estimates) -> None:
        self._floor_usd = plan.floor_usd
        cautious = plan.cost_usd + DEVIATIONS * estimates.cost_spread_usd()
        self._cautious_usd: list[list[float]] = [
            [*row, 0.0] for row in cautious.tolist()
        ]  # the last, index -1, is the null action

    def cautious_usd(self, context: int) -> list[float]:
        """Return what is held against each model in a context; the last, index -1, is the null action."""
        return self._cautious_usd[context]

    def permits(self, context: int, funds: Funds, *models: int) -> bool:
        """Return whether the dearest of `models` costs at most b - (tau - 1) c_min."""
        room = funds.left_usd - (funds.requests - 1) * self._floor_usd
        row = self._cautious_usd[context]
        return max([row[k] for k in models]) <= room
