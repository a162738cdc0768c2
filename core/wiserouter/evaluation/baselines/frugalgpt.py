"""FrugalGPT (Chen et al., TMLR 2024): a cheap model answers first, a second one if a learned score is low.

For every ordered pair of models the training half is sorted by the score of the first model's answer, and the cost of
each of 40 quantiles as threshold is computed, as in the authors' optimiser; the pair and threshold with the highest
quality at an average cost within the budget per query serve. The cascade has two models (paper, Appendix "Baseline
Implementation"), and at least one query of the training half goes on to the second. If even the first model is too
expensive on average, no query is served: the authors' optimiser skips such lists, hence the paper's 0.00 at its
tightest budgets.

Departure: the score depends on the query, the model and the cost of the answer (see `answer_regressions`), not on the
answer's text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.baselines.answer_regressions import Regressions, cross_fit_forecast, regress
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
from wiserouter.types import FloatArray

QUANTILES = np.linspace(1e-5, 1.0 - 1e-5, 40)
"""Shares of queries that may end with the first model's answer."""


class FrugalGpt(Method):
    """A cascade of two models with a threshold."""

    name = "frugalgpt"
    note = "its score depends on the query and the cost of an answer, not on the answer"

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Learn the score, and the reward and cost of every pair and threshold."""
        answers = training.table()
        score = cross_fit_forecast(training.embeddings, answers, rng).after
        return _FittedFrugal(regress(training.embeddings, answers), cascades(score, answers))


class Cascades(NamedTuple):
    """Every pair of models with every threshold; arrays of shape (n_models, n_models, n_thresholds).

    Attributes
    ----------
    threshold : ndarray of float
        An answer of the first model is accepted if its score is higher.
    reward, cost_usd : ndarray of float
        Means on the training half; minus infinity and infinity if both models are the same.
    """

    threshold: FloatArray
    reward: FloatArray
    cost_usd: FloatArray


def cascades(score: FloatArray, answers: Answers) -> Cascades:
    """Return the reward and cost of every cascade of two models.

    Parameters
    ----------
    score : ndarray of shape (n_queries, n_models)
        Score of each answer.
    answers : Answers
        True rewards and costs, of the same shape.

    Examples
    --------
    >>> answers = Answers(np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 9.0], [1.0, 9.0]]))
    >>> both = cascades(np.array([[0.9, 0.5], [0.1, 0.4]]), answers)
    >>> both.reward[0, 1].max().item(), both.cost_usd[0, 1].min().item()  # accepts the correct one of two answers
    (1.0, 5.5)
    """
    n, n_models = score.shape
    shape = n_models, n_models, len(QUANTILES)
    threshold, reward, cost_usd = np.zeros(shape), np.full(shape, -np.inf), np.full(shape, np.inf)
    at = np.minimum((QUANTILES * n).round().astype(int), n - 1)
    for first in range(n_models):
        order = np.argsort(-score[:, first], kind="stable")
        limit = score[order[at], first]
        accepted = n - np.searchsorted(np.sort(score[:, first]), limit, side="right")
        threshold[first] = limit
        for values, both, pays_twice in ((answers.reward, reward, False), (answers.cost_usd, cost_usd, True)):
            best_of_rest = values.sum(axis=0)[:, np.newaxis] - _running(values[order])[accepted].T
            kept = values[:, first].sum() if pays_twice else _running(values[order, first])[accepted]
            both[first] = (kept + best_of_rest) / n
        reward[first, first], cost_usd[first, first] = -np.inf, np.inf
    return Cascades(threshold, reward, cost_usd)


def _running(values: FloatArray) -> FloatArray:
    """Return the sums of the first 0, 1, 2, ... rows."""
    return np.concatenate([np.zeros_like(values[:1]), values.cumsum(axis=0)])


@dataclass(frozen=True)
class _FittedFrugal(FittedMethod):
    score: Regressions
    cascades: Cascades

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        fits = self.cascades.cost_usd <= terms.rate_usd
        if not fits.any():
            return _NoService()
        best = np.where(fits, self.cascades.reward, -np.inf).argmax()
        first, second, at = (int(i) for i in np.unravel_index(best, fits.shape))
        return _Cascade(self.score, first, second, self.cascades.threshold.item(first, second, at))


@dataclass(frozen=True)
class _Cascade(Server):
    score: Regressions
    first: int
    second: int
    threshold: float

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        cost_usd = call(self.first)
        if self.score.reward_after(query.embedding, cost_usd)[self.first] > self.threshold:
            return self.first
        call(self.second)
        return self.second


class _NoService(Server):
    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        return NOT_SERVED
