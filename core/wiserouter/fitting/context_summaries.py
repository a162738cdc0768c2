"""Summaries of contexts: the ids of the prompts nearest to each centroid, and the words of each centroid.

No text of a prompt is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Protocol, runtime_checkable

import numpy as np

from wiserouter.prompts.contexts import Contexts, ContextSummary
from wiserouter.prompts.encoders import Encoder
from wiserouter.types import Embedding, IntArray

N_PROMPTS = 5
"""Typical prompts kept per context."""

N_TERMS = 8
"""Words kept per context."""


@runtime_checkable
class TermNamer(Protocol):
    """An encoder that can name the words of a direction in its space."""

    def terms_of(self, direction: Embedding, most: int) -> list[str]:
        """Return the words whose vectors point most in that direction, the clearest first."""
        ...


class TypicalPrompts:
    """The prompts nearest to each centroid, collected from the batches of a log.

    Parameters
    ----------
    contexts : Contexts
        The centroids.

    Examples
    --------
    >>> typical = TypicalPrompts(Contexts([[0.0], [1.0]], [0.5, 0.5]))
    >>> typical.add(np.array([[0.3], [0.1], [0.8]]), np.array([0, 0, 1]), ["a", "b", "c"])
    >>> typical.nearest()
    [('b', 'a'), ('c',)]
    """

    def __init__(self, contexts: Contexts) -> None:
        self._centroids = contexts.centroids
        self._kept: list[list[tuple[float, str]]] = [[] for _ in range(contexts.n_contexts)]

    def add(self, vectors: Embedding, contexts: IntArray, ids: Sequence[str]) -> None:
        """Add some prompts: embedding, context and id of each."""
        distance = np.square(vectors - self._centroids[contexts]).sum(axis=1)
        for context in np.unique(contexts).tolist():
            rows = np.flatnonzero(contexts == context)
            near = rows[np.argsort(distance[rows], kind="stable")[:N_PROMPTS]]
            self._keep(context, [(float(distance[row]), ids[row]) for row in near])

    def merge(self, later: TypicalPrompts) -> None:
        """Add the prompts of later rows."""
        for context, found in enumerate(later._kept):
            self._keep(context, found)

    def _keep(self, context: int, found: list[tuple[float, str]]) -> None:
        """Keep the nearest of the prompts kept so far and those found."""
        known = {name for _, name in self._kept[context]}  # rows of one query may lie in several batches
        fresh = [one for one in found if one[1] not in known]
        self._kept[context] = nsmallest(N_PROMPTS, [*self._kept[context], *fresh], key=lambda one: one[0])

    def nearest(self) -> list[tuple[str, ...]]:
        """Return the ids per context, the nearest first."""
        return [tuple(name for _, name in kept) for kept in self._kept]


def context_summaries(contexts: Contexts, encoder: Encoder | None, typical: TypicalPrompts) -> list[ContextSummary]:
    """Return the summary of each context; its words are those of its centroid less the mean of all."""
    if not isinstance(encoder, TermNamer):
        return [ContextSummary(prompts=prompts) for prompts in typical.nearest()]
    middle = contexts.freq @ contexts.centroids if contexts.n_contexts > 1 else np.zeros(contexts.dim)
    words = [tuple(encoder.terms_of(centroid - middle, N_TERMS)) for centroid in contexts.centroids]
    return [ContextSummary(*both) for both in zip(words, typical.nearest(), strict=True)]
