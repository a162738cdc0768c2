"""A uniform sample of a log's queries in bounded memory, however often and in whatever order their rows come.

Bottom-k sampling (Cohen and Kaplan 2007): every query has a random rank that follows from its key, and the queries of
lowest rank are the sample. So nothing is remembered of queries that are not in it.
"""

from __future__ import annotations

import numpy as np

from wiserouter.fitting.log import LogBatch
from wiserouter.fitting.log.batch import first_rows
from wiserouter.fitting.log.query_keys import Ranks, ranks
from wiserouter.types import IntArray

MOST_CHARS = 100_000_000
"""Characters of a sample's prompts; where prompts are longer than 2,000, fewer of them are kept than were asked for."""

_HIGHEST = 2**64 - 1


class QuerySample:
    """The prompts of the queries of lowest rank, in the order in which they were met.

    Parameters
    ----------
    most : int
        The most queries.
    rng : numpy.random.Generator
        Draws the ranks.
    most_chars : int
        The most characters of their prompts; one prompt is kept in any case.

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
        self._n_chars = 0
        self._bound = _HIGHEST

    def add(self, batch: LogBatch) -> None:
        """Look at some rows; a query keeps the prompt of its first one."""
        rows = first_rows(batch.query)
        rank = ranks(batch.query[rows], self._salt)
        low = rank <= self._bound
        for row, one in zip(rows[low].tolist(), rank[low].tolist(), strict=True):
            if one not in self._prompts:
                self._prompts[one] = batch.prompts[row]
                self._n_chars += len(batch.prompts[row])
        if len(self._prompts) > 2 * self._most or self._n_chars > 2 * self._most_chars:
            self._cut()

    @property
    def prompts(self) -> list[str]:
        """One per query."""
        self._cut()
        return list(self._prompts.values())

    def rank(self, query: IntArray) -> Ranks:
        """Return the rank of each query."""
        return ranks(query, self._salt)

    def bound(self, most: int) -> np.uint64:
        """Return the highest rank of the `most` queries of lowest rank."""
        return np.uint64(sorted(self._prompts)[:most][-1])

    def _cut(self) -> None:
        """Let go of the queries of highest rank that are too many."""
        if len(self._prompts) <= self._most and self._n_chars <= self._most_chars:
            return
        order = sorted(self._prompts)[: self._most]
        chars = np.cumsum([len(self._prompts[rank]) for rank in order])
        self._bound = order[max(int(np.searchsorted(chars, self._most_chars, side="right")) - 1, 0)]
        self._prompts = {rank: prompt for rank, prompt in self._prompts.items() if rank <= self._bound}
        self._n_chars = sum(map(len, self._prompts.values()))
