r"""OrcaRouter (Bao et al., arXiv 2605.30736): LinUCB on lexical and sentence features, fitted offline.

Offline every model answers a set of prompts, and a ridge regression is fitted for each on that full matrix of rewards.
A query goes to the model with the largest upper confidence bound

.. math:: x^\top\hat\theta_k + \alpha \sqrt{x^\top A_k^{-1} x} - \lambda\, x^\top\hat\gamma_k ,

with :math:`\hat\gamma_k` the same regression of its costs; the answer updates the regressions of the model that served.

Departures: the authors reward a score from which a weighted cost is taken off. Regressions are linear, so that this is
the difference of two regressions, and the weight :math:`\lambda` is the one whose spend on the training half comes
closest to the budget without exceeding it. The sentence features are the first 32 principal components of the bench's
embedding. Tables give a method no text: the lexical features are the logarithm of the length and the words that the
default embedding counts. Their constants were not available: alpha 0.1 and a ridge of 1 are those of the other bandits
of this bench.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wiserouter.evaluation.baselines.base import (
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
from wiserouter.evaluation.baselines.linear_bandit import LinearArms, dense_moments
from wiserouter.evaluation.baselines.price_table import PriceTable, price_table
from wiserouter.types import FloatArray

COMPONENTS = 32
ALPHA = 0.1
RIDGE = 1.0


class OrcaRouter(Method):
    """LinUCB from ridge regressions on a full history, which goes on learning."""

    name = "orcarouter"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Fit the features and the regressions, and compute the spend of every weight of cost."""
        features = PromptFeatures.of(training)
        rows = np.array([features.of_query(training.query(i)) for i in range(training.n_queries)])
        reward, cost_usd = training.table()
        scale = float(cost_usd.mean()) or 1.0
        gram, reward_moment = dense_moments(rows, reward)
        _, cost_moment = dense_moments(rows, cost_usd / scale)
        arms = [LinearArms(gram, moment, ridge=RIDGE) for moment in (reward_moment, cost_moment)]
        expected = Answers(*(np.array([each.bounds(row)[0] for row in rows]) for each in arms))
        table = price_table(Answers(expected.reward, np.maximum(expected.cost_usd, 0.0) * scale), cost_usd)
        return _FittedOrca(features, gram, Answers(reward_moment, cost_moment), scale, table)


@dataclass(frozen=True)
class PromptFeatures:
    """Principal components of the embedding, the standardised log length and a constant."""

    mean: FloatArray
    directions: FloatArray
    log_mean: float
    log_spread: float

    @classmethod
    def of(cls, training: Training) -> PromptFeatures:
        """Return the features of a history."""
        rows = np.asarray(training.embeddings, np.float64)
        mean = rows.mean(axis=0)
        directions = np.linalg.svd(rows - mean, full_matrices=False)[2][:COMPONENTS]
        logs = np.log1p(training.chars)
        return cls(mean, directions, float(logs.mean()), float(logs.std()) or 1.0)

    def of_query(self, query: BenchQuery) -> FloatArray:
        """Return the features of one query."""
        length = (np.log1p(query.chars) - self.log_mean) / self.log_spread
        return np.concatenate([self.directions @ (query.embedding - self.mean), [length, 1.0]])


@dataclass(frozen=True)
class _FittedOrca(FittedMethod):
    features: PromptFeatures
    gram: FloatArray
    moments: Answers
    scale_usd: float
    table: PriceTable

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        rewards, costs = (LinearArms(self.gram, moment, ridge=RIDGE) for moment in self.moments)
        return _OrcaServer(self.features, rewards, costs, self.scale_usd, self.table.price(terms.rate_usd))


@dataclass
class _OrcaServer(Server):
    features: PromptFeatures
    rewards: LinearArms
    costs: LinearArms
    scale_usd: float
    price: float

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        self._row = self.features.of_query(query)
        mean, width = self.rewards.bounds(self._row)
        cost_usd = np.maximum(self.costs.bounds(self._row)[0], 0.0) * self.scale_usd
        model = int((mean + ALPHA * width - self.price * cost_usd).argmax())
        call(model)
        return model

    def learn(self, query: BenchQuery, model: int, reward: float, cost_usd: float) -> None:
        self.rewards.learn(model, self._row, reward)
        self.costs.learn(model, self._row, cost_usd / self.scale_usd)
