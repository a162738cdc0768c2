"""Practice: a method serves the training half once in random order, and learns from its own calls alone."""

from __future__ import annotations

import numpy as np

from wiserouter.evaluation.baselines.base import Funds, Server, Training


def practise(server: Server, training: Training, rate_usd: float, rng: np.random.Generator) -> None:
    """Serve the training half under a budget of its own at the same rate; the calls are paid as training data."""
    n, left_usd = training.n_queries, rate_usd * training.n_queries
    for t, i in enumerate(rng.permutation(n).tolist()):
        query, calls = training.query(i), PracticeCalls(training, i)
        server.serve(query, Funds(left_usd, n - t, share=1.0 - t / n), calls.call)
        for model, (reward, cost_usd) in calls.answers.items():
            server.learn(query, model, reward, cost_usd)
            left_usd -= cost_usd


class PracticeCalls:
    """The calls on one query of the training half, by its row; the half bills them."""

    def __init__(self, training: Training, query: int) -> None:
        self._training, self._query = training, query
        self.answers: dict[int, tuple[float, float]] = {}

    def call(self, model: int) -> float:
        """Buy the answer of one model, and return its cost in USD."""
        self.answers[model] = self._training.ask(self._query, model)
        return self.answers[model][1]
