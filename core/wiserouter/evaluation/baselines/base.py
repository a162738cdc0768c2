"""What a method of the bench is: it is fitted, tuned for one budget, and serves a stream of queries one by one.

::

    Method.fit(training, rng)          once per split: what is learned for every budget             -> FittedMethod
    Fitted.start(terms, rng)           once per budget: what is tuned for it, on training data only -> Server
    Server.serve(query, funds, call)   per query: calls one model or several, names whose answer it gives
    Server.learn(query, model, reward, cost_usd)    after it, once per call: what the call came to

The bench pays, notes and times. A method never holds the test half: it meets one query at a time and `call` tells what
one call cost. The reward of a call comes after the query is answered, so that no cascade can look at the score of an
answer to decide whether to go on. Nothing stops a method that spends more than its budget: that is shown.

One method per file; its docstring names its source and says where it departs from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.evaluation.outcome import NOT_SERVED
from wiserouter.pricing.pool import Model
from wiserouter.prompts.contexts import Contexts
from wiserouter.types import Embedding, FloatArray, IntArray

__all__ = [
    "NOT_SERVED",
    "Answers",
    "BenchQuery",
    "CallModel",
    "FittedMethod",
    "Funds",
    "Method",
    "Server",
    "Terms",
    "Training",
]

CallModel = Callable[[int], float]
"""Calls a model on the current query, at most once each, and returns what that cost in USD."""


class Answers(NamedTuple):
    """What every model scored and cost: arrays of shape (n_queries, n_models), or (n_models,) for one query."""

    reward: FloatArray
    cost_usd: FloatArray


class BenchQuery(NamedTuple):
    """One query, as a method sees it.

    Attributes
    ----------
    embedding : ndarray of float32 of shape (dim,)
        Vector of the prompt.
    context : int
        The context that it falls into.
    chars : int
        Length of the prompt in characters.
    truth : Answers or None
        What every model would score and cost; only for a method that says `sees_truth`.
    """

    embedding: Embedding
    context: int
    chars: int
    truth: Answers | None = None


class Terms(NamedTuple):
    """What a method is to keep to.

    Attributes
    ----------
    budget_usd : float, USD
        For all queries together.
    horizon : int
        Number of queries.
    """

    budget_usd: float
    horizon: int

    @property
    def rate_usd(self) -> float:
        """USD per query, the rho of the literature."""
        return self.budget_usd / self.horizon


@dataclass(slots=True, eq=False)
class Training:
    """The training half, and the bill for what a method takes of it.

    Parameters
    ----------
    embeddings : ndarray of float32 of shape (n_queries, dim)
        Vectors of the prompts.
    placed : ndarray of int of shape (n_queries,)
        The context of each query.
    chars : ndarray of int of shape (n_queries,)
        Length of each prompt in characters.
    contexts : Contexts
        Centroids and frequencies, fitted on these queries; the same for all methods.
    models : tuple of Model
        The pool: names and list prices; see `bench.prices`.
    answers : Answers
        Every model's score and cost; methods ask for them by `table` or `ask`, which note what that would have cost.

    Attributes
    ----------
    asked_usd : float, USD
        What the calls made by `ask` cost so far.
    bought : bool
        Whether the whole table was taken.

    Examples
    --------
    >>> answers = Answers(np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([[1.0, 5.0], [1.0, 7.0]]))
    >>> training = Training(np.zeros((2, 0)), np.zeros(2, int), np.ones(2, int), Contexts.single(), (), answers)
    >>> training.ask(1, 1), training.collected_usd
    ((1.0, 7.0), 7.0)
    >>> training.table() is answers, training.collected_usd
    (True, 21.0)
    """

    embeddings: Embedding
    context_ids: IntArray
    chars: IntArray
    contexts: Contexts
    models: tuple[Model, ...]
    answers: Answers = field(repr=False)
    asked_usd: float = 0.0
    bought: bool = False

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.context_ids)

    @property
    def n_models(self) -> int:
        """Number of models."""
        return int(self.answers.reward.shape[1])

    @property
    def freq(self) -> FloatArray:
        """How often each context occurs, of shape (n_contexts,)."""
        return self.contexts.freq

    @property
    def collected_usd(self) -> float:
        """What it cost to collect all that was taken: the whole table once, and each call asked for."""
        return self.asked_usd + (float(self.answers.cost_usd.sum()) if self.bought else 0.0)

    def query(self, i: int) -> BenchQuery:
        """Return one query."""
        return BenchQuery(self.embeddings[i], int(self.context_ids[i]), int(self.chars[i]))

    def table(self) -> Answers:
        """Take every model's answer to every query: the dense history that offline methods learn from."""
        self.bought = True
        return self.answers

    def ask(self, query: int, model: int) -> tuple[float, float]:
        """Call one model on one query; return its reward and cost in USD."""
        cost = self.answers.cost_usd.item(query, model)
        self.asked_usd += cost
        return self.answers.reward.item(query, model), cost

    def leaderboard(self) -> Answers:
        """Return mean reward and cost per model, of shape (n_models,): public knowledge, free of charge."""
        return Answers(self.answers.reward.mean(axis=0), self.answers.cost_usd.mean(axis=0))

    def known_costs_usd(self) -> FloatArray:
        """Return mean costs of shape (n_contexts, n_models), for methods that are told them; free of charge.

        The paper gives its budget-aware bandits, and epsilon-first with known costs, the expected cost of every pair.
        A context without queries has each model's mean.
        """
        count = np.bincount(self.context_ids, minlength=self.contexts.n_contexts)
        total = np.zeros((len(count), self.n_models))
        np.add.at(total, self.context_ids, self.answers.cost_usd)
        mean = self.leaderboard().cost_usd
        return np.where(count[:, np.newaxis] > 0, total / np.maximum(count, 1)[:, np.newaxis], mean)


class Server(ABC):
    """A method at work under one budget."""

    @abstractmethod
    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        """Answer one query.

        Parameters
        ----------
        query : Query
            The query.
        funds : Funds
            Budget left, by true costs, negative where more was spent; and queries still to come, this one included.
        call : callable
            `call(model)` pays for one model's answer and returns its cost in USD.

        Returns
        -------
        int
            The model whose answer is given, one of those called; or `NOT_SERVED`.
        """

    def learn(self, query: BenchQuery, model: int, reward: float, cost_usd: float) -> None:  # noqa: B027
        """Take what one call came to; a method that does not learn while it serves ignores it."""


class FittedMethod(ABC):
    """What a method learned from the training half, for every budget."""

    @abstractmethod
    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        """Tune for one budget, on training data only, and open the service; calls do not affect one another."""


class Method(ABC):
    """One way to choose models.

    Attributes
    ----------
    name : str
        What it is called on the command line and in every table; one per setting of the method.
    note : str
        What to say beside its figures: what it is given that others are not, where it departs from its source.
    sees_truth : bool
        Whether `query.truth` is filled in; such a method is shown apart.
    """

    name: str
    note: str = ""
    sees_truth: bool = False

    @abstractmethod
    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Learn from the training half."""
