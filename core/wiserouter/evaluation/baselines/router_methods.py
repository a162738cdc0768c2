"""Policies of the router, and of the simulation, served through `WiseRouter` as its users serve them.

What a policy starts from is a dense history, or nothing. One that learns from single calls may practise first: it
meets the queries of the training half in random order, once or several times, and each of its calls there is paid for.
That is the paper's setting of WR-Online, whose exploration is "restricted to the training set for fair comparison with
offline methods", 1x to 4x as long as that. The budget of the test half is another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.funds import Funds
from wiserouter.errors import BudgetError, QuerySkipped
from wiserouter.evaluation.baselines.base import (
    NOT_SERVED,
    BenchQuery,
    CallModel,
    FittedMethod,
    Method,
    Server,
    Terms,
    Training,
)
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.policies import EpsilonFirst, Policy
from wiserouter.router import WiseRouter

TrainingBudget = Callable[[Training, Terms], float]
"""What practice on one pass over the training half may cost, in USD."""


def dense(training: Training) -> Estimates:
    """Return the estimates of a dense history."""
    estimates = blank(training)
    estimates.add_table(training.context_ids, *training.table())
    return estimates


def blank(training: Training) -> Estimates:
    """Return estimates that hold nothing."""
    return Estimates(training.contexts.n_contexts, training.n_models)


def at_the_same_rate(training: Training, terms: Terms) -> float:
    """Return as much per query as the test half has."""
    return terms.rate_usd * training.n_queries


def as_the_table(training: Training, terms: Terms) -> float:
    """Return what the whole training table costs, and the budget of the test half."""
    return float(training.answers.cost_usd.sum()) + terms.budget_usd


@dataclass(frozen=True)
class Routed(Method):
    """A policy in a router.

    Parameters
    ----------
    name, note : str
        See `Method`.
    policy : callable
        From the training half to a new policy.
    history : callable
        From the training half to what the policy starts from.
    passes : int
        How often it practises on the training half before it serves.
    purse : callable
        What each pass may cost.
    """

    name: str
    policy: Callable[[Training], Policy]
    history: Callable[[Training], Estimates] = dense
    passes: int = 0
    training_budget: TrainingBudget = at_the_same_rate
    note: str = ""

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Count the history."""
        return _FittedRouted(self, training, self.history(training))


@dataclass(frozen=True)
class _FittedRouted(FittedMethod):
    method: Routed
    training: Training
    estimates: Estimates

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        method, training = self.method, self.training
        router = WiseRouter(
            training.models,
            training.contexts,
            policy=method.policy(training),
            estimates=self.estimates.copy(),
            seed=int(rng.integers(2**32)),
        )
        if method.passes:
            n = method.passes * training.n_queries
            router.start(Budget(method.passes * method.training_budget(training, terms), n))
            _practise(RouterServer(router), training, method.passes, rng)
        router.start(Budget(terms.budget_usd, terms.horizon))
        return RouterServer(router)


class RouterServer(Server):
    """Decides, charges and rewards.

    Parameters
    ----------
    router : WiseRouter
        With a budget started.
    """

    def __init__(self, router: WiseRouter) -> None:
        self._router = router

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        """Ask the router, which keeps its own account of the same budget."""
        router = self._router
        try:
            self._decision = router.decide(embedding=query.embedding)
        except (BudgetError, QuerySkipped):
            return NOT_SERVED
        model = router.pool.index(self._decision.model)
        router.charge(self._decision, call(model))
        return model

    def learn(self, query: BenchQuery, model: int, reward: float, cost_usd: float) -> None:
        """Reward the decision."""
        self._router.reward(self._decision, reward)


def _practise(server: RouterServer, training: Training, passes: int, rng: np.random.Generator) -> None:
    """Serve the training half in random order, so many times."""
    for _ in range(passes):
        for i in rng.permutation(training.n_queries).tolist():
            query, asked = training.query(i), _PracticeCalls(training, i)
            server.serve(query, Funds(0.0, 0), asked.call)
            for model, (reward, cost_usd) in asked.answers.items():
                server.learn(query, model, reward, cost_usd)


def explored(training: Training, passes: int, rng: np.random.Generator) -> Estimates:
    """Return what Algorithm 2 has learned when its exploration of so many passes over the training half ends."""
    policy = EpsilonFirst(passes * training.n_queries, accounting="paper", allow_skip=True)
    router = WiseRouter(training.models, training.contexts, policy=policy, seed=int(rng.integers(2**32)))
    n = passes * training.n_queries
    router.start(Budget(float(training.answers.cost_usd.sum()) * passes, n))
    _practise(RouterServer(router), training, passes, rng)
    return router.estimates


class _PracticeCalls:
    """The calls on one query of the training half."""

    def __init__(self, training: Training, query: int) -> None:
        self._training, self._query = training, query
        self.answers: dict[int, tuple[float, float]] = {}

    def call(self, model: int) -> float:
        self.answers[model] = self._training.ask(self._query, model)
        return self.answers[model][1]
