r"""Nearest neighbours with shrinkage, and a price of cost at the current rate.

The expected reward of a model is the mean over the `k` nearest past queries, shrunk toward the model's mean,

.. math:: \hat u_k(x) = \frac{\sum_{i \in N(x)} r_{ik} + s\, \bar r_k}{k + s} ,

and so is its expected cost. Studies of routers find little that beats nearest neighbours (LLMRouterBench, arXiv
2601.07206), and the mixture of single models where labels are few; `s` lies between the two. `k` and `s` have the least
leave-one-out error of the differences between models, which are all that a choice depends on. A query goes to the model
with the largest :math:`\hat u_k - \lambda \hat c_k`, with :math:`\lambda` the price at which the training half, each
query predicted from the others, spends the current rate b / tau. The combination is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wiserouter.evaluation.baselines.base import (
    Answers,
    BenchQuery,
    CallModel,
    FittedMethod,
    Funds,
    Method,
    Server,
    Terms,
    Training,
)
from wiserouter.evaluation.baselines.nearest_neighbors import NearestNeighbors
from wiserouter.evaluation.baselines.price_table import PriceTable, price_table
from wiserouter.types import Embedding, FloatArray, IntArray

COUNTS = (8, 32, 128)
STRENGTHS = (0.0, 8.0, 32.0, 128.0, 1e6)


class ShrunkNeighbors(Method):
    """The best model by neighbours shrunk toward the means of the models."""

    name = "knn-shrunk"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Choose the number of neighbours and the strength, and compute the spend of every price."""
        answers = training.table()
        near = others_nearest(training.embeddings, max(COUNTS))
        k, strength = chosen_settings(near, answers.reward)
        table = price_table(Answers(*(left_out(near, values, k, strength) for values in answers)), answers.cost_usd)
        history = NearestNeighbors(training.embeddings, answers, k)
        return _FittedNeighbors(history, strength, training.leaderboard(), table)


def others_nearest(embeddings: Embedding, k: int) -> IntArray:
    """Return the `k` nearest other rows of each row, the nearest first, of shape (n, at most n - 1).

    Examples
    --------
    >>> others_nearest(np.array([[0.0], [1.0], [3.0]], np.float32), 1).tolist()
    [[1], [0], [1]]
    """
    rows = np.asarray(embeddings, np.float64)
    squares = (rows**2).sum(axis=1)
    distance = squares - 2.0 * rows @ rows.T
    np.fill_diagonal(distance, np.inf)
    return np.argsort(distance, axis=1, kind="stable")[:, : min(k, len(rows) - 1)]


def left_out(near: IntArray, values: FloatArray, k: int, strength: float) -> FloatArray:
    """Return each row's shrunk mean from the other rows."""
    mean = (values.sum(axis=0) - values) / max(len(values) - 1, 1)
    used = near[:, :k]
    return np.asarray((values[used].sum(axis=1) + strength * mean) / max(used.shape[1] + strength, 1e-12), np.float64)


def chosen_settings(near: IntArray, reward: FloatArray) -> tuple[int, float]:
    """Return the number of neighbours and the strength with the least leave-one-out error of contrasts."""
    settings = [(k, strength) for k in COUNTS for strength in STRENGTHS]
    true = _contrasts(reward)
    errors = [((_contrasts(left_out(near, reward, *each)) - true) ** 2).mean() for each in settings]
    return settings[int(np.argmin(errors))]


def _contrasts(reward: FloatArray) -> FloatArray:
    return np.asarray(reward - reward.mean(axis=1, keepdims=True), np.float64)


@dataclass(frozen=True)
class _FittedNeighbors(FittedMethod):
    history: NearestNeighbors
    strength: float
    means: Answers
    table: PriceTable

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        return _NeighborsServer(self.history, self.strength, self.means, self.table)


@dataclass(frozen=True)
class _NeighborsServer(Server):
    history: NearestNeighbors
    strength: float
    means: Answers
    table: PriceTable

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        near, share = self.history.means(query.embedding), self.history.k / (self.history.k + self.strength)
        reward, cost_usd = (share * own + (1.0 - share) * all_ for own, all_ in zip(near, self.means, strict=True))
        price = self.table.price(funds.left_usd / max(funds.requests, 1))
        model = int((reward - price * cost_usd).argmax())
        call(model)
        return model
