"""Held-out predictions: for queries that the fit has not seen.

The choice between estimators, and the price curve, rest on these: in-sample predictions look better than they are, so
that a price read off them spends too much or too little. Means of contexts are cross-validated in folds, the regression
leaves out one query at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import Estimates, Means
from wiserouter.learning.residuals.ridge_selection import RidgeSettings, select_ridge
from wiserouter.learning.residuals.sample import Sample
from wiserouter.types import FloatArray

N_FOLDS = 5


class HeldOut(NamedTuple):
    """Predictions for every query of a sample, by fits that have not seen it.

    Attributes
    ----------
    reward, cost_usd : ndarray of shape (n_queries, n_models)
        Means of the query's context.
    ridge : RidgeSettings
        The settings of the regression on the embedding, and its predictions.
    """

    reward: FloatArray
    cost_usd: FloatArray
    ridge: RidgeSettings


def hold_out(sample: Sample, n_contexts: int, seed: int) -> HeldOut:
    """Return held-out predictions of context means and of the regression.

    Raises
    ------
    InvalidInput
        If there are fewer queries than folds.
    """
    if len(sample) < N_FOLDS:
        raise InvalidInput(f"to estimate single queries the log must hold at least {N_FOLDS}, got {len(sample)}")
    fold = np.random.default_rng(seed).permutation(len(sample)) % N_FOLDS
    reward, cost = np.zeros(sample.reward.shape), np.zeros(sample.reward.shape)
    for f in range(N_FOLDS):
        out = fold == f
        means, contexts = context_means(sample.rows(~out), n_contexts), sample.contexts[out]
        reward[out], cost[out] = means.reward[contexts], means.cost_usd[contexts]
    return HeldOut(reward, cost, select_ridge(sample.embeddings, sample.reward))


def context_means(sample: Sample, n_contexts: int) -> Means:
    """Return the shrunk means of a sample's contexts."""
    estimates = Estimates(n_contexts, sample.reward.shape[1])
    estimates.add_table(sample.contexts, sample.reward, sample.cost_usd)
    return estimates.means()
