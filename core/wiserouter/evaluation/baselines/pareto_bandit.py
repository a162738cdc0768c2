r"""ParetoBandit (Taberner-Miller, arXiv 2604.00136, version 0.1.1): LinUCB with a pacer that prices cost.

Each query goes to the model with the highest

.. math:: x^\top\hat\theta_k + \alpha \sqrt{x^\top A_k^{-1} x} - \lambda_t \tilde c_k ,

with `x` the first 25 principal components of the embedding and a constant, and :math:`\tilde c_k` the model's list
price on a log scale from 0 for the cheapest to 1 for the most expensive. After every call the pacer updates

.. math:: \bar c \leftarrow 0.95\, \bar c + 0.05\, c, \qquad
          \lambda \leftarrow \mathrm{clip}(\lambda + 0.05 (\bar c / \rho - 1), 0, 5) .

The settings are the author's: alpha 0.1, forgetting 0.997, a prior from the dense training half that counts as 1,000
queries.

Departures: the pacer gets the true cost of each call (that of the public interface gets an estimate, and only with
feedback; the published experiments use true costs); the scale ends at the pool's own prices, not at those of the
market; the ceiling on list prices of the "hard" mode is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wiserouter.evaluation.baselines.base import (
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
from wiserouter.types import Embedding, FloatArray

COMPONENTS = 25
ALPHA = 0.1
FORGETTING = 0.997
PRIOR_QUERIES = 1000.0
STEP, SMOOTHING, HIGHEST_PRICE = 0.05, 0.05, 5.0  # of the pacer


class ParetoBandit(Method):
    """LinUCB that learns from every reward, with a price updated by every cost."""

    name = "paretobandit"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Compute the components and the prior from the history."""
        components = Components.of(training.embeddings)
        features = np.array([components.features(row) for row in training.embeddings])
        gram, moment = dense_moments(features, training.table().reward)
        weight = min(1.0, PRIOR_QUERIES / training.n_queries)
        return _FittedPareto(components, weight * gram, weight * moment, log_scaled(list_prices(training)))


@dataclass(frozen=True)
class Components:
    """The principal components of the embeddings."""

    mean: FloatArray
    directions: FloatArray

    @classmethod
    def of(cls, embeddings: Embedding) -> Components:
        """Return at most 25 principal directions."""
        rows = np.asarray(embeddings, np.float64)
        mean = rows.mean(axis=0)
        directions = np.linalg.svd(rows - mean, full_matrices=False)[2]
        return cls(mean, directions[:COMPONENTS])

    def features(self, embedding: Embedding) -> FloatArray:
        """Return the components of one embedding and a constant."""
        return np.append(self.directions @ (embedding - self.mean), 1.0)


def list_prices(training: Training) -> FloatArray:
    """Return the mean of each model's input and output price, or all mean costs if a price is unknown."""
    prices = [model.price for model in training.models]
    known = [(price.input + price.output) / 2.0 for price in prices if price is not None]
    return np.array(known) if len(known) == len(prices) else training.leaderboard().cost_usd


def log_scaled(cost_usd: FloatArray) -> FloatArray:
    """Return costs on a log scale from 0 to 1.

    Examples
    --------
    >>> log_scaled(np.array([1.0, 10.0, 100.0]))
    array([0. , 0.5, 1. ])
    """
    logs = np.log(np.maximum(cost_usd, 1e-12))
    span = logs.max() - logs.min()
    return (logs - logs.min()) / span if span > 0.0 else np.full(len(logs), 0.5)


class Pacer:
    """The pacer: raises the price of cost while spending is above the rate, and lowers it while it is below.

    Parameters
    ----------
    rate_usd : float, USD per request
        Allowed mean cost of a call.

    Examples
    --------
    >>> pacer = Pacer(1.0)
    >>> pacer.observe(21.0)
    >>> pacer.mean_usd, round(pacer.price, 3)
    (2.0, 0.05)
    """

    def __init__(self, rate_usd: float) -> None:
        self._rate_usd, self.mean_usd, self.price = rate_usd, rate_usd, 0.0

    def observe(self, cost_usd: float) -> None:
        """Update the price by the cost of one call."""
        self.mean_usd += SMOOTHING * (cost_usd - self.mean_usd)
        moved = self.price + STEP * (self.mean_usd / self._rate_usd - 1.0)
        self.price = min(max(moved, 0.0), HIGHEST_PRICE)


@dataclass(frozen=True)
class _FittedPareto(FittedMethod):
    components: Components
    gram: FloatArray
    moment: FloatArray
    scaled: FloatArray

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        arms = LinearArms(self.gram, self.moment, forgetting=FORGETTING)
        return ParetoServer(self.components, arms, self.scaled, Pacer(terms.rate_usd))


@dataclass
class ParetoServer(Server):
    """The bandit, with cost at the price of the pacer."""

    components: Components
    arms: LinearArms
    scaled: FloatArray
    pacer: Pacer

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        """Serve with the model of the highest bound minus priced cost."""
        self._features = self.components.features(query.embedding)
        mean, width = self.arms.bounds(self._features)
        model = int((mean + ALPHA * width - self.pacer.price * self.scaled).argmax())
        call(model)
        return model

    def learn(self, query: BenchQuery, model: int, reward: float, cost_usd: float) -> None:
        """Learn from the reward, and pace by the cost."""
        self.pacer.observe(cost_usd)
        self.arms.learn(model, self._features, reward)
