r"""PILOT (Panda et al., EMNLP Findings 2025, arXiv 2508.21141): LinUCB from a preference prior, and an online knapsack.

Each model's vector starts at the one learned offline, :math:`A_k = \kappa I, b_k = \kappa \theta_k`, here the ridge
regression of its rewards in the training half, and learns from every reward. A model is eligible while its reward per
USD is at least

.. math:: \left(\frac{U e}{L}\right)^z \frac{L}{e} ,

with `z` the share of the budget that is used, and `L`, `U` the smallest and largest reward per USD of any model in any
context (Zhou, Chakrabarty and Lukose 2008; the online multiple-choice knapsack). Of the eligible models the one with
the highest upper confidence bound serves; if none is eligible, as at `z = 1` with :math:`U` itself the threshold, the
query is not served. The budget is divided into bins of 100 queries, and the rest of a bin is added to the next.

Departures: the queries' embedding is the bench's, not projected, and the prior is regressed on scores rather than on
preferences between pairs, which the tables lack; expected costs are each context's means. The authors' settings were
not available: kappa 10, alpha 0.1 and the bins are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import e
from typing import Protocol

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
from wiserouter.evaluation.baselines.linear_bandit import LinearArms, dense_moments
from wiserouter.learning.estimates import Estimates
from wiserouter.types import Embedding, FloatArray

PRIOR = 10.0
ALPHA = 0.1
BIN = 100


class Pilot(Method):
    """LinUCB among the models whose reward per USD is high enough."""

    name = "pilot"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Learn the prior and the range of rewards per USD."""
        reward, cost_usd = training.table()
        gram, moment = dense_moments(query_features(training.embeddings), reward)
        prior = np.asarray(np.linalg.solve(gram + np.eye(gram.shape[1]), moment[..., np.newaxis])[..., 0], np.float64)
        estimates = Estimates(training.contexts.n_contexts, training.n_models)
        estimates.add_table(training.context_ids, reward, cost_usd)
        means = estimates.means(shrink=False)
        worth = (means.reward / np.maximum(means.cost_usd, 1e-12))[estimates.calls > 0]
        useful = worth[worth > 0.0]
        limits = (float(useful.min()), float(useful.max())) if len(useful) else (1.0, 1.0)
        return _FittedPilot(prior, _KnownWorth(means.cost_usd, limits))


def threshold(used: float, low: float, high: float) -> float:
    """Return the least reward per USD of an eligible model, with `used` the spent share of the budget.

    Examples
    --------
    >>> round(threshold(0.0, 1.0, 9.0) * e, 6), round(threshold(1.0, 1.0, 9.0), 6)
    (1.0, 9.0)
    """
    return float((high * e / low) ** used * low / e)


class Bins:
    """The budget in bins of queries; the rest of a bin is added to the next.

    Parameters
    ----------
    rate_usd : float, USD per query
        Budget that each query adds to its bin.
    horizon : int
        Number of queries.

    Examples
    --------
    >>> bins = Bins(1.0, 150)
    >>> bins.pay(40.0)
    >>> bins.used
    0.4
    >>> for _ in range(100):
    ...     bins.step()
    >>> bins.budget_usd  # 50 more queries and a rest of 60
    110.0
    """

    def __init__(self, rate_usd: float, horizon: int) -> None:
        self._rate_usd, self._left = rate_usd, horizon
        self.budget_usd, self.spent_usd, self._queries = 0.0, 0.0, 0
        self._open()

    @property
    def used(self) -> float:
        """Spent share of this bin; 1 if it is empty."""
        return min(1.0, self.spent_usd / self.budget_usd) if self.budget_usd > 0.0 else 1.0

    def pay(self, cost_usd: float) -> None:
        """Add the cost of a call to this bin."""
        self.spent_usd += cost_usd

    def step(self) -> None:
        """End one query."""
        self._left, self._queries = self._left - 1, self._queries - 1
        if not self._queries:
            self._open()

    def _open(self) -> None:
        self._queries = min(BIN, self._left)
        self.budget_usd += self._rate_usd * self._queries - self.spent_usd
        self.spent_usd = 0.0


def query_features(embeddings: Embedding) -> FloatArray:
    """Return embeddings with a constant appended, scaled to length 1."""
    rows = np.concatenate([embeddings, np.ones((*embeddings.shape[:-1], 1))], axis=-1, dtype=np.float64)
    scaled: FloatArray = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return scaled


class Worth(Protocol):
    """The expected costs, and the range of rewards per USD, which may learn from answers."""

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest reward per USD."""

    def cost_usd(self, context: int) -> FloatArray:
        """Return the expected cost of every model."""

    def add(self, model: int, reward: float, cost_usd: float) -> None:
        """Learn from one answer."""


@dataclass
class _KnownWorth:
    """Costs of shape (n_contexts, n_models) and the limits of a dense history."""

    means_usd: FloatArray
    limits: tuple[float, float]

    def cost_usd(self, context: int) -> FloatArray:
        row: FloatArray = self.means_usd[context]
        return row

    def add(self, model: int, reward: float, cost_usd: float) -> None:
        """Ignore the answer: the history is known."""


@dataclass(frozen=True)
class _FittedPilot(FittedMethod):
    prior: FloatArray
    worth: _KnownWorth

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        n_models, dim = self.prior.shape
        arms = LinearArms(np.zeros((n_models, dim, dim)), PRIOR * self.prior, ridge=PRIOR)
        return PilotServer(arms, self.worth, Bins(terms.rate_usd, terms.horizon))


@dataclass
class PilotServer(Server):
    """The bandit among the models whose reward per USD is high enough."""

    arms: LinearArms
    worth: Worth
    bins: Bins

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        """Serve with the eligible model of the highest bound, if there is one."""
        self._features = query_features(query.embedding)
        mean, width = self.arms.bounds(self._features)
        cost_usd = self.worth.cost_usd(query.context)
        eligible = mean >= threshold(self.bins.used, *self.worth.limits) * cost_usd
        eligible &= cost_usd <= self.bins.budget_usd - self.bins.spent_usd
        model = int(np.where(eligible, mean + ALPHA * width, -np.inf).argmax()) if eligible.any() else NOT_SERVED
        if model != NOT_SERVED:
            self.bins.pay(call(model))
        self.bins.step()
        return model

    def learn(self, query: BenchQuery, model: int, reward: float, cost_usd: float) -> None:
        """Learn from the answer."""
        self.arms.learn(model, self._features, reward)
        self.worth.add(model, reward, cost_usd)
