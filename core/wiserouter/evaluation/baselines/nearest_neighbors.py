"""Nearest neighbours in a dense history: mean reward and cost of the most similar queries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wiserouter.evaluation.baselines.base import Answers
from wiserouter.types import Embedding, IntArray


class NearestNeighbors:
    """A dense history with a nearest-neighbour search.

    Parameters
    ----------
    embeddings : ndarray of float32 of shape (n_queries, dim)
        Vectors of the past queries.
    answers : Answers
        The answers of every model.
    k : int
        Number of neighbours; all queries if there are fewer.

    Examples
    --------
    >>> history = NearestNeighbors(np.array([[0.0], [1.0], [9.0]], np.float32), Answers(np.eye(3), 1 + np.eye(3)), k=2)
    >>> history.means(np.array([0.4], np.float32)).reward
    array([0.5, 0.5, 0. ])
    """

    def __init__(self, embeddings: Embedding, answers: Answers, k: int) -> None:
        self.answers, self.k = answers, min(k, len(embeddings))
        self._embeddings = np.ascontiguousarray(embeddings, np.float32)
        self._norms = np.einsum("ij,ij->i", self._embeddings, self._embeddings)

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return int(self._embeddings.shape[1])

    def nearest(self, embedding: Embedding) -> tuple[IntArray, NDArray[np.float32]]:
        """Return the nearest rows, unordered, and their squared distances."""
        distance = self._norms - 2.0 * (self._embeddings @ embedding) + embedding @ embedding
        if self.k == len(distance):
            return np.arange(self.k), distance
        rows = np.argpartition(distance, self.k - 1)[: self.k]
        return rows, distance[rows]

    def means(self, embedding: Embedding) -> Answers:
        """Return mean reward and cost of every model, each of shape (n_models,)."""
        rows, _ = self.nearest(embedding)
        return Answers(self.answers.reward[rows].mean(axis=0), self.answers.cost_usd[rows].mean(axis=0))
