"""What a policy is: from a context and a rate to a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np

from wiserouter.budgets.budget import Debit
from wiserouter.budgets.funds import Funds
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals.shift import Shift
from wiserouter.planning.choice_inputs import ContextFigures, Counts, ExplorationFigures
from wiserouter.planning.plan import SKIP, Plan
from wiserouter.planning.reserve_rule import ReserveRule, room_usd
from wiserouter.pricing.pool import Model
from wiserouter.types import NO_CONTEXT, FloatArray

Accounting = Literal["actual", "paper"]

Rule = Literal["plan", "explore", "cheapest"]
"""What chose: the plan's mix, exploration, or the cheapest model because the budget is used up."""

Mix = tuple[tuple[int, float], ...]
"""The models that could be drawn (`SKIP` for the null action), each with its probability; they sum to 1."""

_ROUNDING = 1e-9
"""Worths this close are equal."""


class Choice(NamedTuple):
    """A drawn model (`SKIP` for the null action), the figures behind it, and what else could have been drawn.

    Cost and reward are those expected of this query; `figures` holds the means of its context, and `floor_usd` the
    least mean cost of a request.
    """

    model: int
    probability: float
    shadow_price: float
    expected_cost_usd: float
    expected_reward: float
    debit: Debit
    mix: Mix = ()
    figures: ContextFigures | ExplorationFigures | None = None
    rule: Rule = "plan"
    floor_usd: float = 0.0


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
    reserve_rule : ReserveRule or None
        The reserve rule, where it is kept.
    counts : Counts or None
        How many costs and rewards are behind the plan.
    means : list of list of float or None
        Mean rewards per context, where the plan's are not these.
    """

    plan: Plan
    debit: Debit
    reserve_rule: ReserveRule | None = None
    counts: Counts | None = None
    means: list[list[float]] | None = None
    _bases: dict[int, ContextFigures] = field(default_factory=dict)

    def choose(
        self,
        context: int,
        funds: Funds,
        rng: np.random.Generator,
        allowed: Collection[int] | None = None,
        shift: Shift | None = None,
    ) -> Choice:
        """Draw from the plan's mix; below its floor, take the cheapest models.

        A model that is not allowed, or that the reserve rule excludes, is replaced by the permitted one with the best
        reward less shadow price x cost, which is what the linear program itself maximises in each context at that
        price. Of a query that deviates from its context that is maximised by its own reward and cost.
        """
        if shift is not None:
            return self._choose_shifted(context, funds, rng, allowed, shift)
        plan, rate = self.plan, funds.rate_usd
        floor = plan.floor_usd
        low, high, share, price = plan.split(context, rate if rate > floor else floor)
        price = price if rate >= floor else float("inf")
        drawn = high if share and rng.random() < share else low
        figures = self._bases.get(context) or self.figures(context)
        held = figures.guarded_cost_usd
        room = float("inf") if held is None else room_usd(funds, floor, figures.drift_margin_usd)
        if allowed is not None or (held is not None and (held[low] > room or held[high] > room)):
            permitted = _permitted(figures, room, allowed, plan.n_models)
            if not all(k == SKIP or k in permitted for k in (low, high)):
                best = min(permitted, key=_worth(figures.weighed, figures.costs_usd, price))
                drawn, low, high = (k if k == SKIP or k in permitted else best for k in (drawn, low, high))
        if share and low != high:
            probability = share if drawn == high else 1.0 - share
            mix: Mix = ((low, 1.0 - share), (high, share))
        else:
            probability, mix = 1.0, ((drawn, 1.0),)
        reward, cost = (figures.rewards[drawn], figures.costs_usd[drawn]) if drawn != SKIP else (0.0, 0.0)
        return Choice(drawn, probability, price, cost, reward, self.debit, mix, figures, "plan", floor)

    def figures(self, context: int) -> ContextFigures:
        """Return what the plan knows of a context; made once."""
        known = self._bases.get(context)
        if known is None:
            means = None if self.means is None else self.means[context]
            known = self._bases[context] = figures_of(self.plan, context, self.reserve_rule, self.counts, means)
        return known

    def revise(self, context: int, estimates: Estimates, means: list[float]) -> None:
        """Take over what the plan and the estimates now hold of one context."""
        if self.reserve_rule is not None:
            self.reserve_rule.revise(context)
        if self.counts is not None:
            self.counts.revise(context, estimates)
        if self.means is not None:
            self.means[context] = means
        self._bases.pop(context, None)

    def _choose_shifted(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Collection[int] | None, shift: Shift
    ) -> Choice:
        """Take the permitted model that is worth most to this query; the plan's own two models at a tie.

        The choice tells the cost and the mean reward of this query; its figures stays that of the context.
        """
        rate, floor, figures = funds.rate_usd, self.plan.floor_usd, self.figures(context)
        low, high, share, price = self.plan.split(context, max(rate, floor))
        price = float("inf") if rate < floor else price if shift.shadow_price is None else shift.shadow_price
        own = figures.shifted(shift)
        reward, cost = [*own.weighed, 0.0], [*own.costs_usd, 0.0]  # index -1: nothing
        worth = (
            [-c for c in cost] if price == float("inf") else [r - price * c for r, c in zip(reward, cost, strict=True)]
        )
        models = self._bearable(own, funds, allowed, floor)
        best = max(models, key=lambda k: (worth[k], -cost[k]))
        least = worth[best] - _ROUNDING * max(1.0, abs(worth[best]))
        tied = [k for k in (low, high) if k in models and worth[k] >= least]
        if len(tied) == 2 and share:
            drawn = high if rng.random() < share else low
            probability = share if drawn == high else 1.0 - share
            mix: Mix = ((low, 1.0 - share), (high, share))
        else:
            drawn, probability = (tied or [best])[0], 1.0
            mix = ((drawn, 1.0),)
        mean = 0.0 if drawn == SKIP else own.rewards[drawn]
        return Choice(drawn, probability, price, cost[drawn], mean, self.debit, mix, figures, "plan", floor)

    def _bearable(
        self, own: ContextFigures, funds: Funds, allowed: Collection[int] | None, floor_usd: float
    ) -> Collection[int]:
        """Return the allowed models that the reserve rule permits at this query's cost, or the cheapest allowed one."""
        models = range(self.plan.n_models) if allowed is None else allowed
        held = own.guarded_cost_usd
        if held is not None:
            room = room_usd(funds, floor_usd, own.drift_margin_usd)
            models = [k for k in models if held[k] <= room] or [min(models, key=lambda k: own.costs_usd[k])]
        return [SKIP, *models] if self.plan.allow_skip else models


def _permitted(figures: ContextFigures, room: float, allowed: Collection[int] | None, n_models: int) -> Collection[int]:
    """Return the allowed models that the reserve rule permits, or the cheapest allowed one."""
    models, held = range(n_models) if allowed is None else allowed, figures.guarded_cost_usd
    prudent = models if held is None else [k for k in models if held[k] <= room]
    return prudent or [min(models, key=_worth(figures.weighed, figures.costs_usd, float("inf")))]


def best_at_price(plan: Plan, context: int, shadow_price: float, allowed: Collection[int]) -> int:
    """Return the allowed model with the best reward less shadow price x cost; the cheaper one at a tie.

    Examples
    --------
    >>> plan = Plan(freq=[1.0], reward=[[0.2, 0.5, 0.9]], cost_usd=[[1, 2, 9]])
    >>> best_at_price(plan, 0, 0.1, [0, 1]), best_at_price(plan, 0, float("inf"), [1, 2])
    (1, 1)
    """
    return min(allowed, key=_worth_in(plan, context, shadow_price))


def by_worth(plan: Plan, context: int, shadow_price: float) -> list[int]:
    """Return all models by falling reward less shadow price x cost."""
    return sorted(range(plan.n_models), key=_worth_in(plan, context, shadow_price))


def _worth_in(plan: Plan, context: int, shadow_price: float) -> Callable[[int], tuple[float, float]]:
    return _worth(plan.reward[context].tolist(), plan.cost_usd[context].tolist(), shadow_price)


def _worth(reward: list[float], cost: list[float], shadow_price: float) -> Callable[[int], tuple[float, float]]:
    """Return the sorting key that puts the best model first; at an infinite price that is the cheapest one."""
    if shadow_price == float("inf"):
        return lambda k: (cost[k], -reward[k])
    return lambda k: (shadow_price * cost[k] - reward[k], cost[k])


def figures_of(
    plan: Plan,
    context: int,
    reserve_rule: ReserveRule | None = None,
    counts: Counts | None = None,
    means: list[float] | None = None,
) -> ContextFigures:
    """Return what a plan, its reserve rule and its counts say of one context; `means` where it weighs other rewards."""
    unknown, planned = [0.0] * plan.n_models, plan.reward[context].tolist()
    return ContextFigures(
        planned if means is None else means,
        plan.cost_usd[context].tolist(),
        counts.calls[context].tolist() if counts is not None else unknown,
        counts.labels[context].tolist() if counts is not None else unknown,
        plan.envelope_models(context),
        reserve_rule.guarded_cost_usd(context) if reserve_rule is not None else None,
        None if means is None else planned,
        reserve_rule.drift_margin_usd if reserve_rule is not None else None,
    )


def cheapest_choice(
    plan: Plan | None, context: int, models: Collection[int], list_price_usd: Callable[[int], float]
) -> Choice:
    """Return the cheapest model of `context`: by the plan's means, or by list price where there is no plan yet."""
    price = float("inf")
    if plan is None:
        model = min(models, key=list_price_usd)
        return Choice(model, 1.0, price, 0.0, 0.0, "actual", ((model, 1.0),), rule="cheapest")
    if context == NO_CONTEXT:
        plan, context = plan.without_context(), 0
    model = best_at_price(plan, context, price, models)
    known = figures_of(plan, context)
    reward, cost = known.means(model)
    return Choice(model, 1.0, price, cost, reward, "actual", ((model, 1.0),), known, "cheapest")
