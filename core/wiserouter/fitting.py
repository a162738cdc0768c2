"""From a routing log to what a router is made of: encoder, contexts, estimates, dearest calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.contexts import Contexts
from wiserouter.encoders import Encoder
from wiserouter.errors import InvalidInput, LogError
from wiserouter.estimates import Estimates
from wiserouter.finer import Finer, Sample
from wiserouter.finer.held_out import HeldOut, context_means, fit_length, hold_out
from wiserouter.finer.selection import AUTO, ESTIMATORS, MEANS, Comparison, check_estimator, compare, price_curve
from wiserouter.log import LogBatch, RoutingLog
from wiserouter.log.batch import merged
from wiserouter.plan import Plan
from wiserouter.portraits import Sitter, portraits_of
from wiserouter.types import Embedding, FloatArray, check_amount

SAMPLE_QUERIES = 50_000
"""Encoder and contexts are fitted on at most this many queries, drawn evenly from the log."""

FINER_QUERIES = 10_000
"""Queries are judged one by one by what at most this many of them show, drawn evenly from the log."""

Progress = Callable[[str, int], None]
"""Called with what is done and how many rows of it."""


class FinerTerms(NamedTuple):
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
        Clusters of their embeddings.
    estimates : Estimates
        Sums of cost and reward per (context, model).
    dearest_usd : ndarray of shape (n_models,)
        The dearest call of each model; NaN where none was seen.
    n_queries : int
        Number of distinct queries.
    finer : Finer or None
        What judges queries one by one.
    comparison : Comparison or None
        How the estimators did, where one was to be chosen.
    """

    encoder: Encoder
    contexts: Contexts
    estimates: Estimates
    dearest_usd: FloatArray
    n_queries: int
    finer: Finer | None = None
    comparison: Comparison | None = None


def fit_log(
    log: RoutingLog,
    encoder: Encoder,
    n_contexts: int,
    *,
    seed: int,
    progress: Progress,
    terms: FinerTerms | None = None,
) -> Fitted:
    """Fit in two passes over the log, holding one batch and a sample of prompts in memory.

    Raises
    ------
    InvalidInput
        If there are fewer queries than contexts, or no cost or reward at all.
    LogError
        If a row cannot be read.
    """
    _check_terms(terms)
    prompts, n_queries = sample_prompts(log, np.random.default_rng(seed), progress)
    encoder = encoder.fit(prompts)
    progress("clustering", 0)
    contexts = Contexts.fit(encoder.encode_many(prompts), n_contexts, seed=seed)
    estimates = Estimates(contexts.n_contexts, log.n_models)
    met = np.zeros(contexts.n_contexts)
    dearest = np.full(log.n_models, np.nan)
    sitter = Sitter(contexts)
    gathering = _Gathering(n_queries, seed) if terms is not None and terms.judges else None
    for batch, first in _with_first(log):
        rows = encoder.encode_many(batch.prompts)
        where = contexts.assign_many(rows)
        sitter.add(rows[first], where[first], [name for name, new in zip(_ids(batch), first, strict=True) if new])
        if gathering is not None:
            gathering.add(batch, first, rows)
        estimates.add_table(where, batch.reward, batch.cost_usd)
        met += np.bincount(where[first], minlength=contexts.n_contexts)
        dearest = np.fmax(dearest, np.fmax.reduce(batch.cost_usd, axis=0))
        progress("estimating", len(batch.prompts))
    _check_observed(log, estimates)
    placed = Contexts(contexts.centroids, met / met.sum())
    known = Contexts(placed.centroids, placed.freq, portraits_of(placed, encoder, sitter))
    finer, comparison = None, None
    if gathering is not None and terms is not None:
        progress("comparing", 0)
        finer, comparison = _fit_finer(gathering.sample(known), known, estimates, terms, seed)
    return Fitted(encoder, known, estimates, dearest, n_queries, finer, comparison)


def sample_prompts(log: RoutingLog, rng: np.random.Generator, progress: Progress) -> tuple[list[str], int]:
    """Return at most `SAMPLE_QUERIES` prompts, each query equally likely, and the number of queries.

    Notes
    -----
    Reservoir sampling (Vitter, Algorithm R).
    """
    sample: list[str] = []
    seen = 0
    for batch, first in _with_first(log):
        for row in np.flatnonzero(first):
            if len(sample) < SAMPLE_QUERIES:
                sample.append(batch.prompts[row])
            elif (slot := int(rng.integers(seen + 1))) < SAMPLE_QUERIES:
                sample[slot] = batch.prompts[row]
            seen += 1
        progress("reading", len(batch.prompts))
    if not seen:
        raise LogError("the log must hold at least one query, got none", file=log.path)
    return sample, seen


def _ids(batch: LogBatch) -> list[str]:
    """Return the log's own names of a batch's queries, or the rows where they begin."""
    return [f"row {query + 1}" for query in batch.query.tolist()] if batch.ids is None else batch.ids


class _Gathering:
    """Collects the calls of some queries, each query equally likely, and their embeddings."""

    def __init__(self, n_queries: int, seed: int) -> None:
        kept = np.random.default_rng(seed).permutation(n_queries)[:FINER_QUERIES]
        self._is_kept = np.zeros(n_queries, dtype=np.bool_)
        self._is_kept[kept] = True
        self._parts: list[LogBatch] = []
        self._embeddings: list[Embedding] = []

    def add(self, batch: LogBatch, first: NDArray[np.bool_], embeddings: Embedding) -> None:
        """Take the rows of a batch that belong to these queries."""
        kept = self._is_kept[batch.query]
        rows = np.flatnonzero(kept)
        prompts = [batch.prompts[i] for i in rows]
        self._parts.append(LogBatch(prompts, batch.query[rows], batch.reward[rows], batch.cost_usd[rows]))
        self._embeddings.append(embeddings[kept & first])

    def sample(self, contexts: Contexts) -> Sample:
        """Return the collected queries, one row each."""
        from wiserouter.tokens import count_tokens  # noqa: PLC0415 - loaded by those who need it

        calls, embeddings = merged(self._parts), np.concatenate(self._embeddings)
        tokens = np.array([count_tokens(prompt).tokens for prompt in calls.prompts], dtype=np.float64)
        return Sample(embeddings, contexts.assign_many(embeddings), tokens, calls.reward, calls.cost_usd)


def _fit_finer(
    sample: Sample, contexts: Contexts, estimates: Estimates, terms: FinerTerms, seed: int
) -> tuple[Finer | None, Comparison | None]:
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
    sample: Sample, held_out: HeldOut, contexts: Contexts, terms: FinerTerms, estimator: str, token_cost: bool
) -> Finer | None:
    """Fit an estimator on the whole sample, and its prices on the held-out predictions."""
    if estimator == MEANS and not token_cost:
        return None
    mean_reward = context_means(sample, contexts.n_contexts).reward
    return Finer(
        sample.reward.shape[1],
        held_out.fits[estimator](sample, mean_reward) if estimator != MEANS else None,
        fit_length(sample, contexts.n_contexts, terms.input_price_usd) if token_cost else None,
        price_curve(sample, *held_out.predicted(estimator, token_cost=token_cost)),
    )


def _check_terms(terms: FinerTerms | None) -> None:
    if terms is not None:
        check_estimator(terms.estimator)
        if terms.rate_usd is not None:
            check_amount("rate_usd", terms.rate_usd)


def _with_first(log: RoutingLog) -> Iterator[tuple[LogBatch, np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    """Yield each batch with a mask of the rows whose query is met for the first time."""
    highest = -1
    for batch in log.batches():
        before = np.concatenate(([highest], np.maximum.accumulate(np.maximum(batch.query, highest))))[:-1]
        yield batch, batch.query > before
        highest = max(highest, int(batch.query.max()))


def _check_observed(log: RoutingLog, estimates: Estimates) -> None:
    for name, count in (("cost", estimates.calls), ("reward", estimates.labels)):
        missing = [model for model, n in zip(log.models, count.sum(axis=0), strict=True) if not n]
        if missing:
            raise InvalidInput(
                f"the log must hold at least one {name} of every model, got none of {', '.join(missing)}: "
                f"leave them out with models=[...]"
            )
