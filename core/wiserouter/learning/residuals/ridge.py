r"""Rewards of single queries by ridge regression on the embedding: one regression over all contexts for each model.

With `z` the deviation of an embedding from the mean one, and `m_k` the mean reward of model `k`,

.. math:: \hat u_k(x) = m_k + w_k \cdot z,
    \qquad w_k = \Bigl(s I + \sum z z^\top\Bigr)^{-1} \sum z\, (y - m_k) .

All models have one penalty `s`; `ridge_selection` chooses it, and `kept_shares` says how much of the weights is kept.
Where it is nothing, all that is left is the mixture of single models.

The regression replaces the mean of a query's context at the time of the fit, and stays as it was fitted; what that mean
learns while serving is added. Learning it from the calls of a router was worse on held-out tables: these are few, and
of one model each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wiserouter.learning.residuals.kept_shares import KeptShares
from wiserouter.types import Embedding, FloatArray, IntArray


class Ridge:
    """A ridge regression per model of the pool.

    Parameters
    ----------
    weights : array-like of shape (n_models, dim)
        Reward per unit of the embedding.
    offset : array-like of shape (n_contexts, n_models)
        Predicted reward of an embedding of zeros, less the mean reward of the context.

    Examples
    --------
    >>> ridge = Ridge([[0.5]], [[0.25]])
    >>> ridge.shift(np.ones(1, dtype=np.float32), 0)
    array([0.75], dtype=float32)
    """

    name = "ridge"

    def __init__(self, weights: ArrayLike, offset: ArrayLike) -> None:
        self._weights = np.array(weights, dtype=np.float32)  # of the type of an embedding: neither is converted
        self._offset = np.array(offset, dtype=np.float32)
        self._offsets = list(self._offset)

    @classmethod
    def fitted(
        cls, embeddings: Embedding, reward: FloatArray, context_reward: FloatArray, strength: float, shares: KeptShares
    ) -> Ridge:
        """Return the regression of rewards.

        Parameters
        ----------
        embeddings : ndarray of shape (n_queries, dim)
            One row per query.
        reward : ndarray of shape (n_queries, n_models)
            Scores, NaN where not observed. A model without any keeps the means of the contexts.
        context_reward : ndarray of shape (n_contexts, n_models)
            Mean rewards of the contexts, which the regression replaces.
        strength : float
            The penalty.
        shares : KeptShares
            What is kept of the weights.
        """
        weights, offset = np.zeros((reward.shape[1], embeddings.shape[1])), np.zeros_like(context_reward)
        groups = alike(reward)
        for models, rows in groups:
            x, y = embeddings[rows].astype(np.float64), reward[np.ix_(rows, models)]
            z = x - x.mean(axis=0)
            weights[models] = np.linalg.solve(z.T @ z + strength * np.eye(z.shape[1]), z.T @ (y - y.mean(axis=0))).T
        weights = shares.of(weights.T).T
        for models, rows in groups:
            level = reward[np.ix_(rows, models)].mean(axis=0)
            center = embeddings[rows].mean(axis=0, dtype=np.float64)
            offset[:, models] = level - weights[models] @ center - context_reward[:, models]
        return cls(weights, offset)

    def shift(self, embedding: Embedding, context: int) -> Embedding:
        """Return the predicted reward of every model less the mean reward of the context."""
        deviation: Embedding = self._weights.dot(embedding) + self._offsets[context]  # `@` takes twice as long
        return deviation

    def shifts(self, embeddings: Embedding, contexts: IntArray) -> FloatArray:
        """Return `shift` of many queries."""
        return np.asarray(embeddings @ self._weights.T + self._offset[contexts], dtype=np.float64)

    @property
    def n_models(self) -> int:
        """Number of models."""
        return len(self._weights)

    def add_model(self) -> None:
        """Append a model whose deviations are 0."""
        Ridge.__init__(self, np.pad(self._weights, ((0, 1), (0, 0))), np.pad(self._offset, ((0, 0), (0, 1))))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays."""
        return {"weights": self._weights, "offset": self._offset}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Ridge:
        """Return the regression whose `arrays()` these are."""
        return cls(arrays["weights"], arrays["offset"])


def alike(reward: FloatArray) -> list[tuple[IntArray, IntArray]]:
    """Return groups of models that were observed on the same queries, each with these queries; none without any."""
    seen = ~np.isnan(reward)
    if seen.all():
        return [(np.arange(seen.shape[1]), np.arange(len(seen)))]
    return [(np.array([k]), np.flatnonzero(rows)) for k, rows in enumerate(seen.T) if rows.any()]


def left_out(embeddings: Embedding, reward: FloatArray, strengths: Sequence[float]) -> list[FloatArray]:
    """Return for each penalty the predicted rewards of every query by a regression without this query.

    In closed form: the residual of a query in the fit on all of them, over one less its leverage.

    Examples
    --------
    >>> [predicted] = left_out(np.array([[0.0], [1.0], [5.0]]), np.array([[0.0], [1.0], [0.5]]), [1e12])
    >>> predicted.round(6).ravel().tolist()
    [0.75, 0.25, 0.5]
    """
    predicted = [np.zeros(reward.shape) for _ in strengths]
    for models, rows in alike(reward):
        center = embeddings[rows].mean(axis=0, dtype=np.float64)
        z, y = embeddings[rows] - center, reward[np.ix_(rows, models)]
        mean = y.mean(axis=0)
        left, sizes, right = _svd(z)
        of_sizes, left_squares = left.T @ (y - mean), left**2
        for each, strength in zip(predicted, strengths, strict=True):
            kept = sizes**2 / (sizes**2 + strength)
            if len(rows) < len(reward):  # the others are left out as it is
                each[:, models] = mean + (embeddings - center) @ (right.T @ ((kept / sizes)[:, np.newaxis] * of_sizes))
            leverage = left_squares @ kept + 1.0 / len(rows)
            residual = y - mean - left @ (kept[:, np.newaxis] * of_sizes)
            each[np.ix_(rows, models)] = y - residual / np.maximum(1.0 - leverage, 1e-9)[:, np.newaxis]
    return predicted


def _svd(z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the thin singular value decomposition, from the smaller Gram matrix in a fraction of the time.

    Directions without any size, which no regression with a penalty sees, are left out.
    """
    tall = z.shape[0] > z.shape[1]
    squares, vectors = np.linalg.eigh(z.T @ z if tall else z @ z.T)
    kept = squares > 1e-12 * max(float(squares[-1]), 1e-300)
    sizes, vectors = np.sqrt(squares[kept]), vectors[:, kept]
    return (z @ vectors / sizes, sizes, vectors.T) if tall else (vectors, sizes, (z.T @ vectors / sizes).T)
