"""Nearest neighbours in a dense history: the mean reward and cost of the queries most like this one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wiserouter.evaluation.baselines.base import Answers
from wiserouter.types import Embedding, IntArray


class NearestNeighbors:
    """A history to look up.

    Parameters
    ----------
    embeddings : ndarray of float32 of shape (n_queries, dim)
        Vectors of the past queries.
    answers : Answers
        What every model answered.
    k : int
        How many neighbours count; all where there are fewer.

    Examples
    --------
    >>> history = NearestNeighbors(np.array([[0.0], [1.0], [9.0]], np.float32), Answers(np.eye(3), 1 + np.eye(3)), k=2)
    >>> history.look(np.array([0.4], np.float32)).reward
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
        """Return the nearest rows, in no order, and their squared distances."""
        away = self._norms - 2.0 * (self._embeddings @ embedding) + embedding @ embedding
        if self.k == len(away):
            return np.arange(self.k), away
        rows = np.argpartition(away, self.k - 1)[: self.k]
        return rows, away[rows]

    def look(self, embedding: Embedding) -> Answers:
        """Return mean reward and cost of every model, each of shape (n_models,)."""
        rows, _ = self.nearest(embedding)
        return Answers(self.answers.reward[rows].mean(axis=0), self.answers.cost_usd[rows].mean(axis=0))
