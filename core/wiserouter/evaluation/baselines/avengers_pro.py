r"""Avengers-Pro (Zhang et al., arXiv 2508.12631): clusters with a score of performance and efficiency.

The queries are clustered with k-means, 60 clusters. In cluster j, a model's mean reward and mean cost are scaled to
[0, 1] between the least and the largest of the models, :math:`\tilde p_{jk}` and :math:`\tilde q_{jk}`; its score is

.. math:: x_{jk} = \alpha\, \tilde p_{jk} + (1 - \alpha) (1 - \tilde q_{jk}) .

A query goes to the model with the largest sum of scores over the 4 clusters nearest to it.

Departures: the embedding is the bench's. The source leaves alpha to the user; here it is the largest value of a grid
at which the training half spends at most the budget. On few queries there are fewer clusters, of
20 queries on average, and a query takes the same share of them, a fifteenth, but at least the nearest.
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
from wiserouter.prompts.contexts import Contexts
from wiserouter.types import Embedding, FloatArray, IntArray

CLUSTERS = 60
LEAST_QUERIES = 20
"""Queries per cluster on average, below which there are fewer clusters."""
NEAREST_SHARE = 4 / 60
"""Share of the clusters whose scores a query adds up."""
ALPHAS = np.linspace(0.0, 1.0, 101)


class AvengersPro(Method):
    """The model with the best balance of performance and efficiency in the nearest clusters."""

    name = "avengers-pro"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Cluster the history, and compute the spend of every alpha on it."""
        answers, n = training.table(), training.n_queries
        n_clusters = max(1, min(CLUSTERS, n // LEAST_QUERIES))
        clusters = Contexts.fit(training.embeddings, n_clusters, seed=int(rng.integers(2**31)))
        scores = ClusterScores.of(clusters, clusters.assign_many(training.embeddings), answers)
        performance, efficiency = scores.sums(training.embeddings)
        chosen = [(alpha * performance + (1.0 - alpha) * efficiency).argmax(axis=1) for alpha in ALPHAS]
        spend = np.array([answers.cost_usd[np.arange(n), models].mean() for models in chosen])
        return _FittedAvengers(scores, spend)


@dataclass(frozen=True)
class ClusterScores:
    """Scaled performance and efficiency of every model in every cluster, each of shape (n_clusters, n_models)."""

    centroids: FloatArray
    performance: FloatArray
    efficiency: FloatArray

    @classmethod
    def of(cls, clusters: Contexts, placed: IntArray, answers: Answers) -> ClusterScores:
        """Return the scores of a history, without clusters that no query is in."""
        used, inverse = np.unique(placed, return_inverse=True)
        reward, cost_usd = (_cluster_means(inverse, values) for values in answers)
        return cls(np.asarray(clusters.centroids, np.float64)[used], _scaled(reward), 1.0 - _scaled(cost_usd))

    def sums(self, embeddings: Embedding) -> tuple[FloatArray, FloatArray]:
        """Return performance and efficiency summed over the nearest clusters, each of shape (n_queries, n_models)."""
        rows = np.asarray(embeddings, np.float64)
        distance = (self.centroids**2).sum(axis=1) - 2.0 * rows @ self.centroids.T
        n_near = max(1, round(NEAREST_SHARE * len(self.centroids)))
        near = np.argsort(distance, axis=1, kind="stable")[:, :n_near]
        return self.performance[near].sum(axis=1), self.efficiency[near].sum(axis=1)


def _cluster_means(placed: IntArray, values: FloatArray) -> FloatArray:
    total = np.zeros((int(placed.max()) + 1, values.shape[1]))
    np.add.at(total, placed, values)
    return np.asarray(total / np.bincount(placed)[:, np.newaxis], np.float64)


def _scaled(means: FloatArray) -> FloatArray:
    """Return each row scaled to [0, 1]; zeros for a row of equal values."""
    low, high = means.min(axis=1, keepdims=True), means.max(axis=1, keepdims=True)
    return np.asarray((means - low) / np.where(high > low, high - low, 1.0), np.float64)


@dataclass(frozen=True)
class _FittedAvengers(FittedMethod):
    scores: ClusterScores
    spend_usd: FloatArray

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        fitting = ALPHAS[self.spend_usd <= terms.rate_usd]
        return _AvengersServer(self.scores, float(fitting.max(initial=0.0)))


@dataclass(frozen=True)
class _AvengersServer(Server):
    scores: ClusterScores
    alpha: float

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        performance, efficiency = self.scores.sums(query.embedding[np.newaxis])
        model = int((self.alpha * performance + (1.0 - self.alpha) * efficiency).argmax())
        call(model)
        return model
