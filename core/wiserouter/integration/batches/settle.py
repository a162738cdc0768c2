"""The results of a batch: their costs charged, failures released, scores learned; each once however often it is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from wiserouter.errors import AlreadySettled, InvalidInput, UnknownDecision
from wiserouter.integration.batches.folder import BatchFolder, BatchTerms
from wiserouter.integration.batches.layouts import result_of
from wiserouter.integration.batches.requests import json_lines
from wiserouter.integration.batches.results import BatchResult
from wiserouter.integration.batches.together import together
from wiserouter.pricing.prices import Usage, cost_usd
from wiserouter.router import WiseRouter
from wiserouter.stores import Store

Done = Callable[[], object]
"""Called after each line."""


@dataclass
class SettleCounts:
    """What became of the lines of result files.

    Attributes
    ----------
    charged, failed : int
        Requests that were charged, and that failed and cost nothing.
    cost_usd : float, USD
        What was charged.
    before : int
        Lines of requests that were settled before.
    unpriced : int
        Requests that succeeded without a usage; they count at their expected cost.
    other : int
        Lines of other batches, or that are no result.
    """

    charged: int = 0
    failed: int = 0
    cost_usd: float = 0.0
    before: int = 0
    unpriced: int = 0
    other: int = 0

    def plus(self, more: SettleCounts) -> SettleCounts:
        """Return the sums of two counts."""
        return SettleCounts(*(one + two for one, two in zip(astuple(self), astuple(more), strict=True)))


def settle_results(folder: BatchFolder, files: Sequence[Path], done: Done | None = None) -> SettleCounts:
    """Charge the results of a batch to its budget, and learn their costs.

    Raises
    ------
    InvalidInput
        If a line is no JSON, or a result that cannot be read. The lines before it are settled, which the next run
        notices.
    """
    return _settled(folder, _results(files), done)


def fail_requests(folder: BatchFolder, failures: Iterable[tuple[str, str]]) -> SettleCounts:
    """Release requests that a provider has refused, given by custom id and reason; one that was answered stays."""
    return _settled(folder, (BatchResult(name, "errored", error=error) for name, error in failures), None)


def _settled(folder: BatchFolder, results: Iterable[BatchResult | None], done: Done | None) -> SettleCounts:
    counts, models = SettleCounts(), {one.decision.id: one.decision.model for one in folder.sent()}
    terms, answered = folder.terms, folder.answered()
    with folder.opened() as (router, _):

        def settle(result: BatchResult | None) -> tuple[str, float]:
            model = None if result is None else models.get(result.custom_id)
            if result is None or model is None:
                return "other", 0.0
            if result.outcome != "succeeded" and result.custom_id in answered:
                return "before", 0.0  # the provider has billed it
            if result.outcome == "succeeded" and result.usage is None and result.custom_id not in answered:
                answered.add(result.custom_id)
                folder.add_answered(result.custom_id)  # the ledger could release what it presumes
            return _settle(folder, router, terms, model, result)

        for what, cost_usd in together(settle, results):
            setattr(counts, what, getattr(counts, what) + 1)
            counts.cost_usd += cost_usd
            if done is not None:
                done()
    return counts


def _settle(
    folder: BatchFolder, router: WiseRouter, terms: BatchTerms, model: str, result: BatchResult
) -> tuple[str, float]:
    """Settle a result; return the count that it adds to, and what was charged."""
    try:
        if result.outcome != "succeeded":
            folder.add_error(result.custom_id, result.outcome, result.error)
            router.release(result.custom_id)
            return "failed", 0.0
        if result.usage is None:
            router.presume(result.custom_id)
            return "unpriced", 0.0
        return "charged", _charge(router, terms, model, result.custom_id, result.usage)
    except AlreadySettled:
        return "before", 0.0


def _charge(router: WiseRouter, terms: BatchTerms, model: str, custom_id: str, usage: Usage) -> float:
    """Charge a request at batch prices; its plain price is learned, of which the batch's is a share."""
    billed, plain = cost_usd(terms.prices[model], usage), router.pool.by_name[model].price
    factor = terms.factors[model]
    learned = cost_usd(plain, usage) if plain is not None else billed / factor if factor else None
    router.charge(custom_id, billed, usage=usage, learned_usd=learned)
    return billed


def _results(files: Sequence[Path]) -> Iterator[BatchResult | None]:
    for path in files:
        for at, line in json_lines(path):
            try:
                yield result_of(line)
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise InvalidInput(f"{path}, line {at} must be a result of a provider: {error}") from error


@dataclass
class FeedbackCounts:
    """What became of the lines of a file of scores.

    Attributes
    ----------
    taken : int
        Scores that were learned.
    unknown : int
        Scores of requests that are not of this batch, or have no answer.
    """

    taken: int = 0
    unknown: int = 0


def rate_results(folder: BatchFolder, file: Path, done: Done | None = None) -> FeedbackCounts:
    """Learn the scores of a batch: lines of `custom_id`, or the caller's `id`, and `score` or `reward` in [0, 1].

    Raises
    ------
    InvalidInput
        If a line is no such object, or a score is outside [0, 1]. The lines before it are learned, and replaced by the
        next run.
    """
    counts, ids = FeedbackCounts(), dict[str, str]()
    for one in folder.sent():  # the last round of a request is the one that was answered
        ids |= {one.id: one.decision.id}
    own = {one.decision.id for one in folder.sent()}
    with folder.opened() as (router, store):
        for at, line in json_lines(file):
            score = _score(line, at, file)
            name = str(line.get("custom_id", ""))
            custom_id = name if name in own else ids.get(name or str(line.get("id")))
            if custom_id is not None and _is_answered(store, custom_id):
                router.reward(custom_id, score)
                counts.taken += 1
            else:
                counts.unknown += 1
            if done is not None:
                done()
    return counts


def _score(line: Mapping[str, Any], at: int, file: Path) -> float:
    score = line.get("score", line.get("reward"))
    if not isinstance(score, int | float) or not 0.0 <= score <= 1.0 or not ("custom_id" in line or "id" in line):
        raise InvalidInput(
            f"{file}, line {at} must have a custom_id or an id, and a score in [0, 1], got {score!r}", value=score
        )
    return float(score)


def _is_answered(store: Store, custom_id: str) -> bool:
    try:
        return store.find(custom_id).state in ("charged", "presumed")
    except UnknownDecision:
        return False
