"""Always the same model: what a router must beat to be worth having."""

from __future__ import annotations

import numpy as np

from wiserouter.evaluation.baselines.base import Call, Fitted, Funds, Method, Query, Server, Terms, Training


class AlwaysCheapest(Method):
    """The model with the lowest mean cost, whatever the budget."""

    name = "always-cheapest"

    def fit(self, training: Training, rng: np.random.Generator) -> Fitted:
        """Look up the mean costs."""
        return _Always(int(training.leaderboard().cost_usd.argmin()))


class AlwaysBest(Method):
    """The model with the highest mean reward, whatever the budget."""

    name = "always-best"

    def fit(self, training: Training, rng: np.random.Generator) -> Fitted:
        """Look up the mean rewards."""
        return _Always(int(training.leaderboard().reward.argmax()))


class _Always(Fitted, Server):
    """Keeps nothing, so that what was fitted is what serves."""

    def __init__(self, model: int) -> None:
        self._model = model

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        return self

    def serve(self, query: Query, funds: Funds, call: Call) -> int:
        call(self._model)
        return self._model
