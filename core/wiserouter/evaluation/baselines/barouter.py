r"""BARouter (Zu, Peng and Liu, WWW 2026): a virtual queue of overspending, and nearest neighbours that keep learning.

Each query goes to the model with the highest

.. math:: \hat u_k - \frac{Q}{V} \hat c_k, \qquad Q \leftarrow \max(0, Q + c - \rho), \qquad V = \rho \sqrt{T} ,

where the estimates are means over the 100 nearest past queries that the model answered: those of the training half, and
those it has answered since. As the queue only forgets what was underspent, the budget is exceeded by at most its
length.

The rule depends on the unit of cost. The authors count in thousandths of a USD, at budgets of 0.1 to 1 of them a query;
here costs count in multiples of rho, which fits tables of any scale. Other departures: what is answered is known at
once, not after every 64 queries; rho stays the budget per query of the whole workload, as in the statement of the
method.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

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
    """Prices cost by how far it has overspent."""

    name = "barouter"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Keep the history."""
        return _FittedBaRouter(NearestNeighbors(training.embeddings, training.table(), NEIGHBOURS))


class VirtualQueue:
    """How much more was spent than came in.

    Parameters
    ----------
    terms : Terms
        The budget.

    Examples
    --------
    >>> queue = VirtualQueue(Terms(budget_usd=0.4, horizon=4))
    >>> queue.take(0.5)
    >>> round(queue.length_usd, 3), round(queue.price, 3)
    (0.4, 20.0)
    """

    def __init__(self, terms: Terms) -> None:
        self._rate_usd, self._weight = terms.rate_usd, sqrt(terms.horizon)
        self.length_usd = 0.0

    @property
    def price(self) -> float:
        """Reward that one USD is to bring."""
        return self.length_usd / self._rate_usd / self._weight / self._rate_usd

    def take(self, cost_usd: float) -> None:
        """Take what one query cost."""
        self.length_usd = max(0.0, self.length_usd + cost_usd - self._rate_usd)


class GrowingNeighbours:
    """Means over the nearest queries that each model answered, in a dense history and since.

    Parameters
    ----------
    history : NearestNeighbors
        The dense history.
    horizon : int
        The most queries to come.

    Examples
    --------
    >>> history = NearestNeighbors(np.zeros((1, 1), np.float32), Answers(np.zeros((1, 2)), np.ones((1, 2))), k=9)
    >>> grown = GrowingNeighbours(history, horizon=5)
    >>> grown.add(np.ones(1, np.float32), 1, 1.0, 3.0)
    >>> grown.look(np.ones(1, np.float32)).cost_usd
    array([1., 2.])
    """

    def __init__(self, history: NearestNeighbors, horizon: int) -> None:
        self._history, self._n = history, 0
        self._embeddings = np.zeros((horizon, history.dim), np.float32)
        self._norms = np.zeros(horizon, np.float32)
        self._model = np.zeros(horizon, np.int64)
        self._answers = np.zeros((horizon, 2))

    def add(self, embedding: Embedding, model: int, reward: float, cost_usd: float) -> None:
        """Take one answer."""
        at, self._n = self._n, self._n + 1
        self._embeddings[at], self._norms[at] = embedding, embedding @ embedding
        self._model[at], self._answers[at] = model, (reward, cost_usd)

    def look(self, embedding: Embedding) -> Answers:
        """Return mean reward and cost of every model, each of shape (n_models,)."""
        rows, away = self._history.nearest(embedding)
        old = np.stack([each[rows] for each in self._history.answers], axis=-1)
        means = old.mean(axis=0)
        near, away_near = self._lately(embedding, np.inf if len(rows) < NEIGHBOURS else float(away.max()))
        for k in set(self._model[near].tolist()):
            own = self._model[near] == k
            values = np.concatenate([old[:, k], self._answers[near[own]]])
            means[k] = _nearest_mean(np.concatenate([away, away_near[own]]), values)
        return Answers(means[:, 0], means[:, 1])

    def _lately(self, embedding: Embedding, within: float) -> tuple[IntArray, NDArray[np.float32]]:
        """Return what was added within a squared distance, and how far away each is."""
        away = self._norms[: self._n] - 2.0 * (self._embeddings[: self._n] @ embedding) + embedding @ embedding
        near = np.flatnonzero(away < within)
        return near, away[near]


def _nearest_mean(away: NDArray[np.float32], values: FloatArray) -> FloatArray:
    if len(away) > NEIGHBOURS:
        values = values[np.argpartition(away, NEIGHBOURS - 1)[:NEIGHBOURS]]
    return np.asarray(values.mean(axis=0), np.float64)


@dataclass(frozen=True)
class _FittedBaRouter(FittedMethod):
    history: NearestNeighbors

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        return _BaServer(GrowingNeighbours(self.history, terms.horizon), VirtualQueue(terms))


@dataclass
class _BaServer(Server):
    known: GrowingNeighbours
    queue: VirtualQueue

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        expected = self.known.look(query.embedding)
        model = int((expected.reward - self.queue.price * expected.cost_usd).argmax())
        self.queue.take(call(model))
        return model

    def learn(self, query: BenchQuery, model: int, reward: float, cost_usd: float) -> None:
        self.known.add(query.embedding, model, reward, cost_usd)
