r"""CascadeRouting (Dekoninck et al., ICML 2025, arXiv 2410.10347): routing and cascading by one trade-off.

Before any call the set `S` of at most two models with the highest

.. math:: E\left[\max_{k \in S} q_k\right] - \lambda_1 \sum_{k \in S} c_k

is planned, and its cheaper model called. After that answer the choice is made again under :math:`\lambda_2`, between
stopping and any second model, with a better estimate of the first one's quality; of two answers the one with the higher
expected quality is returned. The change of an estimate by the answer is taken as normal, independent between models.
Sets of one model are plain routing (`routing`). The trade-offs come from a grid and are tuned on the training half to
the budget per query; each query draws one of two trade-offs, so that the budget is met between them, as the authors mix
at a tie.

`cascade-routing` uses the regressions of `answer_regressions`: the embedding, and after a call its cost. Its
`-noisy-truth` variant is the paper's on RouterBench (Appendix "Baseline Implementation"): the true scores of the test
half with normal noise of the authors' setting "High", standard deviation 2.4 before a call and 1.2 after it, regressed
to the scale of scores, and mean costs, which approximate the authors' noise of 100 on costs.

Departure: the authors search the trade-offs with hyperopt, and mix the cheapest and the most expensive of tied sets;
here the best mixture of two grid points is taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.baselines.answer_regressions import AnswerForecast, Regressions, cross_fit_forecast, regress
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
from wiserouter.evaluation.baselines.model_pairs import PairRule, PairTables
from wiserouter.planning.plan import Plan
from wiserouter.types import FloatArray

N_PRICES = 80
LATER_PER_FIRST = (0.5, 1.0, 2.0)
"""Ratios of the second decision's lambda to the first one's."""

NOISE_BEFORE, NOISE_AFTER = 2.4, 1.2


class AnswerEstimator(ABC):
    """Estimates of the quality and cost of answers."""

    @abstractmethod
    def before(self, query: BenchQuery, rng: np.random.Generator) -> Answers:
        """Return expected reward and cost of each model, each of shape (n_models,)."""

    @abstractmethod
    def after(self, query: BenchQuery, model: int, cost_usd: float, rng: np.random.Generator) -> float:
        """Return the expected reward of an answer that was given."""


class CascadeRouting(Method):
    """Cascades of at most two models."""

    name = "cascade-routing"
    note = "judges an answer by the query and the cost, not by its text"
    max_models = 2

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Learn the estimator, and the reward and cost of every pair of trade-offs."""
        answers = training.table()
        estimator, forecast = self.make_estimator(training, answers, rng)
        tables = PairTables.of(forecast, np.argsort(answers.cost_usd.mean(axis=0)), self.max_models)
        prices = trade_offs(answers.cost_usd)
        reached = np.array([tables.reached(each, answers) for each in prices])
        return _FittedCascade(estimator, tables.rule, prices, Plan([1.0], [reached[:, 0]], [reached[:, 1]]))

    def make_estimator(
        self, training: Training, answers: Answers, rng: np.random.Generator
    ) -> tuple[AnswerEstimator, AnswerForecast]:
        """Return the estimator and its forecasts for the training half."""
        estimator = _RegressionEstimator(regress(training.embeddings, answers))
        return estimator, cross_fit_forecast(training.embeddings, answers, rng)


class Routing(CascadeRouting):
    """CascadeRouting with sets of one model."""

    name = "routing"
    note = "CascadeRouting with one call per query"
    max_models = 1


class NoisyTruthCascade(CascadeRouting):
    """CascadeRouting with noisy true scores instead of estimates."""

    name = "cascade-routing-noisy-truth"
    note = "is given the true scores of the test half, with noise"
    sees_truth = True

    def make_estimator(
        self, training: Training, answers: Answers, rng: np.random.Generator
    ) -> tuple[AnswerEstimator, AnswerForecast]:
        """Return the estimator and its forecasts for the training half."""
        reward, mean_usd = answers.reward, answers.cost_usd.mean(axis=0)
        seen = [reward + rng.normal(0.0, noise, reward.shape) for noise in (NOISE_BEFORE, NOISE_AFTER)]
        lines = [_lines(each, reward) for each in seen]
        before, after = (slope * each + constant for (slope, constant), each in zip(lines, seen, strict=True))
        forecast = AnswerForecast(before, after, np.tile(mean_usd, (len(reward), 1)))
        return _NoisyTruthEstimator(lines[0], lines[1], mean_usd), forecast


def trade_offs(cost_usd: FloatArray) -> FloatArray:
    """Return pairs of lambdas, of shape (n_pairs, 2): 0, and a grid from negligible to prohibitive prices of cost."""
    mean = cost_usd.mean(axis=0)
    first = np.append(0.0, np.geomspace(0.01 / mean.max(), 10.0 / max(mean.min(), 1e-12), N_PRICES))
    return np.array([(price, later * price) for later in LATER_PER_FIRST for price in first])


@dataclass(frozen=True)
class _FittedCascade(FittedMethod):
    estimator: AnswerEstimator
    rule: PairRule
    prices: FloatArray
    plan: Plan

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        rate_usd = max(terms.rate_usd, self.plan.floor_usd)
        return _CascadeServer(self.estimator, self.rule, self.prices, self.plan, rate_usd, rng)


@dataclass(frozen=True)
class _CascadeServer(Server):
    estimator: AnswerEstimator
    rule: PairRule
    prices: FloatArray
    plan: Plan
    rate_usd: float
    rng: np.random.Generator

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        drawn = self.plan.choose(0, self.rate_usd, self.rng)
        now, later = self.prices[drawn]
        reward, cost_usd = self.estimator.before(query, self.rng)
        n_models = len(reward)
        sets_usd = cost_usd[:, np.newaxis] + np.where(np.eye(n_models, dtype=bool), 0.0, cost_usd)
        first = int((self.rule.plans(reward) - now * sets_usd).argmax()) // n_models
        of_first = self.estimator.after(query, first, call(first), self.rng)
        extra_usd = np.where(np.arange(n_models) == first, 0.0, cost_usd)
        second = int((self.rule.follows(first, np.array(of_first), reward) - later * extra_usd).argmax())
        if second == first:
            return first
        return second if self.estimator.after(query, second, call(second), self.rng) > of_first else first


@dataclass(frozen=True)
class _RegressionEstimator(AnswerEstimator):
    regressions: Regressions

    def before(self, query: BenchQuery, rng: np.random.Generator) -> Answers:
        known = self.regressions
        return Answers(known.reward_before(query.embedding), known.expected_usd(query.embedding))

    def after(self, query: BenchQuery, model: int, cost_usd: float, rng: np.random.Generator) -> float:
        return self.regressions.reward_after(query.embedding, cost_usd).item(model)


@dataclass(frozen=True)
class _NoisyTruthEstimator(AnswerEstimator):
    line_before: tuple[FloatArray, FloatArray]
    line_after: tuple[FloatArray, FloatArray]
    mean_usd: FloatArray

    def before(self, query: BenchQuery, rng: np.random.Generator) -> Answers:
        slope, constant = self.line_before
        truth = _truth(query)
        return Answers(slope * (truth + rng.normal(0.0, NOISE_BEFORE, len(truth))) + constant, self.mean_usd)

    def after(self, query: BenchQuery, model: int, cost_usd: float, rng: np.random.Generator) -> float:
        slope, constant = self.line_after
        seen = _truth(query).item(model) + rng.normal(0.0, NOISE_AFTER)
        return slope.item(model) * seen + constant.item(model)


def _truth(query: BenchQuery) -> FloatArray:
    if query.truth is None:
        raise InvalidInput("noisy truth needs the true scores of each query: serve with sees_truth=True")
    return query.truth.reward


def _lines(seen: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return slope and constant, each of shape (n_models,), of the regression of the reward on noisy scores."""
    around = seen - seen.mean(axis=0)
    slope = (around * reward).mean(axis=0) / (around**2).mean(axis=0)
    return slope, reward.mean(axis=0) - slope * seen.mean(axis=0)
