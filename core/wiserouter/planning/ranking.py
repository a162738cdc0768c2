"""Rankings of the models of one context by their worth at a shadow price: reward less price x cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from wiserouter.planning.choice_inputs import ContextFigures
from wiserouter.planning.plan import Plan
from wiserouter.pricing.pool import Pool
from wiserouter.types import NO_CONTEXT, Decision


def ranked(figures: ContextFigures, names: Sequence[str], decision: Decision) -> list[str]:
    """Return all models: the one decided, then the others by worth at the decision's shadow price."""
    order = sorted(range(len(names)), key=worth_order(figures.rewards, figures.costs_usd, decision.shadow_price))
    return _chosen_first([names[k] for k in order], decision)


def ranked_by_plan(plan: Plan | None, pool: Pool, decision: Decision) -> list[str]:
    """Return all models as `ranked` does, by the present plan; without a plan the others follow by list price."""
    context = decision.context
    if plan is None:
        order = sorted(range(len(pool)), key=pool.list_price_usd)
    else:
        at = (plan.without_context(), 0) if context == NO_CONTEXT else (plan, context)
        order = sorted(range(plan.n_models), key=_worth_order_in(*at, decision.shadow_price))
    return _chosen_first([pool.names[k] for k in order], decision)


def _chosen_first(names: list[str], decision: Decision) -> list[str]:
    if decision.model not in names:
        return names
    return [decision.model, *[name for name in names if name != decision.model]]


def cheapest_of(plan: Plan, context: int, allowed: Collection[int]) -> int:
    """Return the allowed model that costs least in a context; the better one at a tie.

    Examples
    --------
    >>> cheapest_of(Plan(freq=[1.0], reward=[[0.2, 0.5, 0.9]], cost_usd=[[1, 2, 9]]), 0, [1, 2])
    1
    """
    return min(allowed, key=_worth_order_in(plan, context, float("inf")))


def _worth_order_in(plan: Plan, context: int, shadow_price: float) -> Callable[[int], tuple[float, float]]:
    return worth_order(plan.reward[context].tolist(), plan.cost_usd[context].tolist(), shadow_price)


def worth_order(
    reward: Sequence[float], cost: Sequence[float], shadow_price: float
) -> Callable[[int], tuple[float, float]]:
    """Return the sorting key that puts the best model first; at an infinite price that is the cheapest one."""
    if shadow_price == float("inf"):
        return lambda k: (cost[k], -reward[k])
    return lambda k: (shadow_price * cost[k] - reward[k], cost[k])
