"""SingleBest (paper, Appendix "Baseline Implementation"): per context the best model within the budget per query.

A query of a context without an affordable model is not served, as the paper's low figures at tight budgets show. The
budget per query is never adapted, and savings in one context are not spent in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wiserouter.evaluation.baselines.base import (
    NOT_SERVED,
    BenchQuery,
    CallModel,
    FittedMethod,
    Funds,
    Method,
    Server,
    Terms,
    Training,
)
from wiserouter.evaluation.baselines.histories import dense
from wiserouter.evaluation.reference_policies import single_best
from wiserouter.learning.estimates import Means


class SingleBest(Method):
    """One model per context, for each budget."""

    name = "single-best"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Compute the mean reward and cost of every context and model."""
        return _FittedSingleBest(dense(training).means(shrink=False))


@dataclass(frozen=True)
class _FittedSingleBest(FittedMethod):
    means: Means

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        contexts = np.arange(len(self.means.reward))
        return _Fixed(single_best(self.means, terms.rate_usd, contexts).tolist())


@dataclass(frozen=True)
class _Fixed(Server):
    models: Sequence[int]

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        model = self.models[query.context]
        if model != NOT_SERVED:
            call(model)
        return model
