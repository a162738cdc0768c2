"""BARouter, PILOT and ParetoBandit with one answer per query, as WISERouter learns online.

The published methods start from a dense history. Here they start from nothing and practise on the training half once:
each query is answered by the model that the method chooses, at the budget's rate, and the method learns from that
answer alone. Then it serves the test half under its budget, and goes on learning.

Where a published rule needs figures of the dense history, these are: for BARouter, a model with no answer yet counts as
a reward of 1 at no cost, so that each is tried; for PILOT, the prior is a
reward of 0.5 of every model, and the expected cost and the range of
rewards per USD follow from the answers so far, from list prices before; for ParetoBandit, the components of the
embedding are those of the training queries, and there is no prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wiserouter.evaluation.baselines.barouter import NEIGHBOURS, BaServer, VirtualQueue
from wiserouter.evaluation.baselines.base import (
    Answers,
    FittedMethod,
    LearnsFrom,
    Method,
    Server,
    Terms,
    Training,
)
from wiserouter.evaluation.baselines.linear_bandit import LinearArms
from wiserouter.evaluation.baselines.pareto_bandit import (
    FORGETTING,
    Components,
    Pacer,
    ParetoServer,
    list_prices,
    log_scaled,
)
from wiserouter.evaluation.baselines.pilot import PRIOR, Bins, PilotServer, query_features
from wiserouter.evaluation.baselines.practice import practise
from wiserouter.types import Embedding, FloatArray

TYPICAL_CALL_TOKENS = 700.0
PRIOR_REWARD = 0.5

MakeServer = Callable[[Terms], Server]
"""Makes a server for a budget; all servers that it makes share what they learn."""


@dataclass(frozen=True)
class OneAnswer(Method):
    """A method that practises on the training half with one call per query.

    Parameters
    ----------
    name : str
        See `Method`.
    begin : callable
        Makes a learner without observations, as a function from a budget to a server.
    """

    name: str
    begin: Callable[[Training, Terms], MakeServer]
    note: str = "learns from 1 call per training query"
    learns_from: LearnsFrom = "one answer"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Keep the training half for practice."""
        return _FittedOneAnswer(self, training)


@dataclass(frozen=True)
class _FittedOneAnswer(FittedMethod):
    method: OneAnswer
    training: Training

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        n = self.training.n_queries
        make = self.method.begin(self.training, terms)
        practise(make(Terms(terms.rate_usd * n, n)), self.training, terms.rate_usd, rng)
        return make(terms)


def pareto_bandit_once() -> Method:
    """Return ParetoBandit with one answer per query."""
    return OneAnswer("paretobandit-1x", _begin_pareto)


def barouter_once() -> Method:
    """Return BARouter with one answer per query."""
    return OneAnswer("barouter-1x", _begin_barouter)


def pilot_once() -> Method:
    """Return PILOT with one answer per query."""
    return OneAnswer("pilot-1x", _begin_pilot)


def _begin_pareto(training: Training, terms: Terms) -> MakeServer:  # noqa: ARG001
    components = Components.of(training.embeddings)
    dim, scaled = len(components.directions) + 1, log_scaled(list_prices(training))
    arms = LinearArms(np.zeros((len(scaled), dim, dim)), np.zeros((len(scaled), dim)), forgetting=FORGETTING)
    return lambda each: ParetoServer(components, arms, scaled, Pacer(each.rate_usd))


def _begin_barouter(training: Training, terms: Terms) -> MakeServer:
    dim = training.embeddings.shape[1]
    known = AnsweredNeighbours(training.n_models, dim, training.n_queries + terms.horizon)
    return lambda each: BaServer(known, VirtualQueue(each))


def _begin_pilot(training: Training, terms: Terms) -> MakeServer:  # noqa: ARG001
    n_models, dim = training.n_models, training.embeddings.shape[1] + 1
    rows = query_features(training.embeddings)
    prior = np.zeros((n_models, dim))
    prior[:, -1] = PRIOR_REWARD / rows[:, -1].mean()
    arms = LinearArms(np.zeros((n_models, dim, dim)), PRIOR * prior, ridge=PRIOR)
    worth = ObservedWorth(typical_cost_usd(training))
    return lambda each: PilotServer(arms, worth, Bins(each.rate_usd, each.horizon))


def typical_cost_usd(training: Training) -> FloatArray:
    """Return the list cost of a typical call to every model, or all mean costs if a price is unknown."""
    known = all(model.price is not None for model in training.models)
    return list_prices(training) * (TYPICAL_CALL_TOKENS if known else 1.0)


class AnsweredNeighbours:
    """Means over the nearest queries that each model answered; a reward of 1 at no cost for a model without answers.

    Parameters
    ----------
    n_models, dim : int
        Number of models, and length of the embeddings.
    most : int
        Largest number of answers.

    Examples
    --------
    >>> known = AnsweredNeighbours(2, 1, most=9)
    >>> known.add(np.ones(1, np.float32), 1, 0.5, 3.0)
    >>> known.means(np.ones(1, np.float32))
    Answers(reward=array([1. , 0.5]), cost_usd=array([0., 3.]))
    """

    def __init__(self, n_models: int, dim: int, most: int) -> None:
        self._n, self._n_models = 0, n_models
        self._embeddings, self._norms = np.zeros((most, dim), np.float32), np.zeros(most, np.float32)
        self._model, self._answers = np.full(most, -1), np.zeros((most, 2))

    def add(self, embedding: Embedding, model: int, reward: float, cost_usd: float) -> None:
        """Add one answer."""
        at, self._n = self._n, self._n + 1
        self._embeddings[at], self._norms[at] = embedding, embedding @ embedding
        self._model[at], self._answers[at] = model, (reward, cost_usd)

    def means(self, embedding: Embedding) -> Answers:
        """Return mean reward and cost of every model, each of shape (n_models,)."""
        distance = self._norms[: self._n] - 2.0 * (self._embeddings[: self._n] @ embedding)
        mean = np.tile([1.0, 0.0], (self._n_models, 1))
        for k in range(self._n_models):
            own = np.flatnonzero(self._model[: self._n] == k)
            if len(own) > NEIGHBOURS:
                own = own[np.argpartition(distance[own], NEIGHBOURS - 1)[:NEIGHBOURS]]
            if len(own):
                mean[k] = self._answers[own].mean(axis=0)
        return Answers(mean[:, 0], mean[:, 1])


class ObservedWorth:
    """Mean costs and rewards per USD of the answers so far, each with one prior answer: list price, reward 0.5.

    Parameters
    ----------
    list_usd : ndarray of shape (n_models,)
        Cost of a typical call at list price.

    Examples
    --------
    >>> worth = ObservedWorth(np.array([1.0, 5.0]))
    >>> worth.add(0, 1.0, 2.0)
    >>> worth.cost_usd(0), worth.limits
    (array([1.5, 5. ]), (0.1, 0.5))
    """

    def __init__(self, list_usd: FloatArray) -> None:
        self._count, self._cost_usd = np.ones(len(list_usd)), np.array(list_usd, np.float64)
        self._reward = np.full(len(list_usd), PRIOR_REWARD)

    def add(self, model: int, reward: float, cost_usd: float) -> None:
        """Add one answer."""
        self._count[model] += 1.0
        self._reward[model] += reward
        self._cost_usd[model] += cost_usd

    def cost_usd(self, context: int) -> FloatArray:
        """Return the mean cost of every model, the same in every context."""
        return self._cost_usd / self._count

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest reward per USD of any model."""
        worth = self._reward / np.maximum(self._cost_usd, 1e-12)
        return float(worth.min()), float(worth.max())
