"""The value of sets of at most two models in CascadeRouting: the better of two answers, before and after the first.

The change of an estimate by the answer is taken as normal and independent between models, so that the better of two
answers is the maximum of two normal variables.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.evaluation.baselines.answer_regressions import AnswerForecast
from wiserouter.evaluation.baselines.base import Answers
from wiserouter.types import FloatArray, IntArray


def expected_max(one: FloatArray, other: FloatArray, spread: FloatArray) -> FloatArray:
    """Return the mean of the maximum of two normal variables, given the deviation of their difference (Clark 1961).

    Examples
    --------
    >>> expected_max(np.array([0.0, 1.0]), np.array([0.0, 0.0]), np.array([1.0, 0.0])).round(4)
    array([0.3989, 1.    ])
    """
    from scipy.special import ndtr

    safe = np.maximum(spread, 1e-9)
    ahead = (one - other) / safe
    share = ndtr(ahead)
    return np.asarray(one * share + other * (1.0 - share) + safe * np.exp(-0.5 * ahead**2) / np.sqrt(2.0 * np.pi))


class PairRule(NamedTuple):
    """The valuation of sets; arrays of shape (n_models,) or (n_models, n_models).

    Attributes
    ----------
    spread : ndarray of shape (n_models,)
        Standard deviation of the change of an estimate by the answer.
    planned : ndarray of bool
        The sets that may be planned: the row is called first, the column second; the diagonal is for sets of one.
    goes_on : ndarray of bool
        The second models that may follow; the diagonal is for stopping.
    """

    spread: FloatArray
    planned: NDArray[np.bool_]
    goes_on: NDArray[np.bool_]

    def plans(self, before: FloatArray) -> FloatArray:
        """Return the expected quality of every set, of shape (..., n_models, n_models)."""
        spread = np.sqrt(self.spread[:, np.newaxis] ** 2 + self.spread**2)
        both = expected_max(before[..., :, np.newaxis], before[..., np.newaxis, :], spread)
        alone = np.eye(len(spread), dtype=bool)
        return np.where(self.planned, np.where(alone, before[..., np.newaxis, :], both), -np.inf)

    def follows(self, first: int, after: FloatArray, before: FloatArray) -> FloatArray:
        """Return the expected quality of continuing with each model, or, at `first`, of stopping."""
        both = expected_max(np.asarray(after)[..., np.newaxis], before, self.spread)
        both[..., first] = after
        return np.where(self.goes_on[first], both, -np.inf)


class PairTables(NamedTuple):
    """The values of all choices for every query of the training half.

    Attributes
    ----------
    rule : PairRule
        The valuation of sets.
    forecast : AnswerForecast
        Of the training half.
    plans, plans_usd : ndarray of shape (n_queries, n_models * n_models)
        Expected quality and cost of every set.
    follows : ndarray of shape (n_models, n_queries, n_models)
        Expected quality of continuing, for every first model.
    """

    rule: PairRule
    forecast: AnswerForecast
    plans: FloatArray
    plans_usd: FloatArray
    follows: FloatArray

    @classmethod
    def of(cls, forecast: AnswerForecast, cheapest_first: IntArray, max_models: int) -> PairTables:
        """Return the values of every set of at most `max_models` models."""
        n, n_models = forecast.before.shape
        rank = np.argsort(cheapest_first)
        alone = np.eye(n_models, dtype=bool)
        rule = PairRule(
            (forecast.after - forecast.before).std(axis=0),
            alone if max_models == 1 else rank[:, np.newaxis] <= rank,
            alone if max_models == 1 else np.ones((n_models, n_models), bool),
        )
        cost = forecast.cost_usd
        usd = np.where(alone, cost[:, np.newaxis, :], cost[:, :, np.newaxis] + cost[:, np.newaxis, :])
        follows = [rule.follows(k, forecast.after[:, k], forecast.before) for k in range(n_models)]
        return cls(rule, forecast, rule.plans(forecast.before).reshape(n, -1), usd.reshape(n, -1), np.array(follows))

    def reached(self, prices: FloatArray, answers: Answers) -> tuple[float, float]:
        """Return the mean true reward and cost under two trade-offs."""
        rows = np.arange(len(self.plans))
        first = (self.plans - prices[0] * self.plans_usd).argmax(axis=1) // self.forecast.before.shape[1]
        extra_usd = self.forecast.cost_usd.copy()
        extra_usd[rows, first] = 0.0
        second = (self.follows[first, rows] - prices[1] * extra_usd).argmax(axis=1)
        after = self.forecast.after
        given = np.where(after[rows, second] > after[rows, first], second, first)
        paid = answers.cost_usd[rows, first] + np.where(second != first, answers.cost_usd[rows, second], 0.0)
        return float(answers.reward[rows, given].mean()), float(paid.mean())
