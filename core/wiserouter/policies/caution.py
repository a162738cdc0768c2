"""The reserve rule: a call must leave enough for the cheapest models to serve the requests that come after it.

A mean says little about one call where costs have heavy tails, so a call is taken at its mean cost plus some standard
deviations. The rule binds in the last calls of a budget, and all along a budget near the cheapest models' cost; it is
what keeps an expected budget from ending with one dear call too many.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.budget import Funds
from wiserouter.plan import Plan

DEVIATIONS = 1.0
"""Standard deviations of a call's cost that are held against it."""


class Caution:
    """Which models the rest of a budget can bear.

    Parameters
    ----------
    plan : Plan
        Mean costs, and the least mean cost of a request.
    spread_usd : array-like, broadcast to (n_contexts, n_models)
        Standard deviation of the cost of one call.
    drift : float, default 0
        How many standard deviations of all the cheapest calls to come are held back, besides their mean cost.
    """

    def __init__(self, plan: Plan, spread_usd: ArrayLike, *, drift: float = 0.0) -> None:
        self._plan, self._drift = plan, drift
        self._spread_usd = np.broadcast_to(np.asarray(spread_usd), plan.cost_usd.shape)
        cautious = plan.cost_usd + DEVIATIONS * self._spread_usd
        self._cautious_usd: list[list[float]] = [
            [*row, 0.0] for row in cautious.tolist()
        ]  # the last, index -1, is the null action
        cheapest = plan.cost_usd.argmin(axis=1)[:, np.newaxis]
        walk_usd = drift * float(plan.freq @ np.take_along_axis(self._spread_usd, cheapest, axis=1)[:, 0])
        self._walk_usd = 0.0 if plan.allow_skip else walk_usd  # the null action costs nothing, for certain

    def revise(self, context: int) -> None:
        """Take over the costs that the plan now has for one context."""
        self._cautious_usd[context] = [*(self._plan.cost_usd[context] + DEVIATIONS * self._spread_usd[context]), 0.0]

    def permits(self, context: int, funds: Funds, *models: int, beyond_usd: float = 0.0) -> bool:
        """Return whether the dearest of `models` costs at most b - (tau - 1) c_min, less what is held back.

        `beyond_usd` is what the query at hand costs beyond the mean.
        """
        if funds.each or self._drift:
            room = funds.room_usd(self._plan.floor_usd, self._walk_usd) - beyond_usd
        else:
            room = funds.left_usd - (funds.requests - 1) * self._plan.floor_usd - beyond_usd
        row = self._cautious_usd[context]
        return max([row[k] for k in models]) <= room
