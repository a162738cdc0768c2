"""MetaLLM (Nguyen et al., arXiv 2407.10834): upper confidence bound on reward minus a price p times cost.

As the paper adapts it (Appendix "Baseline Implementation"): per context, on the statistics that all methods have; p is
the grid value whose cost on a validation part (10 % of the training half) comes closest to the budget, scaled to that
part, without exceeding it; ties are broken at random. The authors' code does not learn while it serves, nor does this.
With a dense history all models of a context have been tried equally often, so that their bonuses are equal. If every p
is too expensive the largest is taken, which selects the cheapest model of each context.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from wiserouter.learning.estimates import Estimates
from wiserouter.types import FloatArray

VALIDATION = 0.1
"""Share of the training half on which p is tuned."""

N_PRICES = 200
"""Number of prices on the grid, in addition to 0."""


class MetaLlm(Method):
    """The model with the highest bound minus a fixed price times cost."""

    name = "metallm"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Estimate the means on nine tenths, and compute the cost of the rest under every p."""
        reward, cost_usd = training.table()
        order = rng.permutation(training.n_queries)
        held, kept = np.split(order, [max(1, round(VALIDATION * len(order)))])
        estimates = Estimates(training.contexts.n_contexts, training.n_models)
        estimates.add_table(training.context_ids[kept], reward[kept], cost_usd[kept])
        means = estimates.means(shrink=False)
        bound = means.reward + bonus(estimates.labels)
        prices = price_grid(means.cost_usd)
        chosen = [(bound - p * means.cost_usd).argmax(axis=1)[training.context_ids[held]] for p in prices]
        spend = np.array([cost_usd[held, models].mean() for models in chosen])
        return _FittedMetaLlm(bound, means.cost_usd, prices, spend)


def bonus(count: FloatArray) -> FloatArray:
    """Return the UCB1 bonus (Auer et al. 2002) for counts of shape (n_contexts, n_models)."""
    total = np.maximum(count.sum(axis=1, keepdims=True), 2.0)
    return np.asarray(np.sqrt(2.0 * np.log(total) / np.maximum(count, 1.0)), np.float64)


def price_grid(cost_usd: FloatArray) -> FloatArray:
    """Return 0 and prices up to that at which a tenth of the lowest mean cost outweighs a reward of 1.

    Examples
    --------
    >>> price_grid(np.array([[0.1, 10.0]]))[[0, 1, -1]]
    array([0.e+00, 1.e-03, 1.e+02])
    """
    low, high = cost_usd[cost_usd > 0.0].min(), cost_usd.max()
    return np.append(0.0, np.geomspace(0.01 / high, 10.0 / low, N_PRICES))


@dataclass(frozen=True)
class _FittedMetaLlm(FittedMethod):
    bound: FloatArray
    cost_usd: FloatArray
    prices: FloatArray
    spend_usd: FloatArray

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        fitting = np.where(self.spend_usd <= terms.rate_usd, self.spend_usd, -1.0)
        at = int(fitting.argmax()) if fitting.max() >= 0.0 else len(self.prices) - 1
        score = self.bound - self.prices[at] * self.cost_usd
        return _Drawing([np.flatnonzero(row == row.max()).tolist() for row in score], rng)


@dataclass(frozen=True)
class _Drawing(Server):
    """Draws among the tied models of each context."""

    tied: list[list[int]]
    rng: np.random.Generator

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        tied = self.tied[query.context]
        model = tied[0] if len(tied) == 1 else tied[int(self.rng.integers(len(tied)))]
        call(model)
        return model
