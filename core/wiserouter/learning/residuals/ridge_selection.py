"""The penalty of the regression on the embedding, and how much of it is kept, from predictions left out.

The penalty is the one with the least leave-one-out error of the differences between models; `kept_shares` says what of
its predictions to believe, model by model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.learning.residuals.kept_shares import KeptShares, kept_shares
from wiserouter.learning.residuals.ridge import left_out
from wiserouter.types import Embedding, FloatArray

STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0)
"""Penalties that a fit chooses from."""


class RidgeSettings(NamedTuple):
    """The penalty, what is kept, and predictions of each query by fits without it.

    Attributes
    ----------
    strength : float
        The penalty.
    shares : KeptShares
        What is kept.
    mean, reward : ndarray of shape (n_queries, n_models)
        The mean rewards of the models, and what the regression predicts.
    """

    strength: float
    shares: KeptShares
    mean: FloatArray
    reward: FloatArray


def select_ridge(embeddings: Embedding, reward: FloatArray) -> RidgeSettings:
    """Return the settings of the regression for some queries, and its predictions for each without this query.

    Parameters
    ----------
    embeddings : ndarray of shape (n_queries, dim)
        One row per query.
    reward : ndarray of shape (n_queries, n_models)
        Scores, NaN where not observed; each model has at least one.
    """
    *by_text, mean = left_out(embeddings, reward, (*STRENGTHS, np.inf))
    chosen = int(np.argmin([_squares(reward - each) for each in by_text]))
    deviation = by_text[chosen] - mean
    shares = kept_shares(deviation, reward - mean)
    return RidgeSettings(STRENGTHS[chosen], shares, mean, mean + shares.of(deviation))


def _squares(error: FloatArray) -> float:
    """Return the sum of squares of the differences between models; of the errors where models were not observed."""
    differences = error if np.isnan(error).any() else error - error.mean(axis=1, keepdims=True)
    return float(np.nansum(differences**2))
