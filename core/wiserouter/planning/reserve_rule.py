"""The reserve rule: a call must leave enough for the cheapest models to serve the requests that come after it.

A mean is a poor bound on one call where costs have heavy tails, so the guarded cost of a call is its mean plus some
standard deviations. The rule binds in the last calls of a budget, and throughout a budget near the cheapest models'
cost; it keeps a budget without a hard limit from ending with one expensive call too many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.budgets.funds import Funds
from wiserouter.planning.plan import Plan

DEVIATIONS = 1.0
"""Standard deviations of its cost in the guarded cost of a call."""


class ReserveRule:
    """The guarded cost of each model, and the margin for the calls to come.

    Parameters
    ----------
    plan : Plan
        Mean costs, and the least mean cost of a request.
    spread_usd : array-like, broadcast to (n_contexts, n_models)
        Standard deviation of the cost of one call.
    deviations : float, default 1
        Standard deviations of its cost in the guarded cost of a call.
    drift : float, default 0
        Standard deviations of the total of the cheapest calls to come that are held back in addition to their mean.

    Attributes
    ----------
    guarded_cost_usd : list of list of float
        The guarded cost of each model, by context; the last of a row, index -1, is the null action.
    drift_margin_usd : float or None
        The margin for one call to come, and sqrt(n) times as much for n of them; None where there is none.
    """

    def __init__(
        self, plan: Plan, spread_usd: ArrayLike, *, deviations: float = DEVIATIONS, drift: float = 0.0
    ) -> None:
        self._plan, self._deviations, self._drift = plan, deviations, drift
        self._spread_usd = np.broadcast_to(np.asarray(spread_usd), plan.cost_usd.shape)
        guarded = plan.cost_usd + deviations * self._spread_usd
        # the last of each row, index -1, is the null action
        self.guarded_cost_usd: list[list[float]] = [[*row, 0.0] for row in guarded.tolist()]
        self.drift_margin_usd: float | None = drift * self._spread_of_cheapest_usd() if drift else None

    def revise(self, context: int) -> None:
        """Take over the plan's present costs of one context."""
        guarded = self._plan.cost_usd[context] + self._deviations * self._spread_usd[context]
        self.guarded_cost_usd[context] = [*guarded.tolist(), 0.0]

    def of_plan(self, plan: Plan, spread_usd: ArrayLike) -> ReserveRule:
        """Return the same rule for another plan."""
        return ReserveRule(plan, spread_usd, deviations=self._deviations, drift=self._drift)

    def _spread_of_cheapest_usd(self) -> float:
        plan = self._plan
        if plan.allow_skip:
            return 0.0  # the null action always costs nothing
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
