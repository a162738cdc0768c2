"""Regressions of reward and cost on the embedding, before a model is called and after.

CascadeRouting and FrugalGPT judge an answer by its text. Routing tables contain no answers, only their costs, which
depend on their lengths, so that the score after a call is a logistic regression on the embedding and the logarithm of
the cost. Before the call the reward is a logistic regression on the embedding and the cost a linear one, which the
paper uses too (Appendix "Baseline Implementation").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.evaluation.baselines.base import Answers
from wiserouter.types import Embedding, FloatArray, IntArray

FOLDS = 5
"""Parts of the training half for cross-fitting: each is scored by regressions fitted on the others."""

_SURE = 1e-3  # keeps a model that is always right on the training half from being certain
_TINY_USD = 1e-12


class AnswerForecast(NamedTuple):
    """Expected rewards and costs of the answers; arrays of shape (n_queries, n_models).

    Attributes
    ----------
    before : ndarray of float
        Expected reward before the call.
    after : ndarray of float
        Expected reward given the cost of the answer.
    cost_usd : ndarray of float
        Expected cost before the call.
    """

    before: FloatArray
    after: FloatArray
    cost_usd: FloatArray


class Regressions(NamedTuple):
    """Fitted regressions: one row per model, with the constant in the last column.

    Attributes
    ----------
    before : ndarray of shape (n_models, dim + 1)
        Logistic, on the embedding.
    after : ndarray of shape (n_models, dim + 2)
        Logistic, on the embedding and the standardised log cost of the answer.
    cost_usd : ndarray of shape (n_models, dim + 1)
        Linear, on the embedding.
    floor_usd, log_mean, log_spread : ndarray of shape (n_models,)
        Lowest observed cost, mean and standard deviation of its logarithm.
    """

    before: FloatArray
    after: FloatArray
    cost_usd: FloatArray
    floor_usd: FloatArray
    log_mean: FloatArray
    log_spread: FloatArray

    def reward_before(self, embedding: NDArray[np.floating]) -> FloatArray:
        """Return the expected reward of each model before any call."""
        return _logistic(_linear(embedding, self.before))

    def reward_after(self, embedding: NDArray[np.floating], cost_usd: FloatArray | float) -> FloatArray:
        """Return the expected reward of each model's answer, given its cost."""
        odds = _linear(embedding, self.after[:, [*range(self.after.shape[1] - 2), -1]])
        return _logistic(odds + self.after[:, -2] * self._standard(cost_usd))

    def expected_usd(self, embedding: NDArray[np.floating]) -> FloatArray:
        """Return the expected cost of each model, at least the lowest observed one."""
        return np.maximum(_linear(embedding, self.cost_usd), self.floor_usd)

    def _standard(self, cost_usd: FloatArray | float) -> FloatArray:
        return (np.log(np.maximum(cost_usd, _TINY_USD)) - self.log_mean) / self.log_spread


def regress(embeddings: Embedding, answers: Answers) -> Regressions:
    """Fit the regressions on the answers of every model to every query.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0]] * 50, np.float32)
    >>> fitted = regress(rows, Answers(np.array([[0.0], [1.0]] * 50), np.array([[2.0], [4.0]] * 50)))
    >>> fitted.expected_usd(np.array([0.5])).round(3)
    array([3.])
    >>> bool(fitted.reward_before(np.array([0.9])) > 0.5 > fitted.reward_before(np.array([0.1])))
    True
    """
    rows, (reward, cost_usd) = np.asarray(embeddings, np.float64), answers
    log_usd = np.log(np.maximum(cost_usd, _TINY_USD))
    mean, spread = log_usd.mean(axis=0), np.maximum(log_usd.std(axis=0), 1e-6)
    standard = (log_usd - mean) / spread
    models = range(reward.shape[1])
    return Regressions(
        np.array([_fit_logistic(rows, reward[:, k]) for k in models]),
        np.array([_fit_logistic(np.column_stack([rows, standard[:, k]]), reward[:, k]) for k in models]),
        np.asarray(np.linalg.lstsq(np.column_stack([rows, np.ones(len(rows))]), cost_usd, rcond=None)[0].T, np.float64),
        cost_usd.min(axis=0),
        mean,
        spread,
    )


def cross_fit_forecast(embeddings: Embedding, answers: Answers, rng: np.random.Generator) -> AnswerForecast:
    """Return cross-fitted forecasts for the training half: each query's by regressions on the other folds."""
    reward, cost_usd = answers
    part = rng.permutation(len(reward)) % min(FOLDS, len(reward))
    forecast = AnswerForecast(np.empty_like(reward), np.empty_like(reward), np.empty_like(cost_usd))
    for fold in np.unique(part):
        held = part == fold
        fitted = regress(embeddings[~held], Answers(reward[~held], cost_usd[~held]))
        rows = np.asarray(embeddings[held], np.float64)
        forecast.before[held] = fitted.reward_before(rows)
        forecast.after[held] = fitted.reward_after(rows, cost_usd[held])
        forecast.cost_usd[held] = fitted.expected_usd(rows)
    return forecast


def _linear(rows: NDArray[np.floating], weights: FloatArray) -> FloatArray:
    return np.asarray(rows @ weights[:, :-1].T + weights[:, -1], np.float64)


def _logistic(odds: FloatArray) -> FloatArray:
    return 1.0 / (1.0 + np.exp(-np.clip(odds, -30.0, 30.0)))


def _fit_logistic(rows: FloatArray, reward: FloatArray) -> FloatArray:
    """Return weights and constant; a reward between 0 and 1 counts as a fraction of a success."""
    from sklearn.linear_model import LogisticRegression

    share = np.clip(reward, _SURE, 1.0 - _SURE)
    right: IntArray = np.repeat([1, 0], len(rows))
    fitted = LogisticRegression(solver="newton-cholesky", max_iter=200)
    fitted.fit(np.vstack([rows, rows]), right, sample_weight=np.concatenate([share, 1.0 - share]))
    return np.append(fitted.coef_[0], fitted.intercept_)
