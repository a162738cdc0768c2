r"""Caps on the shares of models: no more than a part of the decisions goes to each, and that where it is worth most.

A linear program with the cap :math:`\sum_j \pi_j p_{jk} \le s_k` is solved, at the shadow price of the budget, by
giving the model to the contexts in which it beats the next best by most, until the share is used (a fractional
knapsack of equal weights). The rate of the budget follows what is spent, so that the shadow price becomes that of the
capped program. A count of decisions holds the share in any case, also where estimates or frequencies are wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from wiserouter.planning.plan import Plan
from wiserouter.types import NO_CONTEXT

MEMORY = 0.999
"""Weight of the counts so far at each decision: about the last 1,000 decisions are counted."""


class ShareCaps:
    """The caps of some models, and the decisions that went to them.

    Parameters
    ----------
    most : mapping of int to float
        The largest share of each capped model, by its index.

    Attributes
    ----------
    most : dict of int to float
        The caps.

    Examples
    --------
    >>> caps = ShareCaps({1: 0.5})
    >>> rng, served = np.random.default_rng(0), []
    >>> for _ in range(6):
    ...     free = caps.free(None, 2, NO_CONTEXT, None, 0.0, rng)
    ...     served.append(1 if free is None or 1 in free else 0)
    ...     caps.count(served[-1])
    >>> served
    [1, 0, 1, 0, 1, 0]
    """

    def __init__(self, most: Mapping[int, float]) -> None:
        self.most = dict(most)
        self._served = dict.fromkeys(self.most, 0.0)
        self._decided = 0.0

    def free(
        self,
        allowed: Collection[int] | None,
        n_models: int,
        context: int,
        plan: Plan | None,
        rate_usd: float,
        rng: np.random.Generator,
    ) -> set[int] | None:
        """Return the models that may take one decision, or None for all; a cap never excludes the last one.

        By everything else, `allowed` may take it. Where a context bears only a part of the plan's demand, `rng` draws.
        """
        full = {k for k in self.most if self._is_full(k) or not self._is_drawn(k, context, plan, rate_usd, rng)}
        return _without(full, self.unbanned(allowed, n_models), n_models)

    def unbanned(self, allowed: Collection[int] | None, n_models: int) -> set[int] | None:
        """Return the models whose largest share is not 0, or None for all; all that are allowed if there are none."""
        return _without({k for k, share in self.most.items() if share == 0.0}, allowed, n_models)

    def count(self, model: int) -> None:
        """Count a decision for a model."""
        self._decided = MEMORY * self._decided + 1.0
        for k in self._served:
            self._served[k] = MEMORY * self._served[k] + (k == model)

    def _is_full(self, k: int) -> bool:
        """Return True if a model has had its share of the decisions so far, and so gets none now."""
        share = self.most[k]
        return share < 1.0 and (share == 0.0 or self._served[k] > share * self._decided)

    def _is_drawn(self, k: int, context: int, plan: Plan | None, rate_usd: float, rng: np.random.Generator) -> bool:
        """Return True if a model may have a decision of a context by its part of the share."""
        if plan is None or context == NO_CONTEXT or k >= plan.n_models:
            return True
        part = part_of_context(plan, rate_usd, k, self.most[k], context)
        return part >= 1.0 or bool(rng.random() < part)


def _without(excluded: set[int], allowed: Collection[int] | None, n_models: int) -> set[int] | None:
    """Return the allowed models, None for all, without those excluded unless that leaves none."""
    kept = set(range(n_models) if allowed is None else allowed) - excluded if excluded else None
    return kept or (None if allowed is None else set(allowed))


def part_of_context(plan: Plan, rate_usd: float, model: int, most: float, context: int) -> float:
    """Return the part, in [0, 1], of a context's demand for a model that its largest share `most` bears.

    It is 1 where the plan, which knows no caps, does not ask for the model.

    Examples
    --------
    >>> plan = Plan([0.5, 0.5], reward=[[0.2, 0.9], [0.2, 0.8]], cost_usd=[[1, 3], [1, 3]])
    >>> [part_of_context(plan, 3.0, 1, 0.75, j) for j in (0, 1)]
    [1.0, 0.5]
    """
    rate_usd = max(rate_usd, plan.floor_usd)
    demands = [_demand(plan, j, rate_usd, model) for j in range(plan.n_contexts)]
    if not demands[context]:
        return 1.0
    price = plan.split(context, rate_usd).shadow_price
    gains = [_gain(plan, j, price, model) if demands[j] else 0.0 for j in range(plan.n_contexts)]
    mine = (gains[context], -context)
    before = sum([demand for j, demand in enumerate(demands) if (gains[j], -j) > mine])
    return min(max((most - before) / demands[context], 0.0), 1.0)


def _demand(plan: Plan, context: int, rate_usd: float, model: int) -> float:
    """Return the share of all requests that the plan gives to a model in one context."""
    low, high, share, _ = plan.split(context, rate_usd)
    part = (1.0 - share) * (low == model) + share * (high == model)
    return float(plan.freq[context]) * part


def _gain(plan: Plan, context: int, price: float, model: int) -> float:
    """Return by how much a model is worth more than the next best in one context."""
    worth = (plan.reward[context] - price * plan.cost_usd[context]).tolist()
    others = [one for k, one in enumerate(worth) if k != model]
    return float(worth[model] - max(others, default=0.0))
