"""The constraints of a plan under limits, from the terms of the limits and the estimates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from wiserouter.budgets.limits import Limits, Measure
from wiserouter.planning.limited_plan import LEAST_FREQ, Constraint
from wiserouter.planning.plan import Plan
from wiserouter.types import FloatArray

BUDGET = "budget"
"""Name of the constraint of the budget."""


def budget_constraint(plan: Plan, rate_usd: float, banned: Collection[int]) -> Constraint:
    """Return the constraint of the budget, at no less than the cheapest models cost; it never gives way."""
    kept = [k for k in range(plan.n_models) if k not in banned]
    weights = np.maximum(plan.freq, LEAST_FREQ)
    floor = 0.0 if plan.allow_skip else float(weights @ plan.cost_usd[:, kept].min(axis=1)) / float(weights.sum())
    return Constraint(BUDGET, plan.cost_usd, max(rate_usd, floor * (1.0 + 1e-9)), elastic=False)


def limit_constraints(
    limits: Limits,
    bounds: Mapping[Measure, float],
    uses: Mapping[Measure, FloatArray],
    plan: Plan,
    names: Sequence[str],
    banned: Collection[int],
    *,
    knows_rewards: bool = True,
) -> list[Constraint]:
    """Return the constraints of the limits.

    Parameters
    ----------
    limits : Limits
        Floors of quality and shares of models.
    bounds, uses : mapping of Measure to float, and to ndarray of shape (n_contexts, n_models)
        The mean that each measure may have, and its means.
    plan : Plan
        Frequencies and rewards.
    names, banned : sequence of str, and collection of int
        The models, and those of them that `banned_models` returns.
    knows_rewards : bool, default True
        Whether the plan has rewards; without, floors of quality are left out.
    """
    found = [Constraint(measure.label, uses[measure], bound) for measure, bound in bounds.items()]
    for context, least in limits.quality_floors.items() if knows_rewards else ():
        if context is None or context < plan.n_contexts:
            found.append(_quality_floor(plan, context, least))
    shape = plan.reward.shape
    for label, sign, shares in (("max_share", 1.0, limits.max_share), ("min_share", -1.0, limits.min_share)):
        for name, share in shares.items():
            is_ban = sign > 0.0 and share == 0.0  # kept by giving the model no share, unless no other is in service
            if name in names and not (is_ban and names.index(name) in banned):
                served = np.zeros(shape)
                served[:, names.index(name)] = sign
                found.append(Constraint(f"{label} of {name}", served, sign * share))
    return found


def banned_models(limits: Limits, names: Sequence[str], retired: Collection[int]) -> set[int]:
    """Return the models that get no share: retired ones, and those with a largest share of 0 unless all others are."""
    banned = {k for k, name in enumerate(names) if k in retired or limits.max_share.get(name) == 0.0}
    return banned if len(banned) < len(names) else set(retired)


def _quality_floor(plan: Plan, context: int | None, least: float) -> Constraint:
    if context is None:
        return Constraint("min_quality", -plan.reward, -least)
    use, weights = np.zeros(plan.reward.shape), np.maximum(plan.freq, LEAST_FREQ)
    use[context] = -plan.reward[context] / float(weights[context] / weights.sum())
    return Constraint(f"min_quality of context {context}", use, -least)
