r"""LinUCB (Li et al. 2010, Algorithm 1: disjoint models) on the indicator of the context.

With one-hot features :math:`e_j` the matrix :math:`A_k = I + \sum e_j e_j^\top` is diagonal, so that the ridge
regression and its confidence width are separate for each pair: with `n` rewards of sum `s`,

.. math:: \frac{s}{n + 1} + \frac{\alpha}{\sqrt{n + 1}} .
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from wiserouter.evaluation.simulation.budget_aware import BudgetAware, best_of, draw

ALPHA = 1.0


class LinUcb(BudgetAware):
    """Chooses the affordable model with the highest upper confidence bound on its reward."""

    name = "linucb"

    def pick(self, context: int, models: Sequence[int], rng: np.random.Generator) -> tuple[int, float]:
        """Return the model with the highest bound, or one of those tied."""
        total, n = self._estimates.reward[context].tolist(), self._estimates.labels[context].tolist()
        bound = [s / (count + 1.0) + ALPHA / sqrt(count + 1.0) for s, count in zip(total, n, strict=True)]
        best = best_of(bound, models)
        return draw(best, rng), 1.0 / len(best)
