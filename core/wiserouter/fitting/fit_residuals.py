"""Regressions on the embeddings of a sample of a log: of single queries, and of the means of contexts."""

from __future__ import annotations

import numpy as np

from wiserouter.fitting.log import LogBatch
from wiserouter.fitting.log.batch import first_rows, merged
from wiserouter.fitting.query_sample import QuerySample
from wiserouter.learning.cost_prior import centred_logs
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.random_effects import effect_prior, effects, variance_of_reward
from wiserouter.learning.residuals import QueryResiduals, Ridge, Sample
from wiserouter.learning.residuals.cross_validation import HeldOut, hold_out
from wiserouter.learning.residuals.held_out_routing import HeldOutRouting
from wiserouter.learning.residuals.model_selection import (
    AUTO,
    MEANS,
    Comparison,
    compare,
)
from wiserouter.learning.residuals.ridge_selection import select_ridge
from wiserouter.learning.shrinkage import spreads
from wiserouter.learning.smoothing import Smoothing
from wiserouter.planning.plan import Plan
from wiserouter.prompts.contexts import Contexts
from wiserouter.types import Embedding, FloatArray

RESIDUAL_QUERIES = 10_000
"""The estimators are fitted on at most this many queries, drawn evenly from the log."""


class ResidualSample:
    """The calls of some queries of a sample, each query equally likely, and their embeddings.

    Parameters
    ----------
    sample : QuerySample
        The queries of lowest rank in it are taken.
    """

    def __init__(self, sample: QuerySample) -> None:
        self._ranked, self._bound = sample.empty(), sample.bound(RESIDUAL_QUERIES)
        self._parts: list[LogBatch] = []
        self._embeddings: list[Embedding] = []

    def add(self, batch: LogBatch, embeddings: Embedding) -> None:
        """Take the rows of a batch that belong to these queries."""
        rows = np.flatnonzero(self._ranked.rank(batch.query) <= self._bound)
        prompts = [batch.prompts[i] for i in rows]
        self._parts.append(LogBatch(prompts, batch.query[rows], batch.reward[rows], batch.cost_usd[rows]))
        self._embeddings.append(embeddings[rows])

    def empty(self) -> ResidualSample:
        """Return a sample of the same queries, without any row."""
        other = object.__new__(ResidualSample)
        other._ranked, other._bound, other._parts, other._embeddings = self._ranked, self._bound, [], []
        return other

    def merge(self, later: ResidualSample) -> None:
        """Add later rows."""
        self._parts += later._parts
        self._embeddings += later._embeddings

    def in_contexts(self, contexts: Contexts) -> Sample:
        """Return the queries with their contexts, one row each."""
        first = first_rows(np.concatenate([part.query for part in self._parts]))
        calls, embeddings = merged(self._parts), np.concatenate(self._embeddings)[first]
        return Sample(embeddings, contexts.assign_many(embeddings), calls.reward, calls.cost_usd)


def fit_residuals(
    sample: Sample, contexts: Contexts, estimates: Estimates, estimator: str, rate_usd: float | None, seed: int
) -> tuple[QueryResiduals | None, Comparison | None]:
    """Return the regression; for "auto", only if it does better than the means on held-out queries at the rate.

    None is the rate midway between the cheapest and the most expensive useful one.
    """
    held_out = hold_out(sample, contexts.n_contexts, seed)
    if estimator != AUTO:
        return _fitted(sample, held_out, estimates), None
    plan = Plan(contexts.freq, *estimates.means())
    rate = (plan.floor_usd + plan.ceiling_usd) / 2 if rate_usd is None else rate_usd
    comparison = compare(sample, held_out, rate)
    return None if comparison.chosen.estimator == MEANS else _fitted(sample, held_out, estimates), comparison


def smoothing_of(sample: Sample, estimates: Estimates) -> Smoothing | None:
    """Return the smoothing of the mean rewards of a log, by all its contexts and models and by the regression.

    Parameters
    ----------
    sample : Sample
        Queries of the log.
    estimates : Estimates
        The sums of all of it.

    Returns
    -------
    Smoothing or None
        None where the log has no reward.
    """
    if not estimates.labels.any():
        return None
    costs, n_models = centred_logs(estimates.means().cost_usd.mean(axis=0)), estimates.shape[1]
    noise = variance_of_reward(spreads(estimates.labels, estimates.reward, estimates.reward_sq))
    by_text = regression_by_context(sample, estimates.shape[0])
    total = estimates.reward - estimates.labels * by_text
    prior = effect_prior(costs, np.zeros(n_models), np.zeros(n_models))
    rest = effects(estimates.labels, total, noise, prior).cell_means(estimates.labels, total, noise)
    return Smoothing.toward(by_text + rest, estimates.labels, estimates.means().reward)


def regression_by_context(sample: Sample, n_contexts: int) -> FloatArray:
    """Return by how much the regression expects the queries of each context to differ from the mean of each model.

    Each query is predicted from the others. Of shape (n_contexts, n_models); 0 in a context without queries.
    """
    predicted = select_ridge(sample.embeddings, sample.reward)
    sums = np.zeros((n_contexts, sample.reward.shape[1]))
    np.add.at(sums, sample.contexts, predicted.reward - predicted.mean)
    n_queries = np.bincount(sample.contexts, minlength=n_contexts)[:, np.newaxis]
    by_context: FloatArray = sums / np.maximum(n_queries, 1)
    return by_context


def _fitted(sample: Sample, held_out: HeldOut, estimates: Estimates) -> QueryResiduals:
    """Return the regression fitted on the whole sample, and its price curve from the held-out predictions."""
    strength, shares = held_out.ridge.strength, held_out.ridge.shares
    ridge = Ridge.fitted(sample.embeddings, sample.reward, estimates.means().reward, strength, shares)
    return QueryResiduals(ridge, HeldOutRouting(sample, held_out.ridge.reward, held_out.cost_usd).curve())
