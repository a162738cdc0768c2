r"""Disjoint LinUCB (Li et al. 2010, Algorithm 1) with a prior and optional forgetting.

For each model a ridge regression :math:`\hat\theta = A^{-1} b` and its bound :math:`x^\top\hat\theta + \alpha \sqrt{
x^\top A^{-1} x}`. With forgetting :math:`\gamma`, at an observation `dt` requests after the model's last one

.. math:: A \leftarrow \gamma^{dt} A + x x^\top, \qquad b \leftarrow \gamma^{dt} b + r x ,

and the variance of a model without an observation for `dt` requests is divided by :math:`\gamma^{dt}`, by a factor of
at most 200; the ridge is restored when it has decayed to a tenth (as in ParetoBandit 0.1.1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wiserouter.types import FloatArray

_MOST_INFLATION = 200.0
_LEAST_RIDGE = 0.1


class LinearArms:
    """One linear model per arm.

    Parameters
    ----------
    gram : ndarray of shape (n_models, dim, dim)
        Prior sums of outer products of the features, without the ridge.
    moment : ndarray of shape (n_models, dim)
        Prior sums of features times rewards.
    ridge : float
        Added to the diagonals.
    forgetting : float
        Gamma; 1 for no forgetting.

    Examples
    --------
    >>> arms = LinearArms(np.zeros((2, 1, 1)), np.zeros((2, 1)))
    >>> arms.learn(0, np.ones(1), 1.0)
    >>> mean, width = arms.bounds(np.ones(1))
    >>> mean.round(3), width.round(3)
    (array([0.5, 0. ]), array([0.707, 1.   ]))
    """

    def __init__(self, gram: FloatArray, moment: FloatArray, ridge: float = 1.0, forgetting: float = 1.0) -> None:
        self._gram = gram + ridge * np.eye(gram.shape[1])
        self._inverse = np.linalg.inv(self._gram)
        self._moment = np.array(moment, np.float64)
        self._theta = np.einsum("kij,kj->ki", self._inverse, self._moment)
        self._ridge, self._forgetting = ridge, forgetting
        self._ridge_left = np.full(len(gram), ridge)
        self._last = np.zeros(len(gram))
        self._now = 0

    def bounds(self, features: NDArray[np.floating]) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the confidence width of every arm, each of shape (n_models,)."""
        variance = np.maximum((self._inverse @ features) @ features, 0.0)
        if self._forgetting < 1.0:
            variance /= np.maximum(self._forgetting ** (self._now - self._last), 1.0 / _MOST_INFLATION)
        return self._theta @ features, np.sqrt(variance)

    def learn(self, model: int, features: NDArray[np.floating], reward: float) -> None:
        """Add the reward of one arm, and advance by one request."""
        self._now += 1
        kept = self._forgetting ** (self._now - self._last[model])
        self._last[model] = self._now
        self._gram[model] = kept * self._gram[model] + np.outer(features, features)
        self._moment[model] = kept * self._moment[model] + reward * features
        self._inverse[model] = _rank_one(self._inverse[model] / kept, features)
        self._ridge_left[model] *= kept
        if self._ridge_left[model] < _LEAST_RIDGE * self._ridge:
            self._restore_ridge(model)
        self._theta[model] = self._inverse[model] @ self._moment[model]

    def _restore_ridge(self, model: int) -> None:
        self._gram[model] += (self._ridge - self._ridge_left[model]) * np.eye(len(self._gram[model]))
        self._inverse[model] = np.linalg.inv(self._gram[model])
        self._ridge_left[model] = self._ridge


def _rank_one(inverse: FloatArray, features: NDArray[np.floating]) -> FloatArray:
    """Return the inverse after adding the outer square of `features` (Sherman and Morrison)."""
    along = inverse @ features
    return np.asarray(inverse - np.outer(along, along) / (1.0 + features @ along), np.float64)


def dense_moments(features: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return gram and moment of a dense history, of shapes (n_models, dim, dim) and (n_models, dim)."""
    gram = features.T @ features
    return np.repeat(gram[np.newaxis], reward.shape[1], axis=0), reward.T @ features
