"""The draw from a plan under limits, for one query: within the reserve rule, and at its own reward and cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.planning.choice_inputs import ContextFigures
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.limited_plan import LimitedPlan
from wiserouter.planning.mixture import permitted, room_usd
from wiserouter.planning.policy import Allowed, Choice, Mix
from wiserouter.planning.shift import Shift
from wiserouter.types import NO_CONTEXT, FloatArray

_LEAST_SHARE = 1e-6
"""Shares of the mix below this are those of rounding."""


class LimitedMixture:
    """A plan under limits to draw from.

    Parameters
    ----------
    plan : LimitedPlan
        The plan; its first constraint is that of the budget.
    freq : ndarray of shape (n_contexts,)
        Share of each context, for a query without one.
    banned : collection of int, optional
        Models that get no query, unless no other may take it.
    """

    def __init__(self, plan: LimitedPlan, freq: FloatArray, banned: Collection[int] = ()) -> None:
        self.plan = plan
        self._freq, self._banned = freq, frozenset(banned)
        self._rows: dict[int, tuple[Mix, list[float]]] = {}

    @property
    def shares(self) -> FloatArray:
        """The share of each model in all requests."""
        shares: FloatArray = self._freq @ self.plan.mix
        return shares

    def vary(
        self,
        choice: Choice,
        context: int,
        funds: Funds,
        rng: np.random.Generator,
        allowed: Allowed,
        shift: Shift | None,
    ) -> Choice:
        """Return a draw from this plan in place of that of a plan without limits.

        A model that is not allowed, or that the reserve rule excludes, is replaced by the permitted one of most worth:
        reward less the prices of budget and limits x uses. A query with figures of its own takes the model of most
        worth at these. A rate below the floor of the plan pays for the cheapest model only. A choice of the
        exploration phase stays as it is.
        """
        figures = choice.figures
        if choice.rule != "plan" or figures is None:
            return choice
        mix, worth = self._rows.get(context) or self._row(context)
        own = figures if shift is None else figures.shifted(shift)
        room = room_usd(funds, choice.floor_usd, own.drift_margin_usd)
        candidates = self._candidates(len(own.costs_usd), allowed)
        models = permitted(candidates, own.guarded_cost_usd, room) if funds.rate_usd >= choice.floor_usd else []
        models = models or [min(candidates, key=own.costs_usd.__getitem__)]
        price = self.plan.prices[0]
        value = 1.0 if shift is None or shift.valued is None else shift.valued.value
        if value != 1.0 or own.costs_usd != figures.costs_usd or own.weighed != figures.weighed:
            mix, worth = _own_row(mix, worth, figures, own, value, price)
        mix = _within(mix, worth, models)
        drawn, probability = _drawn(mix, rng)
        reward, cost = (0.0, 0.0) if drawn == SKIP else own.means(drawn)
        return choice._replace(
            model=drawn,
            probability=probability,
            shadow_price=price / value,
            expected_cost_usd=cost,
            expected_reward=reward,
            mix=mix,
            limited=self.plan,
        )

    def _candidates(self, n_models: int, allowed: Allowed) -> Sequence[int]:
        """Return the models that may take a query."""
        candidates = range(n_models) if allowed is None else sorted(allowed)
        return [k for k in candidates if k not in self._banned] or candidates if self._banned else candidates

    def _row(self, context: int) -> tuple[Mix, list[float]]:
        """Return mix and worths of a context, or their means over all contexts; made once."""
        plan = self.plan
        shares, worth = (
            (self._freq @ plan.mix, self._freq @ plan.worth)
            if context == NO_CONTEXT
            else (plan.mix[context], plan.worth[context])
        )
        row = _mix_of(shares), worth.tolist()
        self._rows[context] = row
        return row


def _mix_of(shares: FloatArray) -> Mix:
    """Return the models with a share; the rest of the probability is that of the null action."""
    kept = [(k, share) for k, share in enumerate(shares.tolist()) if share > _LEAST_SHARE]
    total = sum([share for _, share in kept])
    if total >= 1.0 - len(shares) * _LEAST_SHARE:
        return tuple([(k, share / total) for k, share in kept])
    return (*kept, (SKIP, 1.0 - total))


def _own_row(
    mix: Mix, worth: list[float], figures: ContextFigures, own: ContextFigures, value: float, price: float
) -> tuple[Mix, list[float]]:
    """Return mix and worths of a query that deviates from its context: the model of most worth."""
    rows = zip(worth, own.weighed, figures.weighed, own.costs_usd, figures.costs_usd, strict=True)
    mine = [w + value * u - mean - price * (usd - mean_usd) for w, u, mean, usd, mean_usd in rows]
    best = max(range(len(mine)), key=mine.__getitem__)
    if mine[best] < 0.0 and any(k == SKIP for k, _ in mix):
        best = SKIP
    return ((best, 1.0),), mine


def _within(mix: Mix, worth: list[float], models: Sequence[int]) -> Mix:
    """Return the mix with each model that is not permitted replaced by the permitted one of most worth."""
    if all(k == SKIP or k in models for k, _ in mix):
        return mix
    best = max(models, key=worth.__getitem__)
    shares: dict[int, float] = {}
    for k, share in mix:
        to = k if k == SKIP or k in models else best
        shares[to] = shares.get(to, 0.0) + share
    return tuple(shares.items())


def _drawn(mix: Mix, rng: np.random.Generator) -> tuple[int, float]:
    """Return the drawn model and its probability."""
    if len(mix) == 1:
        return mix[0][0], 1.0
    at = rng.random()
    for k, share in mix:
        at -= share
        if at < 0.0:
            return k, share
    return mix[-1]
