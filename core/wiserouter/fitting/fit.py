"""From a routing log to what a router is made of: encoder, contexts, estimates, dearest calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from wiserouter.errors import EncoderError, InvalidInput, LogError
from wiserouter.fitting.context_summaries import TypicalPrompts, context_summaries
from wiserouter.fitting.log import LogBatch, RoutingLog
from wiserouter.fitting.log.batch import first_rows, merged
from wiserouter.fitting.query_counts import QueryCounts
from wiserouter.fitting.query_sample import QuerySample
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import QueryResiduals, Sample
from wiserouter.learning.residuals.cross_validation import HeldOut, context_means, fit_length, hold_out
from wiserouter.learning.residuals.model_selection import (
    AUTO,
    ESTIMATORS,
    MEANS,
    Comparison,
    check_estimator,
    compare,
    price_curve,
)
from wiserouter.planning.plan import Plan
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder
from wiserouter.types import Embedding, FloatArray
from wiserouter.validation import check_amount

SAMPLE_QUERIES = 50_000
"""Encoder and contexts are fitted on at most this many queries, drawn evenly from the log."""

RESIDUAL_QUERIES = 10_000
"""Queries are judged one by one by what at most this many of them show, drawn evenly from the log."""

Progress = Callable[[str, int], None]
"""Called with what is done and how many rows of it."""


class ResidualTerms(NamedTuple):
    """How queries are to be judged beyond their context.

    Attributes
    ----------
    estimator : {"means", "ridge", "neighbours", "auto"}
        Of the rewards.
    token_cost : bool or None
        Whether costs follow the length; None lets "auto" find out.
    rate_usd : float or None
        The budget per query to compare at; None is midway between the cheapest and the dearest useful one.
    input_price_usd : sequence of float
        List price of an input token of each model, 0 where there is none.
    """

    estimator: str
    token_cost: bool | None
    rate_usd: float | None
    input_price_usd: Sequence[float]

    @property
    def judges(self) -> bool:
        """Whether there is anything beyond the context to look at."""
        return self.estimator != MEANS or bool(self.token_cost)


class Fitted(NamedTuple):
    """What a log gives.

    Attributes
    ----------
    encoder : Encoder
        Fitted on the prompts.
    contexts : Contexts
        Clusters of their embeddings, with how many queries fell in each.
    estimates : Estimates
        Sums of cost and reward per (context, model).
    dearest_usd : ndarray of shape (n_models,)
        The dearest call of each model; NaN where none was seen.
    finer : QueryResiduals or None
        What judges queries one by one.
    comparison : Comparison or None
        How the estimators did, where one was to be chosen.
    """

    encoder: Encoder
    contexts: Contexts
    estimates: Estimates
    dearest_usd: FloatArray
    finer: QueryResiduals | None = None
    comparison: Comparison | None = None


def fit_log(
    log: RoutingLog,
    encoder: Encoder,
    n_contexts: int,
    *,
    seed: int,
    progress: Progress,
    terms: ResidualTerms | None = None,
    contexts: Contexts | None = None,
) -> Fitted:
    """Fit in two passes over the log, or one where `contexts` are given, holding a batch and a sample in memory.

    Parameters
    ----------
    log : RoutingLog
        Past calls.
    encoder : Encoder
        Fitted here, unless `contexts` are given.
    n_contexts : int
        Number of contexts to find.
    seed : int
        Seeds sample and clusters.
    progress : callable
        Told what is done.
    terms : ResidualTerms, optional
        How queries are to be judged beyond their context.
    contexts : Contexts, optional
        Found before, with this encoder: the log is only counted in them. It may lack costs or rewards of a model, which
        another log may have.

    Raises
    ------
    InvalidInput
        If there are fewer queries than contexts, or no cost or reward at all.
    LogError
        If a row cannot be read.
    """
    _check_terms(terms)
    judges = terms is not None and terms.judges
    gathering = None
    if contexts is None or judges:
        sample = sample_queries(log, np.random.default_rng(seed), progress)
        gathering = _Gathering(sample) if judges else None
    if contexts is None:
        progress("clustering", 0)
        encoder, fixed = _discretized(sample.prompts, encoder, n_contexts, seed)
    else:
        _check_fitted(encoder)
        fixed = contexts
    sitter = TypicalPrompts(fixed)
    estimates, dearest, met = _counted(log, encoder, fixed, sitter, gathering, progress)
    _check_observed(log, estimates, part=contexts is not None)
    known = fixed.counted(met)
    if contexts is None:
        known = known.portrayed(context_summaries(known, encoder, sitter))
    finer, comparison = None, None
    if gathering is not None and terms is not None:
        progress("comparing", 0)
        finer, comparison = _fit_residuals(gathering.sample(known), known, estimates, terms, seed)
    return Fitted(encoder, known, estimates, dearest, finer, comparison)


def sample_queries(log: RoutingLog, rng: np.random.Generator, progress: Progress) -> QuerySample:
    """Return a sample of at most `SAMPLE_QUERIES` queries, each equally likely; raises `LogError` if there is none."""
    sample = QuerySample(SAMPLE_QUERIES, rng)
    for batch in log.batches():
        sample.add(batch)
        progress("reading", len(batch.prompts))
    if not sample.prompts:
        raise LogError("the log must hold at least one query, got none", file=log.path)
    return sample


def _discretized(prompts: list[str], encoder: Encoder, n_contexts: int, seed: int) -> tuple[Encoder, Contexts]:
    """Return the encoder fitted on some prompts, and their contexts."""
    encoder = encoder.fit(prompts)
    return encoder, Contexts.fit(encoder.encode_many(prompts), n_contexts, seed=seed)


def _counted(
    log: RoutingLog,
    encoder: Encoder,
    contexts: Contexts,
    sitter: TypicalPrompts,
    gathering: _Gathering | None,
    progress: Progress,
) -> tuple[Estimates, FloatArray, FloatArray]:
    """Return what a log shows of each (context, model), the dearest call of each model, and the queries per context."""
    estimates = Estimates(contexts.n_contexts, log.n_models)
    dearest = np.full(log.n_models, np.nan)
    with QueryCounts(contexts.n_contexts) as met:
        for batch in log.batches():
            rows = _encoded(encoder, batch.prompts)
            where = contexts.assign_many(rows)
            first, names = first_rows(batch.query), _ids(batch)
            sitter.add(rows[first], where[first], [names[row] for row in first])
            if gathering is not None:
                gathering.add(batch, rows)
            estimates.add_table(where, batch.reward, batch.cost_usd)
            met.add(batch, where)
            dearest = np.fmax(dearest, np.fmax.reduce(batch.cost_usd, axis=0))
            progress("estimating", len(batch.prompts))
        return estimates, dearest, met.total()


def _encoded(encoder: Encoder, prompts: list[str]) -> Embedding:
    """Return an embedding per prompt; equal prompts, as of the calls of one query, are encoded once."""
    number: dict[str, int] = {}
    row = [number.setdefault(prompt, len(number)) for prompt in prompts]
    rows = encoder.encode_many(list(number))
    return rows if len(number) == len(prompts) else rows[row]


def _ids(batch: LogBatch) -> list[str]:
    """Return the log's own names of a batch's queries, or the rows where they begin."""
    return [f"row {query + 1}" for query in batch.query.tolist()] if batch.ids is None else batch.ids


class _Gathering:
    """Collects the calls of some queries of a sample, each query equally likely, and their embeddings."""

    def __init__(self, sample: QuerySample) -> None:
        self._rank, self._bound = sample.rank, sample.bound(RESIDUAL_QUERIES)
        self._parts: list[LogBatch] = []
        self._embeddings: list[Embedding] = []

    def add(self, batch: LogBatch, embeddings: Embedding) -> None:
        """Take the rows of a batch that belong to these queries."""
        rows = np.flatnonzero(self._rank(batch.query) <= self._bound)
        prompts = [batch.prompts[i] for i in rows]
        self._parts.append(LogBatch(prompts, batch.query[rows], batch.reward[rows], batch.cost_usd[rows]))
        self._embeddings.append(embeddings[rows])

    def sample(self, contexts: Contexts) -> Sample:
        """Return the collected queries, one row each."""
        from wiserouter.pricing.tokens import count_tokens  # loaded by those who need it

        first = first_rows(np.concatenate([part.query for part in self._parts]))
        calls, embeddings = merged(self._parts), np.concatenate(self._embeddings)[first]
        tokens = np.array([count_tokens(prompt).tokens for prompt in calls.prompts], dtype=np.float64)
        return Sample(embeddings, contexts.assign_many(embeddings), tokens, calls.reward, calls.cost_usd)


def _fit_residuals(
    sample: Sample, contexts: Contexts, estimates: Estimates, terms: ResidualTerms, seed: int
) -> tuple[QueryResiduals | None, Comparison | None]:
    """Fit what the terms ask for, or of all there is what does best on held-out queries."""
    asked = ESTIMATORS if terms.estimator == AUTO else (terms.estimator,)
    names = [name for name in asked if name != MEANS]
    held_out = hold_out(sample, contexts.centroids, terms.input_price_usd, names, seed)
    if terms.estimator != AUTO:
        return _finer(sample, held_out, contexts, terms, terms.estimator, bool(terms.token_cost)), None
    plan = Plan(contexts.freq, *estimates.means())
    rate = (plan.floor_usd + plan.ceiling_usd) / 2 if terms.rate_usd is None else terms.rate_usd
    comparison = compare(sample, held_out, rate, token_costs=_both(terms.token_cost))
    chosen = comparison.chosen
    return _finer(sample, held_out, contexts, terms, chosen.estimator, chosen.token_cost), comparison


def _both(token_cost: bool | None) -> tuple[bool, ...]:
    return (False, True) if token_cost is None else (token_cost,)


def _finer(
    sample: Sample, held_out: HeldOut, contexts: Contexts, terms: ResidualTerms, estimator: str, token_cost: bool
) -> QueryResiduals | None:
    """Fit an estimator on the whole sample, and its prices on the held-out predictions."""
    if estimator == MEANS and not token_cost:
        return None
    mean_reward = context_means(sample, contexts.n_contexts).reward
    return QueryResiduals(
        sample.reward.shape[1],
        held_out.fits[estimator](sample, mean_reward) if estimator != MEANS else None,
        fit_length(sample, contexts.n_contexts, terms.input_price_usd) if token_cost else None,
        price_curve(sample, *held_out.predicted(estimator, token_cost=token_cost)),
    )


def _check_terms(terms: ResidualTerms | None) -> None:
    if terms is not None:
        check_estimator(terms.estimator)
        if terms.rate_usd is not None:
            check_amount("rate_usd", terms.rate_usd)


def _check_fitted(encoder: Encoder) -> None:
    try:
        encoder.state()
    except EncoderError as error:
        raise InvalidInput(
            f"contexts need the encoder that they were fitted with: pass encoder=router.encoder ({error})"
        ) from error


def _check_observed(log: RoutingLog, estimates: Estimates, *, part: bool) -> None:
    """Refuse a log that lacks the costs or rewards of a model, or a part of one that lacks those of all."""
    for name, count in (("cost", estimates.calls), ("reward", estimates.labels)):
        missing = [model for model, n in zip(log.models, count.sum(axis=0), strict=True) if not n]
        if missing and not (part and len(missing) < log.n_models):
            raise InvalidInput(
                f"the log must hold at least one {name} of every model, got none of {', '.join(missing)}: "
                f"leave them out with models=[...]"
            )
