"""The service of a stream of queries by one method: the bench pays for calls, records and times them."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import NamedTuple

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.baselines.base import NOT_SERVED, Server, Terms
from wiserouter.evaluation.bench.splits import Queries
from wiserouter.types import FloatArray, IntArray


class ServingTrace(NamedTuple):
    """The record of a stream; arrays of shape (n_queries,).

    Attributes
    ----------
    given : ndarray of int
        The model whose answer was given, or `NOT_SERVED`.
    calls : ndarray of int
        Number of models called.
    reward : ndarray of float
        Score of the answer; 0 without one.
    cost_usd : ndarray of float
        Cost of all calls.
    decide_s : ndarray of float
        Processor time of deciding and learning, in seconds.
    """

    given: IntArray
    calls: IntArray
    reward: FloatArray
    cost_usd: FloatArray
    decide_s: FloatArray


class _QueryCalls:
    """Pays for the calls of one query."""

    def __init__(self, cost_usd: list[float]) -> None:
        self._cost_usd = cost_usd
        self.paid: dict[int, float] = {}

    def call(self, model: int) -> float:
        if model in self.paid or not 0 <= model < len(self._cost_usd):
            rule = f"a method may call each of the {len(self._cost_usd)} models once a query"
            raise InvalidInput(f"{rule}, got {model} after {list(self.paid)}", value=model)
        return self.paid.setdefault(model, self._cost_usd[model])


def serve_all(
    server: Server,
    queries: Queries,
    terms: Terms,
    *,
    sees_truth: bool = False,
    clock: Callable[[], float] = thread_time,
) -> ServingTrace:
    """Serve all queries in order.

    Raises
    ------
    InvalidInput
        If the method calls a model twice on one query, or returns an answer that it did not pay for.
    """
    n = queries.n
    given, calls = np.full(n, NOT_SERVED, dtype=np.int64), np.zeros(n, dtype=np.int64)
    reward, cost_usd, decide_s = np.zeros(n), np.zeros(n), np.zeros(n)
    rewards, costs = queries.answers.reward.tolist(), queries.answers.cost_usd.tolist()
    left = terms.budget_usd
    for t in range(n):
        query, calls_made = queries.query(t, with_truth=sees_truth), _QueryCalls(costs[t])
        began = clock()
        chosen = server.serve(query, Funds(left, terms.horizon - t, share=1.0 - t / terms.horizon), calls_made.call)
        for model, paid in calls_made.paid.items():
            server.learn(query, model, rewards[t][model], paid)
        decide_s[t] = clock() - began
        given[t], calls[t] = chosen, len(calls_made.paid)
        cost_usd[t] = sum(calls_made.paid.values())
        left -= cost_usd.item(t)
        if chosen != NOT_SERVED:
            reward[t] = rewards[t][_called(chosen, calls_made)]
    return ServingTrace(given, calls, reward, cost_usd, decide_s)


def _called(chosen: int, calls_made: _QueryCalls) -> int:
    if chosen not in calls_made.paid:
        raise InvalidInput(
            f"a method must return the answer of a model that it called, got {chosen} of {list(calls_made.paid)}"
        )
    return chosen
