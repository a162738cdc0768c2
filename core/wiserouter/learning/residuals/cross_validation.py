"""Held-out predictions: for queries that the fit has not seen.

The choice between estimators, and the price curve, rest on these: in-sample predictions look better than they are, so
that a price read off them spends too much or too little. Means of contexts and costs by length are cross-validated in
folds, the regression leaves out one query at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import Estimates, Means
from wiserouter.learning.residuals.ridge import Ridge
from wiserouter.learning.residuals.ridge_selection import RidgeSettings, select_ridge
from wiserouter.learning.residuals.sample import Sample
from wiserouter.learning.residuals.shift import LEAST_SHARE
from wiserouter.learning.residuals.token_cost import LengthCost
from wiserouter.types import FloatArray

N_FOLDS = 5


class HeldOut(NamedTuple):
    """Predictions for every query of a sample, by fits that have not seen it.

    Attributes
    ----------
    reward, cost_usd : ndarray of shape (n_queries, n_models)
        Means of the query's context.
    cost_shift_usd : ndarray of shape (n_queries, n_models)
        The deviation of the cost that the query's length predicts.
    ridge : RidgeSettings or None
        The settings of the regression on the embedding, and its predictions.
    """

    reward: FloatArray
    cost_usd: FloatArray
    cost_shift_usd: FloatArray
    ridge: RidgeSettings | None

    def predicted(self, estimator: str, *, token_cost: bool) -> tuple[FloatArray, FloatArray]:
        """Return the predicted rewards and costs of an estimator."""
        reward = self.ridge.reward if self.ridge is not None and estimator == Ridge.name else self.reward
        by_length = np.maximum(self.cost_usd + self.cost_shift_usd, LEAST_SHARE * self.cost_usd)
        return reward, by_length if token_cost else self.cost_usd


def hold_out(sample: Sample, n_contexts: int, input_price_usd: ArrayLike, seed: int, *, ridge: bool) -> HeldOut:
    """Return held-out predictions of context means, of costs by length, and if asked for of the regression.

    Raises
    ------
    InvalidInput
        If there are fewer queries than folds.
    """
    if len(sample) < N_FOLDS:
        raise InvalidInput(f"to estimate single queries the log must hold at least {N_FOLDS}, got {len(sample)}")
    fold = np.random.default_rng(seed).permutation(len(sample)) % N_FOLDS
    reward, cost, by_length = (np.zeros(sample.reward.shape) for _ in range(3))
    for f in range(N_FOLDS):
        out = fold == f
        train, test = sample.rows(~out), sample.rows(out)
        means = context_means(train, n_contexts)
        reward[out], cost[out] = means.reward[test.contexts], means.cost_usd[test.contexts]
        by_length[out] = fit_length(train, n_contexts, input_price_usd).shifts(test.tokens, test.contexts)
    return HeldOut(reward, cost, by_length, select_ridge(sample, cost, seed) if ridge else None)


def context_means(sample: Sample, n_contexts: int) -> Means:
    """Return the shrunk means of a sample's contexts."""
    estimates = Estimates(n_contexts, sample.reward.shape[1])
    estimates.add_table(sample.contexts, sample.reward, sample.cost_usd)
    return estimates.means()


def fit_length(sample: Sample, n_contexts: int, input_price_usd: ArrayLike) -> LengthCost:
    """Return costs by length, fitted on a sample."""
    return LengthCost(n_contexts, input_price_usd).fit(sample.tokens, sample.contexts, sample.cost_usd)
