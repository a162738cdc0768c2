"""The truth about a workload: the range of budgets that matter, and the best use of a budget with all outcomes known.

The unit is what is scored: an agent run, or one answer of a chat. Each costs as with a model that has served all of its
conversation, so that no policy pays less for its caches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.conversations.history import ServedAlone
from wiserouter.evaluation.conversations.session_loop import Served
from wiserouter.planning.plan import Plan
from wiserouter.types import FloatArray, IntArray


class ScoredUnits(NamedTuple):
    """All runs or answers of a workload.

    Attributes
    ----------
    contexts : ndarray of int of shape (n,)
        The context of each.
    quality, cost_usd : ndarray of shape (n, n_models)
        Expected reward and cost with each model.
    calls : int
        Mean number of calls in all, over the models.
    """

    contexts: IntArray
    quality: FloatArray
    cost_usd: FloatArray
    calls: int

    @classmethod
    def of(cls, alone: list[list[ServedAlone]]) -> ScoredUnits:
        """Return the units of conversations that each model served alone."""
        contexts: list[int] = []
        quality: list[list[float]] = []
        cost_usd: list[list[float]] = []
        for row in alone:
            each = [_units_of(one) for one in row]
            contexts += each[0][0]
            quality += map(list, zip(*(of[1] for of in each), strict=True))
            cost_usd += map(list, zip(*(of[2] for of in each), strict=True))
        calls = sum(len(one.calls) for row in alone for one in row) // len(alone[0])
        return cls(np.array(contexts), np.array(quality), np.array(cost_usd), calls)

    def range_usd(self) -> tuple[float, float]:
        """Return the total cost with the cheapest model of each context, and with the best one of each."""
        known = sorted(set(self.contexts.tolist()))
        cost_usd = np.array([self.cost_usd[self.contexts == j].sum(axis=0) for j in known])
        quality = np.array([self.quality[self.contexts == j].mean(axis=0) for j in known])
        best_usd = np.take_along_axis(cost_usd, quality.argmax(axis=1)[:, np.newaxis], axis=1)
        return float(cost_usd.min(axis=1).sum()), float(best_usd.sum())

    def best_possible(self, budget_usd: float) -> Served:
        """Return the bound: the linear program of the budget over all units; it wastes nothing."""
        n = len(self.quality)
        plan = Plan(np.full(n, 1.0 / n), self.quality, self.cost_usd)
        rate_usd = max(budget_usd / n, plan.floor_usd)
        return Served(plan.value(rate_usd), plan.spend_usd(rate_usd) * n, 0.0, self.calls, 0)


def _units_of(one: ServedAlone) -> tuple[list[int], list[float], list[float]]:
    """Return the contexts, the qualities and the costs of the units of one conversation."""
    qualities = [answer.quality for answer in one.answers if answer.quality is not None]
    if qualities:
        return one.contexts, qualities, one.costs_usd
    return one.contexts[:1], [one.closing.quality], [one.cost_usd]
