r"""The constrained bandit with demand predictions (Huang, Liu and Xu, arXiv 2606.17489).

Tasks of several types arrive in slots; reward and cost of a model are unknown, and only those of the chosen model are
observed. The budget is a hard packing constraint. In each slot the linear program over models and types is solved with
upper confidence bounds of the rewards and lower confidence bounds of the costs, for the part of the budget that the
predicted demand of the slots to come leaves to it,

.. math:: \max_p \sum_j \hat d_j \sum_k p_{jk} \overline u_{jk}
          \quad\text{s.t.}\quad \sum_j \hat d_j \sum_k p_{jk} \underline c_{jk} \le b\, / \textstyle\sum \hat d ,

and models are drawn from its solution; the null action is allowed, and no task is served once the budget is used up.

Departures: types are the bench's contexts, and demand is predicted by the remaining number of queries, which the bench
gives to all methods, times the frequencies of the training half. The soft covering constraint, on latency in their
experiments, is left out: tables have none. Slots are of 20 queries. As in their analysis the bound of a mean after n
observations of T is :math:`\sqrt{\ln T / (2 n)}`, that of a cost in units of the largest cost seen of the model. It
practises on the training half once, at the budget's rate.
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
    LearnsFrom,
    Method,
    Server,
    Terms,
    Training,
)
from wiserouter.evaluation.baselines.practice import practise
from wiserouter.planning.plan import Plan
from wiserouter.types import FloatArray

SLOT = 20
"""Queries per slot."""


class ConstrainedBandit(Method):
    """The linear program at confidence bounds, solved again in every slot."""

    name = "constrained-bandit"
    note = "learns from 1 call per training query"
    learns_from: LearnsFrom = "one answer"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Keep the training half for practice."""
        return _FittedConstrained(training)


class ConfidenceBounds:
    """Means of rewards and costs with confidence bounds.

    Parameters
    ----------
    shape : (int, int)
        Number of contexts and models.
    horizon : int
        Number of observations to come, T.

    Examples
    --------
    >>> bounds = ConfidenceBounds((1, 2), horizon=100)
    >>> bounds.add(0, 0, 0.5, 2.0)
    >>> reward, cost_usd = bounds.optimistic()
    >>> reward.tolist(), cost_usd.tolist()
    ([[1.0, 1.0]], [[0.0, 0.0]])
    """

    def __init__(self, shape: tuple[int, int], horizon: int) -> None:
        self._count, self._reward, self._cost_usd = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self._largest_usd = np.zeros(shape[1])
        self._log = float(np.log(max(horizon, 2)))

    def add(self, context: int, model: int, reward: float, cost_usd: float) -> None:
        """Add one observation."""
        self._count[context, model] += 1.0
        self._reward[context, model] += reward
        self._cost_usd[context, model] += cost_usd
        self._largest_usd[model] = max(self._largest_usd[model], cost_usd)

    def optimistic(self) -> tuple[FloatArray, FloatArray]:
        """Return upper bounds of the rewards and lower bounds of the costs."""
        n = np.maximum(self._count, 1.0)
        width = np.where(self._count > 0.0, np.sqrt(self._log / (2.0 * n)), 1.0)
        reward = np.minimum(self._reward / n + width, 1.0)
        return reward, np.maximum(self._cost_usd / n - width * self._largest_usd, 0.0)


@dataclass(frozen=True)
class _FittedConstrained(FittedMethod):
    training: Training

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        training = self.training
        n, shape = training.n_queries, (training.contexts.n_contexts, training.n_models)
        bounds = ConfidenceBounds(shape, n + terms.horizon)
        practise(_ConstrainedServer(bounds, training.freq, rng), training, terms.rate_usd, rng)
        return _ConstrainedServer(bounds, training.freq, rng)


@dataclass
class _ConstrainedServer(Server):
    bounds: ConfidenceBounds
    freq: FloatArray
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self._plan: Plan | None = None
        self._served = 0

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        if self._plan is None or self._served % SLOT == 0:
            self._plan = Plan(self.freq, *self.bounds.optimistic(), allow_skip=True)
            self._rate_usd = max(funds.left_usd, 0.0) / max(funds.requests, 1)
        self._served += 1
        if funds.left_usd <= 0.0:
            return NOT_SERVED
        model = self._plan.choose(query.context, self._rate_usd, self.rng)
        if model is None:
            return NOT_SERVED
        call(model)
        return model

    def learn(self, query: BenchQuery, model: int, reward: float, cost_usd: float) -> None:
        self.bounds.add(query.context, model, reward, cost_usd)
