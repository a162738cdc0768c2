"""The random baseline, which learns nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wiserouter.evaluation.simulation.budget_aware import BudgetAware, draw


class RandomChoice(BudgetAware):
    """Draws any affordable model uniformly."""

    name = "random"

    def pick(self, context: int, models: Sequence[int], rng: np.random.Generator) -> tuple[int, float]:
        """Return one of `models`, drawn uniformly, and its probability."""
        return draw(models, rng), 1.0 / len(models)
