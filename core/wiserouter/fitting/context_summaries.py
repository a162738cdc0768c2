"""What contexts are about: the prompts nearest to each centroid, by id, and the words of each centroid.

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
    """An encoder that can say which words point in a direction of its space."""

    def terms_of(self, direction: Embedding, most: int) -> list[str]:
        """Return the words that point that way, the clearest first."""
        ...


class TypicalPrompts:
    """Keeps the prompts nearest to each centroid while a log goes by.

    Parameters
    ----------
    contexts : Contexts
        The centroids.

    Examples
    --------
    >>> sitter = TypicalPrompts(Contexts([[0.0], [1.0]], [0.5, 0.5]))
    >>> sitter.add(np.array([[0.3], [0.1], [0.8]]), np.array([0, 0, 1]), ["a", "b", "c"])
    >>> sitter.nearest()
    [('b', 'a'), ('c',)]
    """

    def __init__(self, contexts: Contexts) -> None:
        self._centroids = contexts.centroids
        self._kept: list[list[tuple[float, str]]] = [[] for _ in range(contexts.n_contexts)]

    def add(self, vectors: Embedding, where: IntArray, ids: Sequence[str]) -> None:
        """Look at some prompts: embedding, context and id of each."""
        away = np.square(vectors - self._centroids[where]).sum(axis=1)
        for context in np.unique(where).tolist():
            rows = np.flatnonzero(where == context)
            near = rows[np.argsort(away[rows], kind="stable")[:N_PROMPTS]]
            met = [(float(away[row]), ids[row]) for row in near]
            known = {name for _, name in self._kept[context]}  # rows of one query may lie in several batches
            fresh = [one for one in met if one[1] not in known]
            self._kept[context] = nsmallest(N_PROMPTS, [*self._kept[context], *fresh], key=lambda one: one[0])

    def nearest(self) -> list[tuple[str, ...]]:
        """Return the ids per context, the nearest first."""
        return [tuple(name for _, name in kept) for kept in self._kept]


def context_summaries(contexts: Contexts, encoder: Encoder, sitter: TypicalPrompts) -> list[ContextSummary]:
    """Return what each context is about: words by what sets its centroid apart from the mean of all."""
    if not isinstance(encoder, TermNamer):
        return [ContextSummary(prompts=prompts) for prompts in sitter.nearest()]
    middle = contexts.freq @ contexts.centroids if contexts.n_contexts > 1 else np.zeros(contexts.dim)
    words = [tuple(encoder.terms_of(centroid - middle, N_TERMS)) for centroid in contexts.centroids]
    return [ContextSummary(*both) for both in zip(words, sitter.nearest(), strict=True)]
