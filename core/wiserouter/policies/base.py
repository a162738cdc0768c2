"""What a policy is: from a context and a rate to a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from wiserouter.budget import Debit, Funds
from wiserouter.estimates import Estimates
from wiserouter.finer.shift import Shift
from wiserouter.plan import SKIP, Plan
from wiserouter.policies.caution import Caution
from wiserouter.types import NO_CONTEXT, FloatArray, Model

Accounting = Literal["actual", "paper"]

_ROUNDING = 1e-9
"""Worths this close are equal."""


class Choice(NamedTuple):
    """A drawn model (`SKIP` for the null action) and the figures behind it."""

    model: int
    probability: float
    shadow_price: float
    expected_cost_usd: float
    expected_reward: float
    debit: Debit


class Policy(Protocol):
    """Chooses a model for each query, so that the workload's budget buys the most reward."""

    @property
    def name(self) -> str:
        """What an artifact calls the policy."""
        ...

    @property
    def plan(self) -> Plan | None:
        """The linear program at the current estimates; None before anything is known."""
        ...

    def bind(self, freq: FloatArray, estimates: Estimates, models: Sequence[Model] = ()) -> None:
        """Take the context frequencies, the estimates that the router keeps up to date, and the pool."""
        ...

    def choose(
        self,
        context: int,
        funds: Funds,
        rng: np.random.Generator,
        allowed: Collection[int] | None = None,
        shift: Shift | None = None,
    ) -> Choice:
        """Draw a model for a query of `context`, or of `NO_CONTEXT`, among `allowed` where that is given.

        `shift` is how the query deviates from the means of its context, where that is known.
        """
        ...

    def settings(self) -> dict[str, object]:
        """Return the keyword arguments that make an equal policy, for an artifact."""
        ...


@dataclass(frozen=True, slots=True)
class Mixture:
    """A plan to draw from.

    Attributes
    ----------
    plan : Plan
        The linear program.
    debit : {"actual", "paper"}
        What planning debits for a call: its true, or its expected cost.
    caution : Caution or None
        The reserve rule, where it is kept.
    """

    plan: Plan
    debit: Debit
    caution: Caution | None = None

    def choose(
        self,
        context: int,
        funds: Funds,
        rng: np.random.Generator,
        allowed: Collection[int] | None = None,
        shift: Shift | None = None,
    ) -> Choice:
        """Draw from the plan's mix; below its floor, take the cheapest models.

        A model that is not allowed, or that caution rules out, is replaced by the permitted one with the best reward
        less shadow price x cost, which is what the linear program itself maximises in each context at that price. Of a
        query that deviates from its context that is maximised by its own reward and cost.
        """
        if shift is not None:
            return self._choose_shifted(context, funds, rng, allowed, shift)
        rate, floor = funds.rate_usd, self.plan.floor_usd
        low, high, share, price = self.plan.split(context, max(rate, floor))
        price = price if rate >= floor else float("inf")
        drawn = high if share and rng.random() < share else low
        probability = 1.0 if not share else share if drawn == high else 1.0 - share
        if allowed is not None or (self.caution is not None and not self.caution.permits(context, funds, low, high)):
            permitted = self._permitted(context, funds, allowed)
            stand_in = {k: self._stand_in(context, price, permitted, k) for k in (low, high)}
            drawn = stand_in[drawn]
            probability = (stand_in[low] == drawn) * (1.0 - share) + (stand_in[high] == drawn) * share
        return _choice(self.plan, context, drawn, probability, price, self.debit)

    def _choose_shifted(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Collection[int] | None, shift: Shift
    ) -> Choice:
        """Take the permitted model that is worth most to this query; the plan's own two models at a tie."""
        rate, floor = funds.rate_usd, self.plan.floor_usd
        low, high, share, price = self.plan.split(context, max(rate, floor))
        price = float("inf") if rate < floor else price if shift.shadow_price is None else shift.shadow_price
        reward, cost = ([*row.tolist(), 0.0] for row in shift.applied(*self._means(context)))  # index -1: nothing
        worth = (
            [-c for c in cost] if price == float("inf") else [r - price * c for r, c in zip(reward, cost, strict=True)]
        )
        models = self._bearable(context, funds, allowed, cost)
        best = max(models, key=lambda k: (worth[k], -cost[k]))
        least = worth[best] - _ROUNDING * max(1.0, abs(worth[best]))
        tied = [k for k in (low, high) if k in models and worth[k] >= least]
        if len(tied) == 2 and share:
            drawn = high if rng.random() < share else low
            probability = share if drawn == high else 1.0 - share
        else:
            drawn, probability = (tied or [best])[0], 1.0
        return Choice(drawn, probability, price, cost[drawn], reward[drawn], self.debit)

    def _means(self, context: int) -> tuple[FloatArray, FloatArray]:
        return self.plan.reward[context], self.plan.cost_usd[context]

    def _bearable(
        self, context: int, funds: Funds, allowed: Collection[int] | None, cost_usd: list[float]
    ) -> Collection[int]:
        """Return the allowed models that caution permits at this query's cost, or the cheapest allowed one."""
        models = range(self.plan.n_models) if allowed is None else allowed
        caution = self.caution
        if caution is not None:
            mean_usd = self.plan.cost_usd[context].tolist()
            models = [
                k for k in models if caution.permits(context, funds, k, beyond_usd=cost_usd[k] - mean_usd[k])
            ] or [min(models, key=lambda k: cost_usd[k])]
        return [SKIP, *models] if self.plan.allow_skip else models

    def _permitted(self, context: int, funds: Funds, allowed: Collection[int] | None) -> Collection[int]:
        """Return the allowed models that caution permits, or the cheapest allowed one."""
        models = range(self.plan.n_models) if allowed is None else allowed
        caution = self.caution
        prudent = models if caution is None else [k for k in models if caution.permits(context, funds, k)]
        return prudent or [best_at_price(self.plan, context, float("inf"), models)]

    def _stand_in(self, context: int, price: float, permitted: Collection[int], model: int) -> int:
        keep = model == SKIP or model in permitted
        return model if keep else best_at_price(self.plan, context, price, permitted)


def best_at_price(plan: Plan, context: int, shadow_price: float, allowed: Collection[int]) -> int:
    """Return the allowed model with the best reward less shadow price x cost; the cheaper one at a tie.

    Examples
    --------
    >>> plan = Plan(freq=[1.0], reward=[[0.2, 0.5, 0.9]], cost_usd=[[1, 2, 9]])
    >>> best_at_price(plan, 0, 0.1, [0, 1]), best_at_price(plan, 0, float("inf"), [1, 2])
    (1, 1)
    """
    return min(allowed, key=_worth(plan, context, shadow_price))


def by_worth(plan: Plan, context: int, shadow_price: float) -> list[int]:
    """Return all models by falling reward less shadow price x cost."""
    return sorted(range(plan.n_models), key=_worth(plan, context, shadow_price))


def _worth(plan: Plan, context: int, shadow_price: float) -> Callable[[int], tuple[float, float]]:
    """Return the sorting key that puts the best model first; at an infinite price that is the cheapest one."""
    reward, cost = plan.reward[context].tolist(), plan.cost_usd[context].tolist()
    if shadow_price == float("inf"):
        return lambda k: (cost[k], -reward[k])
    return lambda k: (shadow_price * cost[k] - reward[k], cost[k])


def _choice(plan: Plan, context: int, model: int, probability: float, price: float, debit: Debit) -> Choice:
    if model == SKIP:
        return Choice(SKIP, probability, price, 0.0, 0.0, debit)
    cost, reward = float(plan.cost_usd[context, model]), float(plan.reward[context, model])
    return Choice(model, probability, price, cost, reward, debit)


def cheapest_choice(
    plan: Plan | None, context: int, models: Collection[int], list_price_usd: Callable[[int], float]
) -> Choice:
    """Return the cheapest model of `context`: by the plan's means, or by list price where there is no plan yet."""
    if plan is None:
        return Choice(min(models, key=list_price_usd), 1.0, float("inf"), 0.0, 0.0, "actual")
    if context == NO_CONTEXT:
        plan, context = plan.without_context(), 0
    return _choice(plan, context, best_at_price(plan, context, float("inf"), models), 1.0, float("inf"), "actual")
