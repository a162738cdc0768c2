"""A sample of a log's queries, as the estimators of single queries read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.types import Embedding, FloatArray, IntArray


class Sample(NamedTuple):
    """Some queries, and the scores and costs of their models.

    Attributes
    ----------
    embeddings : ndarray of shape (n_queries, dim)
        One row per query.
    contexts : ndarray of int of shape (n_queries,)
        The context of each query.
    reward, cost_usd : ndarray of shape (n_queries, n_models)
        Scores and costs; NaN where not observed.
    """

    embeddings: Embedding
    contexts: IntArray
    reward: FloatArray
    cost_usd: FloatArray

    def __len__(self) -> int:
        return len(self.contexts)

    def rows(self, chosen: IntArray | NDArray[np.bool_]) -> Sample:
        """Return some of the queries."""
        return Sample(self.embeddings[chosen], self.contexts[chosen], self.reward[chosen], self.cost_usd[chosen])
