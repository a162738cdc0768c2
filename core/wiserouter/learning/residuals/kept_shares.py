r"""How much of a regression is kept, for each model: predictions left out, and what became of them.

A regression on few queries says too much. The least-squares slope `b` of the true deviations of a model on the
predicted ones, of queries left out, says how much of it to keep, with the error `v`. Some models follow the text and
others hardly do, so that each has its own share; as each slope is uncertain it is drawn to that of all models, as in a
random-effects meta-analysis of the models' slopes (DerSimonian and Laird 1986):

.. math:: \beta_k = \mu + \frac{t^2}{t^2 + v_k} (b_k - \mu),

with the variance `t2` of the slopes between models by the method of moments, the errors `v` robust to unequal variances
(White 1980), and no share below 0 or above 1.

Where every query has the scores of all models, these are shares of the differences between models, on which routing
rests; the mean of all models on a query, its difficulty, has a share of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.types import FloatArray

LEAST_ERROR = 1e-9
"""Least standard error of a slope: that of rounding."""


class KeptShares(NamedTuple):
    """Shares of a regression.

    Attributes
    ----------
    of_models : ndarray of shape (n_models,)
        What is kept of each model's deviations from the mean of all models, or of its own where `of_all` is None.
    of_all : float or None
        What is kept of the mean of all models; None where queries lack scores of some.

    Examples
    --------
    >>> KeptShares(np.array([1.0, 0.5]), 0.0).of(np.array([[0.4, 0.2]])).round(9).tolist()
    [[0.1, -0.05]]
    """

    of_models: FloatArray
    of_all: float | None

    def of(self, deviations: FloatArray) -> FloatArray:
        """Return the kept part of deviations, or of weights that predict them, of shape (..., n_models)."""
        common = 0.0 if self.of_all is None else deviations.mean(axis=-1, keepdims=True)
        kept: FloatArray = self.of_models * (deviations - common) + (self.of_all or 0.0) * common
        return kept


def kept_shares(predicted: FloatArray, true: FloatArray) -> KeptShares:
    """Return the shares, from predictions of queries that are left out.

    Parameters
    ----------
    predicted, true : ndarray of shape (n_queries, n_models)
        Deviations from the mean reward of each model; `true` is NaN where not observed.

    Examples
    --------
    >>> predicted = np.array([[0.2, -0.2], [-0.2, 0.2], [0.1, -0.1]])
    >>> kept_shares(predicted, 0.5 * predicted).of_models.round(9).tolist()
    [0.5, 0.5]
    """
    if np.isnan(true).any():
        return KeptShares(_shares(predicted, true), None)
    all_models, of_all = (values.mean(axis=1, keepdims=True) for values in (predicted, true))
    return KeptShares(_shares(predicted - all_models, true - of_all), float(_shares(all_models, of_all)[0]))


def _shares(predicted: FloatArray, true: FloatArray) -> FloatArray:
    """Return the share of each column: its slope, drawn to that of all columns."""
    x, y = np.where(np.isnan(true), 0.0, predicted), np.nan_to_num(true)
    squares = (x**2).sum(axis=0)
    tells = squares > 0.0
    x, y, squares = x[:, tells], y[:, tells], squares[tells]
    slope = (x * y).sum(axis=0) / squares
    error_sq = np.maximum((((y - slope * x) * x) ** 2).sum(axis=0) / squares**2, LEAST_ERROR**2)
    weight = 1.0 / error_sq
    freedom = weight.sum() - (weight**2).sum() / max(weight.sum(), LEAST_ERROR)
    excess = (weight * (slope - _mean(slope, weight)) ** 2).sum() - (len(slope) - 1.0)
    between = max(excess, 0.0) / freedom if freedom > 0.0 else 0.0
    weight = 1.0 / (between + error_sq)
    common = _mean(slope, weight)
    shares: FloatArray = np.full(len(tells), common)
    shares[tells] = common + between * weight * (slope - common)
    return shares.clip(0.0, 1.0)


def _mean(slope: FloatArray, weight: FloatArray) -> float:
    return float(weight @ slope / weight.sum()) if len(slope) else 0.0
