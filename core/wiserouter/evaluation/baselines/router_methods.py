"""Policies of the router and of the simulation, served through `WiseRouter` as in production.

A policy starts from a dense history or without one. A policy that learns from single calls may practise first: it
serves the queries of the training half in random order, once or several times, and pays for each of its calls. This is
the paper's setting of WR-Online, whose exploration is "restricted to the training set for fair comparison with offline
methods", 1x to 4x as long. The budget of the test half is separate.
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
    LearnsFrom,
    Method,
    Server,
    Terms,
    Training,
)
from wiserouter.evaluation.baselines.histories import dense
from wiserouter.evaluation.baselines.practice import PracticeCalls
from wiserouter.fitting.fit_residuals import fit_residuals, smoothing_of
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import QueryResiduals, Sample
from wiserouter.learning.residuals.model_selection import MEANS, SMOOTHED
from wiserouter.planning.policies import EpsilonFirst, Policy
from wiserouter.router import WiseRouter

TrainingBudget = Callable[[Training, Terms], float]
"""The budget in USD of one practice pass over the training half."""


def at_the_same_rate(training: Training, terms: Terms) -> float:
    """Return a budget at the rate of the test half."""
    return terms.rate_usd * training.n_queries


def as_the_table(training: Training, terms: Terms) -> float:
    """Return the cost of the whole training table plus the budget of the test half."""
    return float(training.answers.cost_usd.sum()) + terms.budget_usd


@dataclass(frozen=True)
class Routed(Method):
    """A policy served by a router.

    Parameters
    ----------
    name, note, learns_from : str
        See `Method`.
    policy : callable
        Makes a new policy for a training half.
    history : callable
        Makes the estimates that the policy starts from.
    passes : int
        Number of practice passes over the training half.
    training_budget : callable
        Budget of each pass.
    estimator : {"smoothed", "means", "ridge", "auto"}
        Estimator of the rewards, as `WiseRouter.fit` takes it.
    afterwards : callable, optional
        Makes the policy after practice; the same one by default.
    """

    name: str
    policy: Callable[[Training], Policy]
    history: Callable[[Training], Estimates] = dense
    passes: int = 0
    training_budget: TrainingBudget = at_the_same_rate
    note: str = ""
    learns_from: LearnsFrom = "table"
    estimator: str = MEANS
    afterwards: Callable[[], Policy] | None = None

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Compute the estimates of the history, and fit the estimator of single queries."""
        estimates = self.history(training)
        residuals = None
        if self.estimator != MEANS:
            sample = Sample(training.embeddings, training.context_ids, *training.table())
            if self.estimator == SMOOTHED:
                estimates.smoothing = smoothing_of(sample, estimates)
            else:
                residuals, _ = fit_residuals(sample, training.contexts, estimates, self.estimator, None, seed=0)
        return _FittedRouted(self, training, estimates, residuals)


@dataclass(frozen=True)
class _FittedRouted(FittedMethod):
    method: Routed
    training: Training
    estimates: Estimates
    residuals: QueryResiduals | None

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        method, training = self.method, self.training
        router = self._router(method.policy(training), self.estimates, rng)
        if method.passes:
            n = method.passes * training.n_queries
            router.start(Budget(method.passes * method.training_budget(training, terms), n))
            _practise(RouterServer(router), training, method.passes, rng)
            if method.afterwards is not None:
                router = self._router(method.afterwards(), router.estimates, rng)
        router.start(Budget(terms.budget_usd, terms.horizon))
        return RouterServer(router)

    def _router(self, policy: Policy, estimates: Estimates, rng: np.random.Generator) -> WiseRouter:
        return WiseRouter(
            self.training.models,
            self.training.contexts,
            policy=policy,
            estimates=estimates.copy(),
            residuals=None if self.residuals is None else self.residuals.copy(),
            seed=int(rng.integers(2**32)),
        )


class RouterServer(Server):
    """A server that decides, charges and rewards through a router with a started budget."""

    def __init__(self, router: WiseRouter) -> None:
        self._router = router

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        """Let the router decide; it keeps its own account of the same budget."""
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
    """Serve the training half in random order, `passes` times."""
    for _ in range(passes):
        for i in rng.permutation(training.n_queries).tolist():
            query, calls = training.query(i), PracticeCalls(training, i)
            server.serve(query, Funds(0.0, 0), calls.call)
            for model, (reward, cost_usd) in calls.answers.items():
                server.learn(query, model, reward, cost_usd)


def explored(training: Training, passes: int, rng: np.random.Generator) -> Estimates:
    """Return the estimates of Algorithm 2 after exploring the training half `passes` times."""
    policy = EpsilonFirst(passes * training.n_queries, accounting="paper", allow_skip=True)
    router = WiseRouter(training.models, training.contexts, policy=policy, seed=int(rng.integers(2**32)))
    n = passes * training.n_queries
    router.start(Budget(float(training.answers.cost_usd.sum()) * passes, n))
    _practise(RouterServer(router), training, passes, rng)
    return router.estimates
