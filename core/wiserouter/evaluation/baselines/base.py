"""The interface of a method: it is fitted, tuned for one budget, and serves a stream of queries one by one.

::

    Method.fit(training, rng)          once per split: learns for every budget                -> FittedMethod
    FittedMethod.start(terms, rng)     once per budget: tunes for it, on training data only   -> Server
    Server.serve(query, funds, call)   per query: calls one or several models, returns the one whose answer it gives
    Server.learn(query, model, reward, cost_usd)    afterwards, once per call: learns from the call

The bench pays for calls, records and times them. A method never holds the test half: it sees one query at a time, and
`call` returns the cost of one call. The reward of a call arrives after the query is answered, so that no cascade can
base its decision to continue on the score of an answer. A method that spends more than its budget is not stopped; the
report shows it.

Each file holds one method; its docstring names the source and the departures from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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
    "LearnsFrom",
    "Method",
    "Server",
    "Terms",
    "Training",
]

LearnsFrom = Literal["table", "one answer", "several answers", "nothing"]
"""What a method learns from in the training half: every model's answer to every query, one or several answers to each
query, or none. It may go on learning while it serves."""

CallModel = Callable[[int], float]
"""Calls a model on the current query, at most once each, and returns the cost in USD."""


class Answers(NamedTuple):
    """Score and cost of every model's answer: arrays of shape (n_queries, n_models), or (n_models,) for one query."""

    reward: FloatArray
    cost_usd: FloatArray


class BenchQuery(NamedTuple):
    """One query, as a method sees it.

    Attributes
    ----------
    embedding : ndarray of float32 of shape (dim,)
        Vector of the prompt.
    context : int
        Its context.
    chars : int
        Length of the prompt in characters.
    truth : Answers or None
        Score and cost of every model; only for a method with `sees_truth`.
    """

    embedding: Embedding
    context: int
    chars: int
    truth: Answers | None = None


class Terms(NamedTuple):
    """The budget of a run and the number of queries that it is for.

    Attributes
    ----------
    budget_usd : float, USD
        For all queries.
    horizon : int
        Number of queries.
    """

    budget_usd: float
    horizon: int

    @property
    def rate_usd(self) -> float:
        """Budget per query in USD, the rho of the literature."""
        return self.budget_usd / self.horizon


@dataclass(slots=True, eq=False)
class Training:
    """The training half, with the bill for the answers that a method uses.

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
        The pool: names and list prices; see `bench.list_prices`.
    answers : Answers
        Every model's score and cost; methods get them by `table` or `ask`, which record the cost.

    Attributes
    ----------
    asked_usd : float, USD
        Cost of the calls made by `ask` so far.
    bought : bool
        True if the whole table was used.

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
        """Frequency of each context, of shape (n_contexts,)."""
        return self.contexts.freq

    @property
    def collected_usd(self) -> float:
        """Cost of collecting the data used: the whole table once, and each call of `ask`."""
        return self.asked_usd + (float(self.answers.cost_usd.sum()) if self.bought else 0.0)

    def query(self, i: int) -> BenchQuery:
        """Return one query."""
        return BenchQuery(self.embeddings[i], int(self.context_ids[i]), int(self.chars[i]))

    def table(self) -> Answers:
        """Buy and return every model's answer to every query: the dense history that offline methods learn from."""
        self.bought = True
        return self.answers

    def ask(self, query: int, model: int) -> tuple[float, float]:
        """Buy one model's answer to one query, and return its reward and its cost in USD."""
        cost = self.answers.cost_usd.item(query, model)
        self.asked_usd += cost
        return self.answers.reward.item(query, model), cost

    def leaderboard(self) -> Answers:
        """Return mean reward and cost per model, of shape (n_models,): public knowledge, free of charge."""
        return Answers(self.answers.reward.mean(axis=0), self.answers.cost_usd.mean(axis=0))

    def known_costs_usd(self) -> FloatArray:
        """Return mean costs of shape (n_contexts, n_models), for methods that are given them; free of charge.

        The paper gives its budget-aware bandits, and epsilon-first with known costs, the expected cost of every pair.
        A context without queries gets each model's mean.
        """
        count = np.bincount(self.context_ids, minlength=self.contexts.n_contexts)
        total = np.zeros((len(count), self.n_models))
        np.add.at(total, self.context_ids, self.answers.cost_usd)
        mean = self.leaderboard().cost_usd
        return np.where(count[:, np.newaxis] > 0, total / np.maximum(count, 1)[:, np.newaxis], mean)


class Server(ABC):
    """A method that serves queries under one budget."""

    @abstractmethod
    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        """Answer one query.

        Parameters
        ----------
        query : Query
            The query.
        funds : Funds
            Remaining budget by true costs, negative if overspent, and remaining queries, this one included.
        call : callable
            `call(model)` pays for one model's answer and returns its cost in USD.

        Returns
        -------
        int
            The model whose answer is given, one of those called; or `NOT_SERVED`.
        """

    def learn(self, query: BenchQuery, model: int, reward: float, cost_usd: float) -> None:  # noqa: B027
        """Learn from the reward and the cost of one call; a method that does not learn online ignores them."""


class FittedMethod(ABC):
    """A method after learning from the training half, for every budget."""

    @abstractmethod
    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        """Tune for one budget, on training data only, and return a server; servers do not affect one another."""


class Method(ABC):
    """A method of choosing models.

    Attributes
    ----------
    name : str
        Its name on the command line and in tables; each setting of a method has its own.
    note : str
        A remark on its figures: information that other methods lack, departures from the source.
    sees_truth : bool
        True if it gets `query.truth`; such a method does not compete with the others.
    learns_from : str
        What it learns from in the training half; methods compete with those that learn from as much.
    """

    name: str
    note: str = ""
    sees_truth: bool = False
    learns_from: LearnsFrom = "table"

    @abstractmethod
    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Learn from the training half."""
