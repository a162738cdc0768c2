r"""Reward residuals by ridge regression on the embedding, one for each model.

With `z = x - centroid` the deviation of a query's embedding from its context's centroid and `y` its reward less the
context's mean,

.. math:: w_k = A_k^{-1} b_k, \qquad A_k = s I + \sum z z^\top, \qquad b_k = \sum z\, y ,

so that within a context the predictions average about 0. One more observation is a rank-one update of `A_k`, and the
formula of Sherman and Morrison gives the new inverse and weights without a solve, in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wiserouter.types import Embedding, FloatArray, IntArray

STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0)
"""Penalties `s` that a fit chooses from."""


class Ridge:
    """A ridge regression per model of the pool.

    Parameters
    ----------
    centroids : array-like of shape (n_contexts, dim)
        Subtracted from the embeddings.
    n_models : int
        Number of models.
    strength : float, default 10
        The penalty `s`: higher shrinks the predictions toward 0.

    Notes
    -----
    Memory does not grow: 8 bytes x n_models x dim x (dim + 1), 0.3 MB for ten models and 64 dimensions, 12 MB for 384.

    Examples
    --------
    >>> ridge = Ridge([[0.0]], n_models=1, strength=1.0)
    >>> ridge.learn(np.ones(1, dtype=np.float32), 0, model=0, residual=0.5)
    >>> ridge.shift(np.ones(1, dtype=np.float32), 0)
    array([0.25])
    """

    name = "ridge"

    def __init__(self, centroids: ArrayLike, n_models: int, strength: float = 10.0) -> None:
        self._centroids = np.asarray(centroids, dtype=np.float32)
        self._strength = strength
        dim = self._centroids.shape[1]
        self._inverse: FloatArray = np.tile(np.eye(dim) / strength, (n_models, 1, 1))
        self._weights: FloatArray = np.zeros((n_models, dim))

    def fit(self, embeddings: Embedding, contexts: IntArray, residual: FloatArray) -> Self:
        """Learn from a table of residuals of shape (n_queries, n_models), NaN where not observed."""
        z = self._centred(embeddings, contexts)
        seen = ~np.isnan(residual)
        y = np.where(seen, residual, 0.0)
        if seen.all():
            self._inverse[...] = np.linalg.inv(z.T @ z + self._strength * np.eye(z.shape[1]))
        else:
            for k, rows in enumerate(seen.T):
                self._inverse[k] = np.linalg.inv(z[rows].T @ z[rows] + self._strength * np.eye(z.shape[1]))
        self._weights = np.einsum("kde,ek->kd", self._inverse, z.T @ y)
        return self

    def shift(self, embedding: Embedding, context: int) -> FloatArray:
        """Return the predicted residual of every model."""
        deviation: FloatArray = self._weights @ (embedding - self._centroids[context])
        return deviation

    def shifts(self, embeddings: Embedding, contexts: IntArray) -> FloatArray:
        """Return `shift` of many queries."""
        deviations: FloatArray = self._centred(embeddings, contexts) @ self._weights.T
        return deviations

    def learn(self, embedding: Embedding, context: int, model: int, residual: float) -> None:
        """Learn from one residual, in O(dim^2)."""
        z = self._centred(embedding, context)
        inverse, weights = self._inverse[model], self._weights[model]
        gain = inverse @ z
        gain /= 1.0 + z @ gain  # Sherman-Morrison
        weights += gain * (residual - weights @ z)
        inverse -= np.outer(gain, z @ inverse)

    def amend(self, embedding: Embedding, context: int, model: int, change: float) -> None:
        """Add `change` to a residual that was learned before."""
        self._weights[model] += change * (self._inverse[model] @ self._centred(embedding, context))

    def add_model(self) -> None:
        """Append a model whose residuals are 0."""
        fresh = Ridge(self._centroids, 1, self._strength)
        self._inverse = np.concatenate([self._inverse, fresh._inverse])
        self._weights = np.concatenate([self._weights, fresh._weights])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays."""
        return {
            "centroids": self._centroids,
            "inverse": self._inverse,
            "weights": self._weights,
            "strength": np.array([self._strength]),
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Ridge:
        """Return the estimator whose `arrays()` these are."""
        ridge = cls(arrays["centroids"], len(arrays["weights"]), arrays["strength"].item())
        ridge._inverse[...], ridge._weights[...] = arrays["inverse"], arrays["weights"]
        return ridge

    def _centred(self, embedding: Embedding, context: int | IntArray) -> FloatArray:
        return np.asarray(embedding - self._centroids[context], dtype=np.float64)
