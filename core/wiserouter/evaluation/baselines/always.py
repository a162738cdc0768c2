"""Baselines that always call the same model."""

from __future__ import annotations

import numpy as np

from wiserouter.evaluation.baselines.base import (
    BenchQuery,
    CallModel,
    FittedMethod,
    Funds,
    Method,
    Server,
    Terms,
    Training,
)


class AlwaysCheapest(Method):
    """Always the model with the lowest mean cost, at any budget."""

    name = "always-cheapest"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Look up the mean costs."""
        return _Always(int(training.leaderboard().cost_usd.argmin()))


class AlwaysBest(Method):
    """Always the model with the highest mean reward, at any budget."""

    name = "always-best"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Look up the mean rewards."""
        return _Always(int(training.leaderboard().reward.argmax()))


class _Always(FittedMethod, Server):
    """Has no state per budget, so that the fitted method is also the server."""

    def __init__(self, model: int) -> None:
        self._model = model

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        return self

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        call(self._model)
        return self._model
