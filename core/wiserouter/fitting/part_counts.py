"""A fit as map and reduce: each part of a log is sampled and counted by one task, and the results are merged as a tree.

The parts follow from the files (`fitting/log/log_files.py`), the merges from the number of parts, and linear algebra
within a task runs on one thread. So the sums have the same bits for any number of workers, and for any that were lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InvalidInput
from wiserouter.fitting.context_summaries import TypicalPrompts
from wiserouter.fitting.fit_residuals import ResidualSample
from wiserouter.fitting.log import LogBatch, RoutingLog
from wiserouter.fitting.log.batch import first_rows
from wiserouter.fitting.query_counts import QueryContexts, contexts_of
from wiserouter.fitting.query_sample import QuerySample
from wiserouter.learning.estimates import Estimates
from wiserouter.parallel.shared import Shared
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder
from wiserouter.types import Embedding, FloatArray


class CountTerms(NamedTuple):
    """The terms on which every part is counted: the fitted encoder, the contexts, and an empty residual sample."""

    encoder: Encoder | None
    contexts: Contexts
    residuals: ResidualSample | None


@dataclass(slots=True)
class PartCounts:
    """The counts of some rows of a log.

    Attributes
    ----------
    estimates : Estimates
        Sums per (context, model).
    max_cost_usd : ndarray of shape (n_models,)
        Cost of the most expensive call of each model; NaN where none was seen.
    typical : TypicalPrompts
        The prompts nearest to each centroid.
    residuals : ResidualSample or None
        The rows that estimators of single queries learn from.
    """

    estimates: Estimates
    max_cost_usd: FloatArray
    typical: TypicalPrompts
    residuals: ResidualSample | None

    def merge(self, later: Self) -> None:
        """Add the counts of later rows of the log."""
        self.estimates.merge(later.estimates)
        self.max_cost_usd = np.fmax(self.max_cost_usd, later.max_cost_usd)
        self.typical.merge(later.typical)
        if self.residuals is not None and later.residuals is not None:
            self.residuals.merge(later.residuals)

    def __reduce__(self) -> tuple[Callable[..., PartCounts], tuple[object, ...]]:
        return _received, (self.estimates.arrays(), self.max_cost_usd, self.typical, self.residuals)


def _received(
    arrays: Mapping[str, NDArray[np.float64]],
    max_cost_usd: FloatArray,
    typical: TypicalPrompts,
    residuals: ResidualSample | None,
) -> PartCounts:
    """Return counts from another process, in arrays of their own: those of Ray cannot be written to."""
    return PartCounts(Estimates.of_arrays(arrays), max_cost_usd, typical, residuals)


class PartResult(NamedTuple):
    """The counts of a part, the contexts of its queries, and the number of its rows."""

    counts: PartCounts
    queries: QueryContexts
    n_rows: int


class SampledPart(NamedTuple):
    """The sample of a part, and the number of its rows."""

    sample: QuerySample
    n_rows: int


def sample_part(empty: QuerySample, part: RoutingLog) -> SampledPart:
    """Return the sample of a part, ranked as the empty sample ranks."""
    sample, n_rows = empty.empty(), 0
    for batch in part.batches():
        sample.add(batch)
        n_rows += len(batch.prompts)
    return SampledPart(sample, n_rows)


def count_part(terms: Shared[CountTerms], part: RoutingLog) -> PartResult:
    """Return the counts of a part."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return _counted(terms.value, part)


def _counted(terms: CountTerms, part: RoutingLog) -> PartResult:
    encoder, contexts, residuals = terms
    counts = PartCounts(
        Estimates(contexts.n_contexts, part.n_models),
        np.full(part.n_models, np.nan),
        TypicalPrompts(contexts),
        None if residuals is None else residuals.empty(),
    )
    queries, n_rows = [], 0
    for batch in part.batches():
        rows = encoded(encoder, batch)
        if rows.shape[1] != contexts.dim:
            raise InvalidInput(
                f"contexts of {contexts.dim} numbers must have embeddings of as many, got {rows.shape[1]}: pass "
                "contexts that were fitted on a log, with the encoder that they were fitted with",
                value=rows.shape[1],
            )
        assigned = contexts.assign_many(rows)
        first, names = first_rows(batch.query), _ids(batch)
        counts.typical.add(rows[first], assigned[first], [names[row] for row in first])
        if counts.residuals is not None:
            counts.residuals.add(batch, rows)
        counts.estimates.add_table(assigned, batch.reward, batch.cost_usd)
        counts.max_cost_usd = np.fmax(counts.max_cost_usd, np.fmax.reduce(batch.cost_usd, axis=0))
        queries.append(contexts_of(batch, assigned, contexts.n_contexts))
        n_rows += len(batch.prompts)
    return PartResult(counts, QueryContexts.together(queries, contexts.n_contexts), n_rows)


def encoded(encoder: Encoder | None, batch: LogBatch) -> Embedding:
    """Return an embedding per prompt: that of the log, else from the encoder, which gets equal prompts once."""
    if batch.embeddings is not None:
        return batch.embeddings
    if encoder is None:
        raise InvalidInput("a log without embeddings needs an encoder, got None: pass encoder=...")
    prompts = batch.prompts
    number: dict[str, int] = {}
    row = [number.setdefault(prompt, len(number)) for prompt in prompts]
    rows = encoder.encode_many(list(number))
    return rows if len(number) == len(prompts) else rows[row]


class Mergeable(Protocol):
    """Sums that later ones are added to."""

    def merge(self, later: Self, /) -> None:
        """Add later sums."""
        ...


M = TypeVar("M", bound=Mergeable)


class MergeTree(Generic[M]):
    """Sums merged two by two, as digits of a binary counter: rounding errors grow with the logarithm of their number.

    Examples
    --------
    >>> tree = MergeTree[Estimates]()
    >>> for calls in (1.0, 2.0, 3.0):
    ...     estimates = Estimates(1, 1)
    ...     estimates.add_cost(0, 0, calls)
    ...     tree.add(estimates)
    >>> tree.total().cost
    array([[6.]])
    """

    def __init__(self) -> None:
        self._digits: list[tuple[int, M]] = []

    def add(self, sums: M) -> None:
        """Add sums, which come in the order of the log."""
        level, merged = 0, sums
        while self._digits and self._digits[-1][0] == level:
            earlier = self._digits.pop()[1]
            earlier.merge(merged)
            level, merged = level + 1, earlier
        self._digits.append((level, merged))

    def total(self) -> M:
        """Return the sum of all."""
        _, merged = self._digits.pop()
        while self._digits:
            earlier = self._digits.pop()[1]
            earlier.merge(merged)
            merged = earlier
        return merged


def _ids(batch: LogBatch) -> list[str]:
    """Return the log's own names of a batch's queries, or the rows where they begin."""
    return [f"row {query + 1}" for query in batch.query.tolist()] if batch.ids is None else batch.ids
