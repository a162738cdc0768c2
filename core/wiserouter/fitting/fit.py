"""The fit: from a routing log to encoder, contexts, estimates and models."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wiserouter.errors import EncoderError, InvalidInput, LogError
from wiserouter.fitting.context_summaries import context_summaries
from wiserouter.fitting.encoder_selection import (
    AUTO_ENCODER,
    EncoderComparison,
    chosen_encoder,
    compare_encoders,
    sample_calls,
)
from wiserouter.fitting.evaluation_only import check_trainable
from wiserouter.fitting.fit_residuals import ResidualSample, fit_residuals, smoothing_of
from wiserouter.fitting.log import RoutingLog
from wiserouter.fitting.log.data_frames import DataFrame, opened_log
from wiserouter.fitting.part_counts import CountTerms, MergeTree, PartCounts, count_part, sample_part
from wiserouter.fitting.query_counts import QueryCounts
from wiserouter.fitting.query_sample import QuerySample
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import QueryResiduals
from wiserouter.learning.residuals.model_selection import AUTO, RIDGE, SMOOTHED, Comparison, check_estimator
from wiserouter.parallel.shared import Shared
from wiserouter.parallel.tasks import run_in_order
from wiserouter.pricing.arms import split_arm
from wiserouter.pricing.pool import Model, checked_models
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder, EncoderLike, open_encoder
from wiserouter.prompts.encoders.base import EncodesItsSample
from wiserouter.types import FloatArray
from wiserouter.validation import check_amount, check_count, seeded

logger = logging.getLogger("wiserouter")

SAMPLE_QUERIES = 50_000
"""Encoder and contexts are fitted on at most this many queries, drawn evenly from the log."""

OF_COLUMN = "column"
"""The name of an encoder for logs that hold the embeddings of their prompts."""

Progress = Callable[[str, int], None]
"""Called with the name of a step and the number of rows just done."""


class Fitted(NamedTuple):
    """The result of a fit.

    Attributes
    ----------
    encoder : Encoder or None
        Fitted on the prompts; None where the log holds their embeddings.
    contexts : Contexts
        Clusters of their embeddings, with the number of queries in each.
    estimates : Estimates
        Sums of cost and reward per (context, model).
    max_cost_usd : ndarray of shape (n_models,)
        Cost of the most expensive call of each model; NaN where none was seen.
    residuals : QueryResiduals or None
        Estimators of single queries.
    comparison : Comparison or None
        The comparison of the estimators, where one was to be chosen.
    encoders : EncoderComparison or None
        That of the encoders, likewise.
    models : tuple of Model
        The pool, in the log's order; empty where `fit_log` was called without one.
    """

    encoder: Encoder | None
    contexts: Contexts
    estimates: Estimates
    max_cost_usd: FloatArray
    residuals: QueryResiduals | None = None
    comparison: Comparison | None = None
    models: tuple[Model, ...] = ()
    encoders: EncoderComparison | None = None


def fit_parts(
    log: RoutingLog | DataFrame | str | Path,
    *,
    encoder: EncoderLike,
    n_contexts: int,
    contexts: Contexts | None = None,
    models: Sequence[Model] | None = None,
    estimator: str = SMOOTHED,
    rate_usd: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    n_jobs: int | None = None,
) -> Fitted:
    """Return the parts of a router fitted on a log, its models included; the parameters are those of `WiseRouter.fit`.

    Returns
    -------
    Fitted
        A model without a bound on the cost of a call takes the cost of its most expensive call in the log.

    Raises
    ------
    InvalidInput
        If a model of `models` is not in the log, or an encoder cannot be chosen; and as `fit_log` does.
    LogError
        If a row cannot be read.
    """
    known = {model.name: model for model in checked_models(models or ())}
    check_count("n_contexts", n_contexts, least=1)
    rng = seeded(seed)
    log = opened_log(log, {name: model.price for name, model in known.items() if model.price is not None})
    check_trainable(log.columns(), log.path)
    pool = _pool(log.models, known)
    log = log.priced({model.name: model.price for model in pool if model.price is not None})
    encoders = None
    if isinstance(encoder, str) and encoder == OF_COLUMN:
        log = log.embedded()
    if isinstance(encoder, str) and encoder == AUTO_ENCODER:
        if contexts is not None:
            raise InvalidInput("encoder='auto' chooses an encoder, and contexts have one: pass encoder=router.encoder")
        (progress or _silent)("comparing encoders", 0)
        calls = sample_calls(log, rng)
        encoders = compare_encoders(calls, n_contexts, rate_usd=rate_usd, seed=seed)
        encoder = chosen_encoder(encoders)
    fitted = fit_log(
        log,
        None if encoder == OF_COLUMN else open_encoder(encoder),
        n_contexts,
        seed=seed,
        progress=progress or _silent,
        estimator=estimator,
        rate_usd=rate_usd,
        contexts=contexts,
        n_jobs=n_jobs,
    )
    bounded = [_bounded(model, cost) for model, cost in zip(pool, fitted.max_cost_usd.tolist(), strict=True)]
    return fitted._replace(models=tuple(bounded), encoders=encoders)


def _pool(names: Sequence[str], known: Mapping[str, Model]) -> list[Model]:
    """Return the models of a log: those that are known by their names or as the model of an arm, and others as named.

    Raises
    ------
    InvalidInput
        If a known model is not in the log.
    """
    said = {name: split_arm(name) for name in names}
    for name in known.keys() - said.keys() - {arm.model for arm in said.values()}:
        rule = f"models must be in the log ({', '.join(names)}), got {name!r}: name them as it does"
        raise InvalidInput(rule, value=name)
    pool = []
    for name, (family, params) in said.items():
        of_family = known.get(family, Model(family))
        pool.append(known.get(name) or replace(of_family, name=name, params=params, family=family))
    return pool


def fit_log(
    log: RoutingLog,
    encoder: Encoder | None,
    n_contexts: int,
    *,
    seed: int,
    progress: Progress,
    estimator: str = SMOOTHED,
    rate_usd: float | None = None,
    contexts: Contexts | None = None,
    n_jobs: int | None = None,
) -> Fitted:
    """Fit in two passes over the log, or one where `contexts` are given, holding a batch and a sample in memory.

    Parameters
    ----------
    log : RoutingLog
        Past calls.
    encoder : Encoder or None
        Fitted here, unless `contexts` are given; None where the batches of the log hold embeddings.
    n_contexts : int
        Number of contexts to find; fewer, with a warning, where the log has fewer different prompts.
    seed : int
        Seeds sample and clusters.
    progress : callable
        Called with each step and its rows.
    estimator : {"smoothed", "means", "ridge", "auto"}, default "smoothed"
        The estimator of the rewards. "smoothed" are means of contexts that borrow from other models, other contexts and
        a regression, where contexts are found here.
    rate_usd : float, optional
        The budget per query at which "auto" compares.
    contexts : Contexts, optional
        Found before, with this encoder: the log is only counted in them. It may lack costs or rewards of a model, which
        another log may have.
    n_jobs : int, optional
        Number of workers, or -1 for all; by default that of `joblib.parallel_config`, else this process.

    Raises
    ------
    InvalidInput
        If a model has no cost, an estimator of single queries is asked for and a model has no reward, or there is no
        such estimator.
    LogError
        If a row cannot be read.
    """
    refines, smooths = check_estimator(estimator) in {RIDGE, AUTO}, estimator in {SMOOTHED, AUTO} and contexts is None
    residual_sample = None
    if rate_usd is not None:
        check_amount("rate_usd", rate_usd)
    if contexts is None or refines:
        sample = sample_queries(log, np.random.default_rng(seed), progress, n_jobs)
        residual_sample = ResidualSample(sample) if refines or smooths else None
    if contexts is None:
        progress("clustering", 0)
        encoder, found = _discretized(sample, encoder, n_contexts, seed)
        if found.n_contexts < n_contexts:
            logger.warning(
                "contexts: %d in place of %d, for the log has no more different prompts%s",
                found.n_contexts,
                n_contexts,
                " (rows of one query_id count as one)" if log.layout.query_id else "",
            )
    else:
        _check_fitted(encoder)
        found = contexts
    counts, queries = _counted(log, CountTerms(encoder, found, residual_sample), progress, n_jobs)
    estimates = counts.estimates
    _check_observed(log, estimates, scored=refines, part=contexts is not None)
    counted = found.counted(queries)
    if contexts is None:
        counted = counted.with_summaries(context_summaries(counted, encoder, counts.typical))
    residuals, comparison = None, None
    if counts.residuals is not None:
        progress("fitting the regression", 0)
        of_sample = counts.residuals.in_contexts(counted)
        if refines:
            residuals, comparison = fit_residuals(of_sample, counted, estimates, estimator, rate_usd, seed)
        estimates.smoothing = smoothing_of(of_sample, estimates) if smooths and residuals is None else None
    return Fitted(encoder, counted, estimates, counts.max_cost_usd, residuals, comparison)


def sample_queries(
    log: RoutingLog, rng: np.random.Generator, progress: Progress, n_jobs: int | None = None
) -> QuerySample:
    """Return a sample of at most `SAMPLE_QUERIES` queries, each equally likely; raises `LogError` if there is none."""
    sample = QuerySample(SAMPLE_QUERIES, rng)
    for part in run_in_order(partial(sample_part, sample.empty()), log.parts(), n_jobs=n_jobs):
        sample.merge(part.sample)
        progress("reading", part.n_rows)
    if not sample.prompts:
        raise LogError("the log must hold at least one query, got none", file=log.path)
    return sample


def _discretized(
    sample: QuerySample, encoder: Encoder | None, n_contexts: int, seed: int
) -> tuple[Encoder | None, Contexts]:
    """Return the encoder fitted on a sample, and its contexts; no encoder where the sample has embeddings."""
    prompts, rows = sample.prompts, sample.embeddings
    if isinstance(encoder, EncodesItsSample):
        rows = encoder.fit_encode(prompts)
    elif encoder is not None:
        encoder = encoder.fit(prompts)
        rows = encoder.encode_many(prompts)
    if rows is None:
        raise InvalidInput("a log without embeddings needs an encoder, got None: pass encoder=...")
    return encoder, Contexts.fit(rows, min(n_contexts, len(prompts)), seed=seed)


def _counted(
    log: RoutingLog, terms: CountTerms, progress: Progress, n_jobs: int | None
) -> tuple[PartCounts, FloatArray]:
    """Return the counts of the whole log, and the number of queries per context."""
    tree: MergeTree[PartCounts] = MergeTree()
    with QueryCounts(terms.contexts.n_contexts) as queries:
        for part in run_in_order(partial(count_part, Shared(terms)), log.parts(), n_jobs=n_jobs):
            tree.add(part.counts)
            queries.add(part.queries)
            progress("estimating", part.n_rows)
        return tree.total(), queries.total()


def _check_fitted(encoder: Encoder | None) -> None:
    try:
        if encoder is not None:
            encoder.state()
    except EncoderError as error:
        raise InvalidInput(
            f"contexts need the encoder that they were fitted with: pass encoder=router.encoder ({error})"
        ) from error


def _check_observed(log: RoutingLog, estimates: Estimates, *, scored: bool, part: bool) -> None:
    """Refuse a log that lacks the costs of a model, or the rewards where they are needed, or a part that lacks all."""
    for name, count in (("cost", estimates.calls), *([("reward", estimates.labels)] if scored else [])):
        missing = [model for model, n in zip(log.models, count.sum(axis=0), strict=True) if not n]
        if missing and not (part and len(missing) < log.n_models):
            means = "" if name == "cost" else ", or use the means"
            raise InvalidInput(
                f"the log must hold at least one {name} of every model, got none of {', '.join(missing)}: "
                f"leave them out with RoutingLog.read(models=[...]) or --models{means}"
            )


def _bounded(model: Model, max_cost_usd: float) -> Model:
    """Return the model with a bound on the cost of a call, where it has none and a call was seen."""
    known = model.max_cost_usd is not None or np.isnan(max_cost_usd)
    return model if known else replace(model, max_cost_usd=max_cost_usd)


def _silent(step: str, rows: int) -> None:
    """Report no progress."""
