r"""The plan of requests of different values: the linear program over pairs of a context and a tier of values.

With the share :math:`f_t` of the tier whose requests are worth :math:`v_t`, the program of `planning.plan` becomes

.. math::
    \max_p \sum_{j,t} \pi_j f_t v_t \sum_k p_{jtk} u_{jk}
    \quad\text{s.t.}\quad \sum_{j,t} \pi_j f_t \sum_k p_{jtk} c_{jk} \le \rho.

A value scales the rewards of a context and leaves its costs, so that its envelope stays and the slopes are multiplied
by the value. At the shadow price :math:`\lambda` a request of value v takes the model with the best
:math:`v u_{jk} - \lambda c_{jk}`, which is the best reward less cost at its own price :math:`\lambda / v`. Values are
taken to be independent of contexts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wiserouter.learning.residuals.price_curve import PriceCurve
from wiserouter.planning.envelope import ContextEnvelope
from wiserouter.planning.plan import Plan
from wiserouter.planning.step_order import StepOrder, steps_of
from wiserouter.planning.value_mix import Tier, ValueMix

_SAME = 1e-12  # relative; a value that differs from the mean of its tier by no more than this is the tier's


class ValuedPlan:
    """A plan, solved for requests of several values.

    Examples
    --------
    >>> plan = Plan(freq=[1.0], reward=[[0.2, 0.9]], cost_usd=[[0.01, 0.03]])
    >>> valued = ValuedPlan(plan, [Tier(1.0, 0.5), Tier(3.0, 0.5)])
    >>> low, high, share, *_ = valued.split(0, 0.021, 1.0)
    >>> valued.split(0, 0.021, 3.0)[:2], (low, high, round(share, 3))
    ((1, 1), (0, 1, 0.1))
    """

    def __init__(self, plan: Plan, tiers: Sequence[Tier]) -> None:
        self.rows, self.tiers = plan.rows, tuple(tiers)
        each = [
            ContextEnvelope(  # in half the time of `_replace`
                row.context * len(tiers) + t,
                row.hull,
                [slope * value for slope in row.falling],
                [usd * share for usd in row.spend_usd],
                *row[4:],
            )
            for row in plan.rows
            for t, (value, share) in enumerate(tiers)
        ]
        self._order = StepOrder(each, sorted(steps_of(each)), plan.floor_usd)

    def split(self, context: int, rate_usd: float, value: float) -> tuple[int, int, float, float]:
        """Return the fields of `Plan.split` for a request of this value; the shadow price is its own.

        Parameters
        ----------
        context : int
            Its context.
        rate_usd : float, USD per request
            The rate, at least the floor of the plan.
        value : float
            Its value. One between the means of two tiers takes the model that is best at its price.
        """
        tier = self._tier_of(value)
        if tier is None:
            price = self._order.split(0, rate_usd)[3] / value
            low = self._best(context, price)
            return low, low, 0.0, price
        low, high, share, price = self._order.split(context * len(self.tiers) + tier, rate_usd)
        return low, high, share, price / value

    def _tier_of(self, value: float) -> int | None:
        """Return the tier whose mean is this value; None where none is."""
        return next((t for t, tier in enumerate(self.tiers) if abs(tier.value - value) <= _SAME * value), None)

    def _best(self, context: int, price: float) -> int:
        """Return the model of a context after all steps that are worth their cost at a price."""
        row = self.rows[context]
        return row.hull[bisect_left(row.falling, -price)]


class ValuedRequest(NamedTuple):
    """The value of one request, and the plans for the mix of values that it belongs to.

    Attributes
    ----------
    value : float
        Its value.
    plans : ValuedPlans
        The plans for that mix.
    """

    value: float
    plans: ValuedPlans

    def split_from_floor(self, plan: Plan, context: int, rate_usd: float) -> tuple[int, int, float, float, float]:
        """Return the fields of `Plan.split_from_floor` for this request."""
        floor = plan.floor_usd
        if rate_usd < floor:
            return plan.split_from_floor(context, rate_usd)
        return *self.plans.of(plan).split(context, rate_usd, self.value), floor

    def shadow_price(self, prices: PriceCurve, rate_usd: float) -> float | None:
        """Return the price of this request by the price curve of all; None below its least spend."""
        price = self.plans.price_curve(prices).at(rate_usd)
        return None if price is None else price / self.value


class ValuedPlans:
    """The plans for one mix of values; solved again when the plan or the shares have changed."""

    def __init__(self, mix: ValueMix) -> None:
        self.mix = mix
        self._solved: tuple[object, tuple[Tier, ...], ValuedPlan] | None = None
        self._curve: tuple[PriceCurve, tuple[Tier, ...], PriceCurve] | None = None

    def of(self, plan: Plan) -> ValuedPlan:
        """Return a plan solved for the present mix."""
        tiers, steps, kept = self.mix.tiers(), plan.steps, self._solved
        if kept is None or kept[0] is not steps or kept[1] is not tiers:
            self._solved = kept = steps, tiers, ValuedPlan(plan, tiers)
        return kept[2]

    def price_curve(self, prices: PriceCurve) -> PriceCurve:
        """Return the spend at each shadow price, from that of queries of value 1."""
        tiers, kept = self.mix.tiers(), self._curve
        if kept is None or kept[0] is not prices or kept[1] is not tiers:
            each = [share * np.interp(prices.price / value, prices.price, prices.spend_usd) for value, share in tiers]
            self._curve = kept = prices, tiers, PriceCurve(prices.price, np.sum(each, axis=0))
        return kept[2]
