"""The reserve rule: a call must leave enough for the cheapest models to serve the requests that come after it.

A mean says little about one call where costs have heavy tails, so a call is taken at its mean cost plus some standard
deviations. The rule binds in the last calls of a budget, and all along a budget near the cheapest models' cost; it is
what keeps an expected budget from ending with one dear call too many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.budgets.funds import Funds
from wiserouter.planning.plan import Plan

DEVIATIONS = 1.0
"""Standard deviations of a call's cost that are held against it."""


class ReserveRule:
    """What is held against each model, and for the calls to come, when the rest of a budget must bear it.

    Parameters
    ----------
    plan : Plan
        Mean costs, and the least mean cost of a request.
    spread_usd : array-like, broadcast to (n_contexts, n_models)
        Standard deviation of the cost of one call.
    deviations : float, default 1
        How many standard deviations of its cost are held against a call.
    drift : float, default 0
        How many standard deviations of all the cheapest calls to come are held back, besides their mean cost.

    Attributes
    ----------
    drift_margin_usd : float or None
        What is held back for one call to come, for n of them sqrt(n) times as much; None where nothing is.
    """

    def __init__(
        self, plan: Plan, spread_usd: ArrayLike, *, deviations: float = DEVIATIONS, drift: float = 0.0
    ) -> None:
        self._plan, self._deviations, self._drift = plan, deviations, drift
        self._spread_usd = np.broadcast_to(np.asarray(spread_usd), plan.cost_usd.shape)
        guarded = plan.cost_usd + deviations * self._spread_usd
        # the last of each row, index -1, is the null action
        self._guarded_cost_usd: list[list[float]] = [[*row, 0.0] for row in guarded.tolist()]
        self.drift_margin_usd: float | None = drift * self._spread_of_cheapest_usd() if drift else None

    def guarded_cost_usd(self, context: int) -> list[float]:
        """Return what is held against each model in a context; the last, index -1, is the null action."""
        return self._guarded_cost_usd[context]

    def revise(self, context: int) -> None:
        """Take over the costs that the plan now has for one context."""
        guarded = self._plan.cost_usd[context] + self._deviations * self._spread_usd[context]
        self._guarded_cost_usd[context] = [*guarded.tolist(), 0.0]

    def of_plan(self, plan: Plan, spread_usd: ArrayLike) -> ReserveRule:
        """Return the same rule for another plan."""
        return ReserveRule(plan, spread_usd, deviations=self._deviations, drift=self._drift)

    def _spread_of_cheapest_usd(self) -> float:
        plan = self._plan
        if plan.allow_skip:
            return 0.0  # the null action costs nothing, for certain
        cheapest = plan.cost_usd.argmin(axis=1)[:, np.newaxis]
        return float(plan.freq @ np.take_along_axis(self._spread_usd, cheapest, axis=1)[:, 0])


def room_usd(funds: Funds, floor_usd: float, drift_margin_usd: float | None) -> float:
    """Return the amount that a call may cost if each call after it costs `floor_usd`: b - (tau - 1) c_min.

    Parameters
    ----------
    funds : Funds
        b and tau; where several budgets bear the call, the least of their rooms counts.
    floor_usd : float
        Least mean cost of a request, c_min.
    drift_margin_usd : float or None
        Held back sqrt(tau - 1) times, and the cushion of the funds once: the sum of the calls after it may stray that
        far from its mean. None holds back neither, unless there are several budgets.

    Examples
    --------
    >>> room_usd(Funds(10.0, 5), 1.0, None), room_usd(Funds(10.0, 5), 1.0, 0.5)
    (6.0, 5.0)
    """
    left, requests, each, cushion, _ = funds
    if each:
        return min([room_usd(one, floor_usd, drift_margin_usd or 0.0) for one in each]) - cushion
    after = requests - 1
    room = left - after * floor_usd
    if drift_margin_usd is None:
        return room
    return room - drift_margin_usd * math.sqrt(after if after > 0 else 0) - cushion


def permitted(models: Iterable[int], guarded_cost_usd: Sequence[float] | None, room_usd: float) -> list[int]:
    """Return the models whose guarded cost is at most `room_usd`; all of them where no reserve is kept."""
    return list(models) if guarded_cost_usd is None else [k for k in models if guarded_cost_usd[k] <= room_usd]
