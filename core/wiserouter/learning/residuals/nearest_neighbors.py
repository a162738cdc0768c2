r"""Reward residuals by k-nearest neighbours: the shrunk mean of those of the most similar past queries.

.. math:: \hat y_k = \frac{\sum_{i \in N_k} y_{ik}}{|N_k| + \kappa}

where `N_k` are the `K_NEAREST` past queries that model `k` was rated on with the largest dot product of embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from wiserouter.types import Embedding, FloatArray, IntArray

K_NEAREST = 60
"""Number of neighbours to average."""

CAPACITY = 4_000
"""Number of past queries to keep."""

PSEUDO_COUNTS = (20.0, 60.0, 180.0, 540.0)
"""Pseudo-counts of a residual of 0 that a fit chooses from."""


class Neighbours:
    """A k-nearest-neighbours estimator on a ring buffer of past queries.

    Parameters
    ----------
    dim, n_models : int
        Length of an embedding, and number of models.
    pseudo_count : float, default 60
        Weight of a residual of 0.
    capacity : int, default 4,000
        Number of recent queries to keep.

    Notes
    -----
    Memory does not grow: capacity x (4 x dim + 8 x n_models) bytes, 1.3 MB for ten models and 64 dimensions. One
    prediction compares the query with every row of the buffer: some tenths of a millisecond.

    Examples
    --------
    >>> near = Neighbours(dim=1, n_models=1, pseudo_count=1.0)
    >>> near.learn(np.ones(1, dtype=np.float32), 0, model=0, residual=0.5)
    >>> near.shift(np.ones(1, dtype=np.float32), 0)
    array([0.25])
    """

    name = "neighbours"

    def __init__(self, dim: int, n_models: int, pseudo_count: float = 60.0, capacity: int = CAPACITY) -> None:
        self._embeddings: Embedding = np.zeros((capacity, dim), dtype=np.float32)
        self._residual: FloatArray = np.full((n_models, capacity), np.nan)
        self._pseudo_count = pseudo_count
        self._n_learned = 0

    def fit(self, embeddings: Embedding, contexts: IntArray, residual: FloatArray) -> Self:
        """Keep the last rows of a table of residuals of shape (n_queries, n_models), NaN where not observed."""
        kept = min(len(residual), len(self._embeddings))
        self._embeddings[:kept], self._residual[:, :kept] = embeddings[-kept:], residual[-kept:].T
        self._n_learned = kept
        return self

    def shift(self, embedding: Embedding, context: int) -> FloatArray:
        """Return the shrunk mean residual of the nearest past queries, for every model."""
        n = min(self._n_learned, len(self._embeddings))
        likeness = self._embeddings[:n] @ embedding
        residual = self._residual[:, :n]
        if n > K_NEAREST:
            ranked = np.where(np.isnan(residual), -np.inf, likeness)
            nearest = np.argpartition(ranked, n - K_NEAREST, axis=1)[:, n - K_NEAREST :]
            residual = np.take_along_axis(residual, nearest, axis=1)
        seen = ~np.isnan(residual)
        deviation: FloatArray = np.where(seen, residual, 0.0).sum(axis=1) / (seen.sum(axis=1) + self._pseudo_count)
        return deviation

    def shifts(self, embeddings: Embedding, contexts: IntArray) -> FloatArray:
        """Return `shift` of many queries."""
        deviations = [self.shift(*query) for query in zip(embeddings, contexts.tolist(), strict=True)]
        return np.array(deviations).reshape(len(embeddings), len(self._residual))

    def learn(self, embedding: Embedding, context: int, model: int, residual: float) -> None:
        """Keep one residual in place of the oldest query."""
        slot = self._n_learned % len(self._embeddings)
        self._embeddings[slot] = embedding
        self._residual[:, slot] = np.nan
        self._residual[model, slot] = residual
        self._n_learned += 1

    def amend(self, embedding: Embedding, context: int, model: int, change: float) -> None:
        """Add `change` to the residual of this query, if it is still kept."""
        same = (self._embeddings == embedding).all(axis=1) & ~np.isnan(self._residual[model])
        self._residual[model, np.flatnonzero(same)[-1:]] += change

    def add_model(self) -> None:
        """Append a model without observations."""
        self._residual = np.vstack([self._residual, np.full((1, len(self._embeddings)), np.nan)])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays."""
        return {
            "embeddings": self._embeddings,
            "residual": self._residual,
            "pseudo_count": np.array([self._pseudo_count]),
            "n_learned": np.array([self._n_learned]),
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Neighbours:
        """Return the estimator whose `arrays()` these are."""
        capacity, dim = arrays["embeddings"].shape
        near = cls(dim, len(arrays["residual"]), arrays["pseudo_count"].item(), capacity)
        near._embeddings[...], near._residual[...] = arrays["embeddings"], arrays["residual"]
        near._n_learned = int(arrays["n_learned"].item())
        return near
