"""Contexts that are fitted while serving: one at first, then as many as the queries seen can fill.

The latest queries are kept with their embeddings and observations. Contexts are fitted on these, and their observations
move with them. The sums of older queries move in proportion to the new contexts of the kept queries of their old one,
so that no sum is lost (`wiserouter.learning.context_moves`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from threading import Thread, main_thread
from typing import NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.learning.context_moves import KnownQueries, correction, drawn_context, moved_sums, spread_of
from wiserouter.learning.estimates import FIELDS, Estimates
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders.base import Encoder, RefittableEncoder
from wiserouter.types import NO_CONTEXT, Embedding, FloatArray
from wiserouter.validation import check_count

PER_MODEL = 30
"""Fewest queries of a context, for each model of the pool: contexts of fewer differ by noise only. A worker must have
kept as many for one model, where other workers have seen the rest."""


@dataclass(slots=True)
class Seen:
    """A kept query and its observations."""

    embedding: Embedding
    context: int
    model: int
    cost_usd: float | None = None
    usage: Usage | None = None
    reward: float | None = None
    reward_weight: float = 1.0

    def values(self) -> tuple[float, ...]:
        """Return the amounts that the query adds to the sums, by `FIELDS`; the delay of its score is not known."""
        cost, reward, usage = self.cost_usd, self.reward, self.usage
        charged, metered = float(cost is not None), float(usage is not None)
        weight = 0.0 if reward is None else self.reward_weight
        cost, reward = cost or 0.0, reward or 0.0
        tokens = (0.0, 0.0) if usage is None else (float(usage.input_tokens), float(usage.output_tokens))
        rewards = (weight, weight * reward, weight * reward * reward, weight, 0.0)
        return (charged, cost, cost * cost, *rewards, 1.0, 1.0, metered, *tokens)


class FittedContexts(NamedTuple):
    """Contexts to go on with, and where the kept queries lie in them.

    Attributes
    ----------
    contexts : Contexts
        The contexts.
    encoder : Encoder or None
        The encoder that their centroids belong to.
    n_seen : int
        Number of queries seen when they were fitted.
    placed : mapping of str to (ndarray, int)
        Embedding and context of the queries that were kept then, by decision.
    """

    contexts: Contexts
    encoder: Encoder | None
    n_seen: int
    placed: Mapping[str, tuple[Embedding, int]]


class Moved(NamedTuple):
    """Estimates for new contexts, and the part of them that sets kept queries right (see `context_moves`)."""

    estimates: Estimates
    corrected: dict[str, FloatArray]


class Growing:
    """The recent queries that contexts are fitted on, and the schedule of these fits.

    Parameters
    ----------
    n_contexts : int, default 16
        The largest number of contexts, at least 2.
    first_after : int, default 200
        Queries before the first fit.
    per_context : int, optional
        Queries that a context needs; by default 30 for each model of the pool.
    keep : int, default 2,000
        Number of recent queries to keep: 4 x dim bytes each (2 KB with the default encoder), and some hundred more.
    refit_after : int, optional
        Once there are `n_contexts`, fit them again each time that this many queries have come; never by default.
    background : bool, default True
        Fit in a thread, while requests go on; False lets one request wait some 0.1 s, and for the first fit until
        scikit-learn is loaded.
    seed : int, default 0
        Seeds the clusters.

    Attributes
    ----------
    version : int
        Number of the present contexts; 0 for those that the router began with.

    Raises
    ------
    InvalidInput
        If a number is not whole, or fewer queries are kept than the contexts need.
    """

    def __init__(
        self,
        n_contexts: int = 16,
        *,
        first_after: int = 200,
        per_context: int | None = None,
        keep: int = 2_000,
        refit_after: int | None = None,
        background: bool = True,
        seed: int = 0,
    ) -> None:
        if check_count("n_contexts", n_contexts, least=1) == 1:
            raise InvalidInput("n_contexts of Growing must be at least 2, got 1: for one context give growing=None")
        self.n_contexts = n_contexts
        self.first_after = check_count("first_after", first_after, least=1)
        self.per_context = None if per_context is None else check_count("per_context", per_context, least=1)
        self.keep = check_count("keep", keep, least=n_contexts)
        self.refit_after = None if refit_after is None else check_count("refit_after", refit_after, least=1)
        self._background, self._seed = background, seed
        self._recent: OrderedDict[str, Seen] = OrderedDict()
        self._moves: list[FloatArray] = []
        self._freq = np.ones(1)
        self._n_seen = self._n_elsewhere = 0
        self._due = float(first_after)
        self._fitting: Thread | None = None
        self._fitted: FittedContexts | None = None

    @property
    def version(self) -> int:
        """Number of the present contexts."""
        return len(self._moves)

    def start(self, contexts: Contexts, n_models: int) -> None:
        """Go on from contexts that were fitted earlier: they are fitted again once twice as many queries were seen."""
        self._freq = contexts.freq
        if contexts.n_contexts > 1:
            self._n_elsewhere = contexts.n_queries or contexts.n_contexts * self._per_context(n_models)
            self._due = self._next_due(contexts.n_contexts)

    def add(self, decision_id: str, embedding: Embedding, context: int, model: int) -> None:
        """Keep a query, in place of the oldest one if there are `keep`; all embeddings kept have one length."""
        if self._recent and next(iter(self._recent.values())).embedding.shape != embedding.shape:
            return
        self._recent[decision_id] = Seen(embedding, context, model)
        if len(self._recent) > self.keep:
            self._recent.popitem(last=False)
        self._n_seen += 1

    def add_elsewhere(self, n: int) -> None:
        """Count queries that other workers have seen."""
        self._n_elsewhere += n

    def seen(self, decision_id: str) -> Seen | None:
        """Return a kept query; None if it is not kept."""
        return self._recent.get(decision_id)

    def drop(self, decision_id: str) -> None:
        """Forget a query whose call failed."""
        self._recent.pop(decision_id, None)

    def context_of(self, decision_id: str, context: int, version: int) -> int:
        """Return the present context of a query that was decided in the contexts of `version`."""
        present = len(self._moves)
        if version == present or context == NO_CONTEXT:
            return context
        kept = self._recent.get(decision_id)
        if kept is not None:
            return kept.context
        if version > present:  # another worker is ahead by a second or two
            return drawn_context(decision_id, 0, [self._freq[np.newaxis]])
        return drawn_context(decision_id, context, self._moves[version:])

    def advance(self, encoder: Encoder | None, n_present: int, n_models: int) -> FittedContexts | None:
        """Fit contexts if enough queries were seen, and return them once, when they are ready: never fewer than now."""
        if self._fitting is not None:
            return self._finished()
        if self._total < self._due:
            return None
        n_contexts = self.n_contexts_now(n_models)
        if n_contexts < max(2, n_present):
            self._due = max(2.0 * self._per_context(n_models), self._total + 1.0)
            return None
        self._due = self._next_due(n_contexts)
        return self._made(partial(self._fit, self._kept_rows(), n_contexts, encoder, self._total))

    def n_contexts_now(self, n_models: int) -> int:
        """Return the number of contexts that the queries seen can fill, for a pool of `n_models`."""
        needed = self._per_context(n_models)
        return max(1, min(self.n_contexts, self._total // needed, len(self._recent) // min(needed, PER_MODEL)))

    def fit(self, n_contexts: int, encoder: Encoder | None) -> FittedContexts:
        """Return contexts fitted on the kept queries; raise `InvalidInput` if these are fewer than `n_contexts`."""
        if not self._recent:
            raise InvalidInput("contexts are fitted on recent queries, got none: decide some with text or embedding")
        return self._fit(self._kept_rows(), n_contexts, encoder, self._total)

    def move(self, estimates: Estimates, fitted: FittedContexts, present: Encoder | None) -> Moved:
        """Return estimates for new contexts that hold all observations of the old ones, and go on with these."""
        fitted = fitted._replace(placed=self._placements(fitted, present))  # late queries, once for both steps
        spread = self.spread_to(fitted, present, estimates.shape[0])
        return self.take_over(estimates, fitted, [*self._moves, spread], present)

    def spread_to(self, fitted: FittedContexts, present: Encoder | None, n_present: int) -> FloatArray:
        """Return the share of each of the `n_present` contexts in each new one, by the kept queries."""
        placed = self._placements(fitted, present)
        pairs = [(one.context, placed[name][1]) for name, one in self._recent.items() if name in placed]
        old, new = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return spread_of(old, new, n_present, fitted.contexts.freq)

    def prepare(
        self, contexts: Contexts, encoder: Encoder | None, n_seen: int, present: Encoder | None
    ) -> FittedContexts | None:
        """Return contexts that another worker has fitted, with the kept queries placed in them, once that is done."""
        fitted = self._finished()
        if fitted is not None and fitted.contexts is contexts:
            return fitted
        if self._fitting is not None:
            return None
        kept = self._kept_rows()

        def place() -> FittedContexts:
            return FittedContexts(contexts, encoder, n_seen, _placed(kept, contexts, present, encoder))

        return self._made(place) if kept else place()

    def take_over(
        self, estimates: Estimates, fitted: FittedContexts, moves: Sequence[FloatArray], present: Encoder | None
    ) -> Moved:
        """Return estimates for new contexts, to which `moves` lead from version 0 on, and go on with these."""
        placed = self._placements(fitted, present)
        self._recent = OrderedDict((name, one) for name, one in self._recent.items() if name in placed)
        kept = list(self._recent.values())
        old = np.array([one.context for one in kept], dtype=np.int64)
        for name, one in self._recent.items():
            one.embedding, one.context = placed[name]
        new = np.array([one.context for one in kept], dtype=np.int64)
        spread = reduce(np.matmul, moves[self.version :])
        self._moves, self._freq = list(moves), fitted.contexts.freq
        if fitted.contexts.n_contexts < self.n_contexts:
            self._due = 2.0 * max(self._total, fitted.n_seen)
        models = np.array([one.model for one in kept], dtype=np.int64)
        values = np.array([one.values() for one in kept]).reshape(len(kept), len(FIELDS))
        sums = estimates.arrays()
        corrected = correction(sums, spread, KnownQueries(old, new, models, values))
        moved = Estimates.of_arrays({name: sums + corrected[name] for name, sums in moved_sums(sums, spread).items()})
        moved.n_invoked, moved.n_observations = estimates.n_invoked, estimates.n_observations
        moved.pending = estimates.pending
        moved.smoothing = estimates.smoothing and estimates.smoothing.moved(spread)
        return Moved(moved, corrected)

    def _placements(self, fitted: FittedContexts, present: Encoder | None) -> dict[str, tuple[Embedding, int]]:
        """Return the embedding and the context of the kept queries in new contexts; most were placed beforehand."""
        late = {name: one.embedding for name, one in self._recent.items() if name not in fitted.placed}
        return {**fitted.placed, **_placed(late, fitted.contexts, present, fitted.encoder)}

    @property
    def _total(self) -> int:
        return self._n_seen + self._n_elsewhere

    def _per_context(self, n_models: int) -> int:
        return PER_MODEL * n_models if self.per_context is None else self.per_context

    def _next_due(self, n_contexts: int) -> float:
        """Return the number of queries to fit again at: each doubling, and then as `refit_after` says."""
        if n_contexts < self.n_contexts:
            return 2.0 * self._total
        return float("inf") if self.refit_after is None else float(self._total + self.refit_after)

    def _kept_rows(self) -> dict[str, Embedding]:
        return {name: one.embedding for name, one in self._recent.items()}

    def _fit(
        self, kept: Mapping[str, Embedding], n_contexts: int, encoder: Encoder | None, n_seen: int
    ) -> FittedContexts:
        """Return contexts and encoder, fitted on the embeddings of kept queries."""
        rows, fitted = np.stack(list(kept.values())), encoder
        if isinstance(encoder, RefittableEncoder):
            gave = rows.shape[1] == encoder.encode("").size
            fitted = encoder.refitted(rows) if gave else None  # the callers give embeddings of their own
            rows = rows if fitted is None else encoder.converted(rows, fitted)
        contexts = Contexts.fit(rows, n_contexts, seed=self._seed)
        return FittedContexts(contexts, fitted, n_seen, _placed(kept, contexts, encoder, fitted))

    def _finished(self) -> FittedContexts | None:
        """Return the contexts that a thread has made, once; None while it runs."""
        if self._fitting is None or self._fitting.is_alive():
            return None
        self._fitting, fitted, self._fitted = None, self._fitted, None
        return fitted

    def _made(self, make: Callable[[], FittedContexts]) -> FittedContexts | None:
        """Return new contexts; None where a thread makes them, for the next call of `advance` or `prepare`.

        The process waits for it when it ends: a thread stopped in mid-import keeps the locks of its imports, and
        whatever imports while the interpreter closes would wait for them for ever.
        """
        if not self._background:
            return make()

        def run() -> None:
            try:
                self._fitted = make()
            except RuntimeError:  # libraries cannot be imported once the process ends; no one asks for contexts then
                if main_thread().is_alive():
                    raise

        self._fitting = Thread(target=run, name="wiserouter-contexts")
        self._fitting.start()
        return None


def _placed(
    kept: Mapping[str, Embedding], contexts: Contexts, present: Encoder | None, encoder: Encoder | None
) -> dict[str, tuple[Embedding, int]]:
    """Return the embedding and the context of queries under new contexts."""
    if not kept:
        return {}
    rows = np.stack(list(kept.values()))
    if isinstance(present, RefittableEncoder) and isinstance(encoder, RefittableEncoder) and encoder is not present:
        rows = present.converted(rows, encoder)
    if contexts.n_contexts > 1 and rows.shape[1] != contexts.dim:  # embeddings of another kind than most workers see
        return {}
    return dict(zip(kept, zip(rows, contexts.assign_many(rows).tolist(), strict=True), strict=True))
