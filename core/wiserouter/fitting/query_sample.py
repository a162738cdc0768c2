"""A uniform sample of a log's queries in bounded memory, for any number and order of their rows.

Bottom-k sampling (Cohen and Kaplan 2007): every query has a random rank that follows from its key, and the queries of
lowest rank are the sample. Nothing is kept of the other queries.
"""

from __future__ import annotations

import numpy as np

from wiserouter.fitting.log import LogBatch
from wiserouter.fitting.log.batch import first_rows
from wiserouter.fitting.log.query_keys import Ranks, ranks
from wiserouter.types import Embedding, IntArray

MOST_CHARS = 100_000_000
"""Largest number of characters in a sample; prompts longer than 2,000 characters make it smaller than asked for."""

_HIGHEST = 2**64 - 1


class QuerySample:
    """The prompts of the queries of lowest rank, in the order of the log.

    Parameters
    ----------
    most : int
        Largest number of queries.
    rng : numpy.random.Generator
        Draws the ranks.
    most_chars : int
        Largest number of characters of their prompts; one prompt is always kept.

    Examples
    --------
    >>> sample = QuerySample(2, np.random.default_rng(0))
    >>> nothing = np.zeros((3, 1))
    >>> sample.add(LogBatch(["a", "b", "b"], np.array([10, 11, 11]), nothing, nothing))
    >>> sample.prompts
    ['a', 'b']
    """

    def __init__(self, most: int, rng: np.random.Generator, most_chars: int = MOST_CHARS) -> None:
        self._most, self._most_chars = most, most_chars
        self._salt = int(rng.integers(_HIGHEST, dtype=np.uint64, endpoint=True))
        self._prompts: dict[int, str] = {}
        self._vectors: dict[int, Embedding] = {}
        self._n_chars = 0
        self._bound = _HIGHEST

    def add(self, batch: LogBatch) -> None:
        """Add some rows; a query keeps the prompt of its first one."""
        rows = first_rows(batch.query)
        rank = ranks(batch.query[rows], self._salt)
        low = rank <= self._bound
        for row, one in zip(rows[low].tolist(), rank[low].tolist(), strict=True):
            if one not in self._prompts:
                self._prompts[one] = batch.prompts[row]
                if batch.embeddings is not None:
                    self._vectors[one] = batch.embeddings[row].copy()
                self._n_chars += len(batch.prompts[row])
        if len(self._prompts) > 2 * self._most or self._n_chars > 2 * self._most_chars:
            self._cut()

    def empty(self) -> QuerySample:
        """Return an empty sample that ranks queries as this one does."""
        other = QuerySample(self._most, np.random.default_rng(0), self._most_chars)
        other._salt = self._salt
        return other

    def merge(self, later: QuerySample) -> None:
        """Add the sample of later rows; a query keeps the prompt of its first one."""
        for rank, prompt in later._prompts.items():
            if rank <= self._bound and rank not in self._prompts:
                self._prompts[rank] = prompt
                if rank in later._vectors:
                    self._vectors[rank] = later._vectors[rank]
                self._n_chars += len(prompt)
        self._cut()

    @property
    def prompts(self) -> list[str]:
        """One per query."""
        self._cut()
        return list(self._prompts.values())

    @property
    def embeddings(self) -> Embedding | None:
        """One row per prompt, where the log holds them."""
        prompts = self.prompts
        return np.stack([self._vectors[rank] for rank in self._prompts]) if self._vectors and prompts else None

    def rank(self, query: IntArray) -> Ranks:
        """Return the rank of each query."""
        return ranks(query, self._salt)

    def bound(self, most: int) -> np.uint64:
        """Return the highest rank among the `most` queries of lowest rank."""
        return np.uint64(sorted(self._prompts)[:most][-1])

    def _cut(self) -> None:
        """Drop the queries of highest rank that are too many."""
        if len(self._prompts) <= self._most and self._n_chars <= self._most_chars:
            return
        order = sorted(self._prompts)[: self._most]
        chars = np.cumsum([len(self._prompts[rank]) for rank in order])
        self._bound = order[max(int(np.searchsorted(chars, self._most_chars, side="right")) - 1, 0)]
        self._prompts = {rank: prompt for rank, prompt in self._prompts.items() if rank <= self._bound}
        self._vectors = {rank: vector for rank, vector in self._vectors.items() if rank <= self._bound}
        self._n_chars = sum(map(len, self._prompts.values()))
