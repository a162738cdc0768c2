r"""PORT (Wu and Silwal, NeurIPS 2025, arXiv 2509.02718): dual prices of the models' budgets, fixed once.

The five nearest neighbours in the training half estimate reward `d` and cost `g`. The first 2.5 % of the queries draw a
model, or none, at random; then, once,

.. math:: \gamma = \arg\min_{\gamma \ge 0} \varepsilon \sum_k B_k \gamma_k
          + \sum_q \max_k (d_{qk} - \gamma_k g_{qk})_+

on those queries, and every later one goes to :math:`\arg\max_k d_k - \gamma_k g_k`, regardless of the spend so far. The
budget is split over the models in proportion to mean reward per mean cost, the authors' default. `port-pooled` is ours:
one account and one price for all models, as there is only one budget here.

Departures: the minimum is exact, from a linear program instead of L-BFGS-B on the non-smooth function, so that the
authors' alpha has no effect (it scales gamma); neighbours are exact, not approximate; queries beyond a model's share of
the budget are answered and shown as overspending, while the authors' experiments drop them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import numpy as np

from wiserouter.evaluation.baselines.base import (
    NOT_SERVED,
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
from wiserouter.types import FloatArray, IntArray

NEIGHBOURS = 5
LEARNING_SHARE = 0.025


class Port(Method):
    """One dual price per model, computed once."""

    name = "port"
    note = "splits the budget over the models beforehand"
    pooled = False

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Store the history."""
        history = NearestNeighbors(training.embeddings, training.table(), NEIGHBOURS)
        reward, cost_usd = training.leaderboard()
        worth = reward / np.maximum(cost_usd, 1e-12) if reward.any() else np.ones(len(reward))
        if self.pooled:
            return _FittedPort(history, np.zeros(len(worth), np.int64), np.ones(1))
        return _FittedPort(history, np.arange(len(worth)), worth / worth.sum())


class PooledPort(Port):
    """One dual price for all models, computed once."""

    name = "port-pooled"
    note = "PORT with one account for all models"
    pooled = True


def fixed_prices(expected: Answers, account: IntArray, budget_usd: FloatArray) -> FloatArray:
    """Return the price of each account's budget, in reward per USD.

    Parameters
    ----------
    expected : Answers
        Expected reward and cost, each of shape (n_queries, n_models).
    account : ndarray of int of shape (n_models,)
        The account that pays for each model.
    budget_usd : ndarray of shape (n_accounts,), USD
        Budget of each account for these queries.

    Examples
    --------
    >>> two = Answers(np.array([[0.5, 0.9], [0.5, 0.6]]), np.array([[1.0, 3.0], [1.0, 3.0]]))
    >>> fixed_prices(two, np.array([0, 0]), np.array([4.0])).round(3)  # the expensive model yields 0.2 per USD once
    array([0.2])
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack, identity

    n, n_models = expected.reward.shape
    n_accounts, unit_usd = (
        len(budget_usd),
        float(expected.cost_usd.mean()),
    )  # costs of the size of rewards
    rows = np.arange(n * n_models)
    prices = csr_array(
        (expected.cost_usd.ravel() / unit_usd, (rows, np.tile(account, n))), shape=(len(rows), n_accounts)
    )
    gains = identity(n, format="csr")[np.repeat(np.arange(n), n_models)]
    solved = linprog(
        np.concatenate([budget_usd / unit_usd, np.ones(n)]),
        A_ub=-hstack([prices, gains]),
        b_ub=-expected.reward.ravel(),
    )
    return np.asarray(solved.x[:n_accounts] / unit_usd, np.float64)


@dataclass(frozen=True)
class _FittedPort(FittedMethod):
    history: NearestNeighbors
    account: IntArray
    split: FloatArray

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        learning = min(terms.horizon, max(1, ceil(LEARNING_SHARE * terms.horizon)))
        budget_usd = self.split * terms.budget_usd * learning / terms.horizon
        return _PortServer(self.history, self.account, budget_usd, learning, rng)


@dataclass
class _PortServer(Server):
    history: NearestNeighbors
    account: IntArray
    budget_usd: FloatArray
    learning: int
    rng: np.random.Generator
    seen: list[Answers] = field(default_factory=list)
    price: FloatArray | None = None

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        expected = self.history.means(query.embedding)
        model = self._drawn(expected) if len(self.seen) < self.learning else self._best(expected)
        if model != NOT_SERVED:
            call(model)
        return model

    def _drawn(self, expected: Answers) -> int:
        self.seen.append(expected)
        model = int(self.rng.integers(len(self.account) + 1))
        return model if model < len(self.account) else NOT_SERVED

    def _best(self, expected: Answers) -> int:
        if self.price is None:
            seen = Answers(*(np.array(each) for each in zip(*self.seen, strict=True)))
            self.price = fixed_prices(seen, self.account, self.budget_usd)[self.account]
        return int((expected.reward - self.price * expected.cost_usd).argmax())
