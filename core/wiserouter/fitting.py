"""From a routing log to what a router is made of: encoder, contexts, estimates, dearest calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from wiserouter.contexts import Contexts
from wiserouter.encoders import Encoder
from wiserouter.errors import InvalidInput, LogError
from wiserouter.estimates import Estimates
from wiserouter.log import LogBatch, RoutingLog
from wiserouter.portraits import Sitter, portraits_of
from wiserouter.types import FloatArray

SAMPLE_QUERIES = 50_000
"""Encoder and contexts are fitted on at most this many queries, drawn evenly from the log."""

Progress = Callable[[str, int], None]
"""Called with what is done and how many rows of it."""


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
    """

    encoder: Encoder
    contexts: Contexts
    estimates: Estimates
    dearest_usd: FloatArray
    n_queries: int


def fit_log(log: RoutingLog, encoder: Encoder, n_contexts: int, *, seed: int, progress: Progress) -> Fitted:
    """Fit in two passes over the log, holding one batch and a sample of prompts in memory.

    Raises
    ------
    InvalidInput
        If there are fewer queries than contexts, or no cost or reward at all.
    LogError
        If a row cannot be read.
    """
    prompts, n_queries = sample_prompts(log, np.random.default_rng(seed), progress)
    encoder = encoder.fit(prompts)
    progress("clustering", 0)
    contexts = Contexts.fit(encoder.encode_many(prompts), n_contexts, seed=seed)
    estimates = Estimates(contexts.n_contexts, log.n_models)
    met = np.zeros(contexts.n_contexts)
    dearest = np.full(log.n_models, np.nan)
    sitter = Sitter(contexts)
    for batch, first in _with_first(log):
        vectors = encoder.encode_many(batch.prompts)
        where = contexts.assign_many(vectors)
        sitter.add(vectors[first], where[first], [name for name, new in zip(_ids(batch), first, strict=True) if new])
        estimates.add_table(where, batch.reward, batch.cost_usd)
        met += np.bincount(where[first], minlength=contexts.n_contexts)
        dearest = np.fmax(dearest, np.fmax.reduce(batch.cost_usd, axis=0))
        progress("estimating", len(batch.prompts))
    _check_observed(log, estimates)
    placed = Contexts(contexts.centroids, met / met.sum())
    known = Contexts(placed.centroids, placed.freq, portraits_of(placed, encoder, sitter))
    return Fitted(encoder, known, estimates, dearest, n_queries)


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
