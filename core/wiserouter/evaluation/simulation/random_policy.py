"""The baseline that learns nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wiserouter.evaluation.simulation.budget_aware import BudgetAware, draw


class RandomChoice(BudgetAware):
    """Draws any affordable model."""

    name = "random"

    def pick(self, context: int, models: Sequence[int], rng: np.random.Generator) -> tuple[int, float]:
        """Draw one of `models`, each with the same chance."""
        return draw(models, rng), 1.0 / len(models)
