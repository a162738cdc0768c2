"""Contexts that are fitted while serving: one at first, then as many as the queries seen can fill.

The latest queries are kept with their embeddings and observations. Contexts are fitted on these, and their observations
move with them. The sums of older queries move in proportion to the new contexts of the kept queries of their old one,
so that no sum is lost.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Thread

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import Estimates
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.contexts import Contexts
from wiserouter.types import NO_CONTEXT, Decision, Embedding, FloatArray, IntArray
from wiserouter.validation import check_count

PER_MODEL = 30
"""Fewest queries of a context, for each model of the pool: contexts of fewer differ by noise only."""


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


class Growing:
    """The recent queries that contexts are fitted on, and the schedule of these fits.

    Parameters
    ----------
    n_contexts : int, default 16
        The largest number of contexts.
    first_after : int, default 200
        Queries before the first fit.
    per_context : int, optional
        Queries that a context needs; by default 30 for each model of the pool.
    keep : int, default 2,000
        Number of recent queries to keep: 4 x dim bytes each, and some hundred more.
    refit_after : int, optional
        Once there are `n_contexts`, fit them again each time that this many queries have come; never by default.
    background : bool, default True
        Fit in a thread, while requests go on; False lets one request wait some 0.1 s.
    seed : int, default 0
        Seeds the clusters.

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
        self.n_contexts = check_count("n_contexts", n_contexts, least=1)
        self.first_after = check_count("first_after", first_after, least=1)
        self.per_context = None if per_context is None else check_count("per_context", per_context, least=1)
        self.keep = check_count("keep", keep, least=n_contexts)
        self.refit_after = None if refit_after is None else check_count("refit_after", refit_after, least=1)
        self._background, self._seed = background, seed
        self._recent: OrderedDict[str, Seen] = OrderedDict()
        self._moves: list[tuple[float, IntArray]] = []
        self._n_seen = 0
        self._due = float(first_after)
        self._fitting: Thread | None = None
        self._fitted: Contexts | None = None

    def add(self, decision: Decision, embedding: Embedding, model: int) -> None:
        """Keep a query, in place of the oldest one if there are `keep`."""
        self._recent[decision.id] = Seen(embedding, decision.context, model)
        if len(self._recent) > self.keep:
            self._recent.popitem(last=False)
        self._n_seen += 1

    def seen(self, decision_id: str) -> Seen | None:
        """Return a kept query; None if it is not kept."""
        return self._recent.get(decision_id)

    def drop(self, decision_id: str) -> None:
        """Forget a query whose call failed."""
        self._recent.pop(decision_id, None)

    def context_of(self, decision_id: str, context: int, decided_at: float) -> int:
        """Return the present context of a query, which may have been decided in an earlier set of contexts."""
        kept = self._recent.get(decision_id)
        if kept is not None:
            return kept.context
        for moved_at, moved_to in self._moves:
            if context != NO_CONTEXT and decided_at <= moved_at:
                context = int(moved_to[context])
        return context

    def advance(self, n_models: int) -> Contexts | None:
        """Fit contexts if enough queries were seen, and return them once, when they are ready."""
        if self._fitting is not None:
            if self._fitting.is_alive():
                return None
            self._fitting, fitted, self._fitted = None, self._fitted, None
            return fitted
        if self._n_seen < self._due:
            return None
        n_contexts = self.n_contexts_now(n_models)
        self._due = self._next_due(n_contexts, n_models)
        if n_contexts == 1:
            return None
        if not self._background:
            return self.fit(n_contexts)
        self._fitting = Thread(target=self._fit_in_background, args=(self._embeddings(), n_contexts), daemon=True)
        self._fitting.start()
        return None

    def n_contexts_now(self, n_models: int) -> int:
        """Return the number of contexts that the queries seen can fill, for a pool of `n_models`."""
        filled = self._n_seen // self._per_context(n_models)
        return max(1, min(self.n_contexts, filled, len(self._recent)))

    def fit(self, n_contexts: int) -> Contexts:
        """Return contexts fitted on the kept queries; raise `InvalidInput` if these are fewer than `n_contexts`."""
        if not self._recent:
            raise InvalidInput("contexts are fitted on recent queries, got none: decide some with text or embedding")
        return Contexts.fit(self._embeddings(), n_contexts, seed=self._seed)

    def move(self, estimates: Estimates, contexts: Contexts, moved_at: float) -> Estimates:
        """Return estimates for new contexts that hold all observations of the old ones.

        Parameters
        ----------
        estimates : Estimates
            Of the contexts so far.
        contexts : Contexts
            The new ones.
        moved_at : float
            The store's time; decisions made before it name an old context.
        """
        kept = list(self._recent.values())
        moved_to = contexts.assign_many(self._embeddings())
        n_old, n_models = estimates.shape
        old, new = _sums_of(kept, (n_old, n_models)), Estimates(contexts.n_contexts, n_models)
        spread = np.zeros((n_old, contexts.n_contexts))
        for one, context in zip(kept, moved_to.tolist(), strict=True):
            spread[one.context, context] += 1.0
            one.context = context
        spread += 1e-9 * contexts.freq  # a context without a kept query is spread over all
        spread /= spread.sum(axis=1, keepdims=True)
        new.merge(_sums_of(kept, new.shape))
        new.merge(_spread(estimates, old, spread))
        self._moves.append((moved_at, spread.argmax(axis=1)))
        return new

    def _per_context(self, n_models: int) -> int:
        return PER_MODEL * n_models if self.per_context is None else self.per_context

    def _next_due(self, n_contexts: int, n_models: int) -> float:
        """Return the number of queries to fit again at: where two contexts can be filled, then at each doubling."""
        if n_contexts < self.n_contexts:
            return 2.0 * (self._per_context(n_models) if n_contexts == 1 else self._n_seen)
        return float("inf") if self.refit_after is None else float(self._n_seen + self.refit_after)

    def _embeddings(self) -> Embedding:
        return np.stack([one.embedding for one in self._recent.values()])

    def _fit_in_background(self, embeddings: Embedding, n_contexts: int) -> None:
        self._fitted = Contexts.fit(embeddings, n_contexts, seed=self._seed)


def _sums_of(kept: list[Seen], shape: tuple[int, int]) -> Estimates:
    """Return the sums of some queries."""
    sums = Estimates(*shape)
    for one in kept:
        sums.add_invoked(one.context, one.model)
        if one.cost_usd is not None:
            sums.add_cost(one.context, one.model, one.cost_usd, one.usage)
        if one.reward is not None:
            sums.add_reward(one.context, one.model, one.reward, weight=one.reward_weight)
    return sums


def _spread(estimates: Estimates, kept: Estimates, spread: FloatArray) -> Estimates:
    """Return the sums of all but the kept queries, moved to the new contexts in proportion."""
    whole, part = estimates.arrays(), kept.arrays()
    return Estimates.of_arrays({name: spread.T @ np.maximum(whole[name] - part[name], 0.0) for name in whole})
