"""Estimators of single queries, fitted on a sample of a log, by the embedding and the length of a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wiserouter.fitting.log import LogBatch
from wiserouter.fitting.log.batch import first_rows, merged
from wiserouter.fitting.query_sample import QuerySample
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import QueryResiduals, Ridge, Sample
from wiserouter.learning.residuals.cross_validation import HeldOut, fit_length, hold_out
from wiserouter.learning.residuals.held_out_routing import HeldOutRouting
from wiserouter.learning.residuals.model_selection import (
    AUTO,
    MEANS,
    Comparison,
    check_estimator,
    compare,
)
from wiserouter.planning.plan import Plan
from wiserouter.pricing.tokens import count_tokens
from wiserouter.prompts.contexts import Contexts
from wiserouter.types import Embedding
from wiserouter.validation import check_amount

RESIDUAL_QUERIES = 10_000
"""The estimators are fitted on at most this many queries, drawn evenly from the log."""


class ResidualTerms(NamedTuple):
    """The estimators of single queries that a fit is asked for.

    Attributes
    ----------
    estimator : {"means", "ridge", "auto"}
        Of the rewards.
    token_cost : bool or None
        Whether costs follow the length; None lets "auto" decide.
    rate_usd : float or None
        The budget per query to compare at; None is midway between the cheapest and the most expensive useful one.
    input_price_usd : sequence of float
        List price of an input token of each model, 0 where there is none.
    """

    estimator: str
    token_cost: bool | None
    rate_usd: float | None
    input_price_usd: Sequence[float]

    @property
    def has_estimators(self) -> bool:
        """True if there is an estimator to fit."""
        return self.estimator != MEANS or bool(self.token_cost)

    @property
    def needs_tokens(self) -> bool:
        """True if costs by length are fitted, or compared."""
        return self.estimator == AUTO if self.token_cost is None else self.token_cost

    def check(self) -> None:
        """Raise `InvalidInput` if there is no such estimator or the rate is not an amount."""
        check_estimator(self.estimator)
        if self.rate_usd is not None:
            check_amount("rate_usd", self.rate_usd)


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

    def in_contexts(self, contexts: Contexts, *, counts_tokens: bool = True) -> Sample:
        """Return the queries with their contexts, one row each; of no length where tokens are not counted."""
        first = first_rows(np.concatenate([part.query for part in self._parts]))
        calls, embeddings = merged(self._parts), np.concatenate(self._embeddings)[first]
        lengths = [count_tokens(prompt).tokens if counts_tokens else 0 for prompt in calls.prompts]
        tokens = np.array(lengths, dtype=np.float64)
        return Sample(embeddings, contexts.assign_many(embeddings), tokens, calls.reward, calls.cost_usd)


def fit_residuals(
    sample: Sample, contexts: Contexts, estimates: Estimates, terms: ResidualTerms, seed: int
) -> tuple[QueryResiduals | None, Comparison | None]:
    """Return the estimators that the terms ask for; for "auto", those that do best on held-out queries."""
    held_out = hold_out(
        sample, contexts.n_contexts, terms.input_price_usd, seed, ridge=terms.estimator in {AUTO, Ridge.name}
    )
    if terms.estimator != AUTO:
        return _fitted(sample, held_out, estimates, terms, terms.estimator, bool(terms.token_cost)), None
    plan = Plan(contexts.freq, *estimates.means())
    rate = (plan.floor_usd + plan.ceiling_usd) / 2 if terms.rate_usd is None else terms.rate_usd
    token_costs = (False, True) if terms.token_cost is None else (terms.token_cost,)
    comparison = compare(sample, held_out, rate, token_costs=token_costs)
    chosen = comparison.chosen
    return _fitted(sample, held_out, estimates, terms, chosen.estimator, chosen.token_cost), comparison


def _fitted(
    sample: Sample, held_out: HeldOut, estimates: Estimates, terms: ResidualTerms, estimator: str, token_cost: bool
) -> QueryResiduals | None:
    """Return an estimator fitted on the whole sample, and its price curve from the held-out predictions."""
    if estimator == MEANS and not token_cost:
        return None
    n_contexts, n_models = estimates.shape
    ridge = None
    if estimator == Ridge.name and held_out.ridge is not None:
        strength, share, _ = held_out.ridge
        ridge = Ridge.fitted(sample.embeddings, sample.reward, estimates.means().reward, strength, share)
    return QueryResiduals(
        n_models,
        ridge,
        fit_length(sample, n_contexts, terms.input_price_usd) if token_cost else None,
        HeldOutRouting(sample, *held_out.predicted(estimator, token_cost=token_cost)).curve(),
    )
