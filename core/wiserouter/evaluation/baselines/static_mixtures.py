"""Plans that are never revised: the paper's static LP, and RouterBench's Zero router.

Static LP (paper, Section "Adaptive LP vs. Static LP constraint") solves the linear program once at rho = B / T and
draws from it for every query, with the statistics of WR-Offline: errors of the estimates are overspent or left over.

The Zero router (Hu et al., RouterBench, 2024) mixes single models along the non-decreasing convex hull of their (cost,
quality), regardless of the query: a router below it has no value. This is the same plan with one context. It is given
each model's mean reward and cost. Below the cheapest model's cost it takes that model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wiserouter.evaluation.baselines.base import (
    NOT_SERVED,
    BenchQuery,
    CallModel,
    FittedMethod,
    Funds,
    Method,
    Server,
    Terms,
    Training,
)
from wiserouter.evaluation.baselines.histories import dense
from wiserouter.planning.plan import Plan


class StaticLp(Method):
    """The plan of the training half at the initial rate of the workload."""

    name = "static-lp"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Solve the linear program for every rate."""
        return _FittedPlan(Plan(training.freq, *dense(training).means(shrink=False), allow_skip=True))


class ZeroRouter(Method):
    """The best mixture of single models for the budget."""

    name = "zero"
    note = "is given each model's mean reward and cost"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Compute the hull of the models."""
        reward, cost_usd = training.leaderboard()
        return _FittedPlan(Plan([1.0], [reward], [cost_usd]))


@dataclass(frozen=True)
class _FittedPlan(FittedMethod):
    plan: Plan

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        return _PlanServer(self.plan, max(terms.rate_usd, self.plan.floor_usd), rng)


@dataclass(frozen=True)
class _PlanServer(Server):
    plan: Plan
    rate_usd: float
    rng: np.random.Generator

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        model = self.plan.choose(query.context if self.plan.n_contexts > 1 else 0, self.rate_usd, self.rng)
        if model is None:
            return NOT_SERVED
        call(model)
        return model
