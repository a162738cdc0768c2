r"""BARouter (Zu, Peng and Liu, WWW 2026): a virtual queue of overspending, and nearest neighbours that keep learning.

Each query goes to the model with the highest

.. math:: \hat u_k - \frac{Q}{V} \hat c_k, \qquad Q \leftarrow \max(0, Q + c - \rho), \qquad V = \rho \sqrt{T} ,

where the estimates are means over the 100 nearest past queries that the model answered: those of the training half and
those served since. As the queue only forgets underspending, the budget is exceeded by at most its length.

The rule depends on the unit of cost. The authors count in thousandths of a USD, at budgets of 0.1 to 1 of these per
query; here costs are multiples of rho, which fits tables of any scale. Other departures: answers are learned from at
once, not after every 64 queries; rho stays the budget per query of the whole workload, as in the statement of the
method.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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
from wiserouter.types import Embedding, FloatArray, IntArray

NEIGHBOURS = 100


class BaRouter(Method):
    """Prices cost by the amount overspent so far."""

    name = "barouter"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Store the history."""
        return _FittedBaRouter(NearestNeighbors(training.embeddings, training.table(), NEIGHBOURS))


class VirtualQueue:
    """The virtual queue: the amount spent beyond the rate, never below 0.

    Examples
    --------
    >>> queue = VirtualQueue(Terms(budget_usd=0.4, horizon=4))
    >>> queue.add_cost(0.5)
    >>> round(queue.length_usd, 3), round(queue.price, 3)
    (0.4, 20.0)
    """

    def __init__(self, terms: Terms) -> None:
        self._rate_usd, self._weight = terms.rate_usd, sqrt(terms.horizon)
        self.length_usd = 0.0

    @property
    def price(self) -> float:
        """The price of cost, in reward per USD."""
        return self.length_usd / self._rate_usd / self._weight / self._rate_usd

    def add_cost(self, cost_usd: float) -> None:
        """Add the cost of one query."""
        self.length_usd = max(0.0, self.length_usd + cost_usd - self._rate_usd)


class GrowingNeighbours:
    """Means over the nearest queries that each model answered, in a dense history and online.

    Examples
    --------
    >>> history = NearestNeighbors(np.zeros((1, 1), np.float32), Answers(np.zeros((1, 2)), np.ones((1, 2))), k=9)
    >>> grown = GrowingNeighbours(history, horizon=5)
    >>> grown.add(np.ones(1, np.float32), 1, 1.0, 3.0)
    >>> grown.means(np.ones(1, np.float32)).cost_usd
    array([1., 2.])
    """

    def __init__(self, history: NearestNeighbors, horizon: int) -> None:
        self._history, self._n = history, 0
        self._embeddings = np.zeros((horizon, history.dim), np.float32)
        self._norms = np.zeros(horizon, np.float32)
        self._model = np.zeros(horizon, np.int64)
        self._answers = np.zeros((horizon, 2))

    def add(self, embedding: Embedding, model: int, reward: float, cost_usd: float) -> None:
        """Add one answer."""
        at, self._n = self._n, self._n + 1
        self._embeddings[at], self._norms[at] = embedding, embedding @ embedding
        self._model[at], self._answers[at] = model, (reward, cost_usd)

    def means(self, embedding: Embedding) -> Answers:
        """Return mean reward and cost of every model, each of shape (n_models,)."""
        rows, distance = self._history.nearest(embedding)
        old = np.stack([each[rows] for each in self._history.answers], axis=-1)
        mean = old.mean(axis=0)
        near, near_distance = self._added_near(embedding, np.inf if len(rows) < NEIGHBOURS else float(distance.max()))
        for k in set(self._model[near].tolist()):
            own = self._model[near] == k
            values = np.concatenate([old[:, k], self._answers[near[own]]])
            mean[k] = _nearest_mean(np.concatenate([distance, near_distance[own]]), values)
        return Answers(mean[:, 0], mean[:, 1])

    def _added_near(self, embedding: Embedding, within: float) -> tuple[IntArray, NDArray[np.float32]]:
        """Return the added answers within a squared distance, and their squared distances."""
        distance = self._norms[: self._n] - 2.0 * (self._embeddings[: self._n] @ embedding) + embedding @ embedding
        near = np.flatnonzero(distance < within)
        return near, distance[near]


def _nearest_mean(distance: NDArray[np.float32], values: FloatArray) -> FloatArray:
    if len(distance) > NEIGHBOURS:
        values = values[np.argpartition(distance, NEIGHBOURS - 1)[:NEIGHBOURS]]
    return np.asarray(values.mean(axis=0), np.float64)


@dataclass(frozen=True)
class _FittedBaRouter(FittedMethod):
    history: NearestNeighbors

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        return BaServer(GrowingNeighbours(self.history, terms.horizon), VirtualQueue(terms))


class AnswerMeans(Protocol):
    """Means of the answers to similar queries, which answers can be added to."""

    def means(self, embedding: Embedding) -> Answers:
        """Return mean reward and cost of every model."""

    def add(self, embedding: Embedding, model: int, reward: float, cost_usd: float) -> None:
        """Add one answer."""


@dataclass
class BaServer(Server):
    """The best expected reward minus cost at the price of the queue."""

    known: AnswerMeans
    queue: VirtualQueue

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        """Serve, and add the cost to the queue."""
        expected = self.known.means(query.embedding)
        model = int((expected.reward - self.queue.price * expected.cost_usd).argmax())
        self.queue.add_cost(call(model))
        return model

    def learn(self, query: BenchQuery, model: int, reward: float, cost_usd: float) -> None:
        """Add the answer to the history."""
        self.known.add(query.embedding, model, reward, cost_usd)
