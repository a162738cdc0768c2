r"""What a batch costs beyond its estimates because an allocation prefers models that look cheap (the winner's curse).

With estimates :math:`c = \theta + \epsilon` and :math:`n(c)` queries on each model, the total is underestimated by
:math:`-\mathbb{E} \sum n(c)\,\epsilon`, the covariance of the allocation with the errors (Stein 1981; Efron
2004). It is found by a parametric bootstrap: errors are drawn, and the allocation at costs with them is compared with
that without,

.. math:: -\frac{1}{B} \sum_b \sum_{jk} \big(n_{jk}(c + \epsilon^b) - n_{jk}(c)\big)\,\epsilon^b_{jk} ,

whose second term has the mean 0 and takes most of the noise away.
"""

from __future__ import annotations

import numpy as np

from wiserouter.planning.batch_allocation import BatchProgram
from wiserouter.planning.batch_margin import CostErrors
from wiserouter.types import FloatArray, IntArray

DRAWS = 16
"""Draws of the bootstrap."""

MOST_ROWS = 2_000
"""Queries on which it is done, drawn from all where there are more."""


def selection_usd(reward: FloatArray, cost_usd: FloatArray, errors: CostErrors, budget_usd: float) -> float:
    """Return the mean by which the cost of the best allocation is underestimated; at least 0."""
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(reward))[:MOST_ROWS]
    reward, cost_usd, scale = reward[rows], cost_usd[rows], len(reward) / len(rows)
    at, each = np.arange(len(rows)), budget_usd / scale
    plain, found = _models(reward, cost_usd, each), []
    for _ in range(DRAWS):
        error = errors.drawn(rng)[errors.group[rows]]
        drawn = _models(reward, np.maximum(cost_usd + error, 0.0), each)
        found.append(float((error[at, plain] - error[at, drawn]).sum()))
    return max(scale * float(np.mean(found)), 0.0)


def _models(reward: FloatArray, cost_usd: FloatArray, budget_usd: float) -> IntArray:
    program = BatchProgram(reward, cost_usd)
    return program.allocate(max(budget_usd, program.floor_usd)).model
