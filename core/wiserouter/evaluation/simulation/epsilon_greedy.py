"""Epsilon-greedy (Sutton and Barto, "Reinforcement Learning", Section 2.2), separately in each context."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wiserouter.evaluation.simulation.budget_aware import BudgetAware, best_of, draw

EPSILON = 0.1


class EpsilonGreedy(BudgetAware):
    """Draws any affordable model with probability 0.1, else the one with the best mean reward (0 if untried)."""

    name = "epsilon-greedy"

    def pick(self, context: int, models: Sequence[int], rng: np.random.Generator) -> tuple[int, float]:
        """Explore or exploit, and return the model with its total probability."""
        total, n = self._estimates.reward[context].tolist(), self._estimates.labels[context].tolist()
        best = best_of([reward / max(count, 1.0) for reward, count in zip(total, n, strict=True)], models)
        model = draw(models if rng.random() < EPSILON else best, rng)
        return model, EPSILON / len(models) + (1.0 - EPSILON) * (model in best) / len(best)
