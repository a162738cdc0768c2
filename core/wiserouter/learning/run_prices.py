"""Costs of runs in progress at new prices: what was learned of a run is replaced as it was restated meanwhile."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from wiserouter.types import Decision, FloatArray

MOST_CHANGES = 100
"""Changes of the price of a model that are kept."""

MOST_RUNS = 10_000
"""Runs whose cost was learned after a change of prices, and that are kept."""


class Level(NamedTuple):
    """The level of the prices of a model from a time on, where they began at 1."""

    since_s: float
    level: float


class RunPrices:
    """The levels of prices, and that at which the cost of each run was learned last, with its bills beyond it."""

    def __init__(self) -> None:
        self._levels: dict[int, list[Level]] = {}
        self._learned: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def changed(self, model: int, factor: FloatArray, now_s: float) -> None:
        """Note that all that was learned of a model was restated at `factor` times its price."""
        levels = self._levels.setdefault(model, [Level(float("-inf"), 1.0)])
        level = levels[-1].level * float(np.mean(factor))
        levels.append(Level(now_s, level if 0.0 < level < float("inf") else 1.0))
        del levels[:-MOST_CHANGES]

    def restated(self, decision: Decision, model: int, learned_usd: float, spent_usd: float) -> tuple[float, float]:
        """Return the learned cost of a run as it counts now, and by how much its bills exceed what they count.

        Parameters
        ----------
        decision, model : Decision, int
            The decision of the run, and the index of the model that answered.
        learned_usd : float, USD
            The cost that was learned of it last, of bills and of calls to come.
        spent_usd : float, USD
            The bills among it.
        """
        levels = self._levels.get(model)
        if levels is None:
            return learned_usd, 0.0
        at = max(bisect_right(levels, decision.decided_at, key=lambda one: one.since_s) - 1, 0)
        then, less_usd = self._learned.pop(decision.id, (levels[at].level, 0.0))
        now = levels[-1].level
        replacing_usd = now / then * (learned_usd - less_usd)
        less_usd = spent_usd - now / then * (spent_usd - less_usd)
        self._learned[decision.id] = now, less_usd
        if len(self._learned) > MOST_RUNS:
            self._learned.popitem(last=False)
        return replacing_usd, less_usd
