"""The number of queries of a log in each context, each counted once, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from wiserouter.fitting.log import LogBatch
from wiserouter.fitting.log.batch import first_rows
from wiserouter.types import FloatArray, IntArray

N_PARTS = 64
"""Number of temporary files that keys are partitioned into; each is read into memory at the end."""

_IN_MEMORY = 1 << 18  # bytes of a part before it goes to disk
_PAIR = np.dtype([("query", "<i8"), ("context", "<i4")])


class QueryContexts(NamedTuple):
    """The queries of some rows and their contexts.

    Attributes
    ----------
    untied : ndarray of shape (n_contexts,)
        Number of queries of one row each, per context.
    pairs : structured ndarray of (query, context)
        The queries that rows elsewhere may belong to as well, with the context of their first row here.
    """

    untied: FloatArray
    pairs: NDArray[np.void]

    @classmethod
    def together(cls, parts: Sequence[Self], n_contexts: int) -> Self:
        """Return the queries of several runs of rows, in the order of the log."""
        pairs = np.concatenate([np.empty(0, dtype=_PAIR), *(part.pairs for part in parts)])
        untied = np.sum([np.zeros(n_contexts), *(part.untied for part in parts)], axis=0)
        return cls(untied, pairs[first_rows(pairs["query"])])


def contexts_of(batch: LogBatch, contexts: IntArray, n_contexts: int) -> QueryContexts:
    """Return the queries of a batch, whose rows fall in these contexts."""
    rows = first_rows(batch.query) if batch.ids is not None else np.empty(0, dtype=np.int64)
    pairs = np.empty(len(rows), dtype=_PAIR)
    pairs["query"], pairs["context"] = batch.query[rows], contexts[rows]
    untied = np.bincount(contexts if batch.ids is None else [], minlength=n_contexts)
    return QueryContexts(untied.astype(np.float64), pairs)


class QueryCounts:
    """Counts queries by the context of their first row.

    Parameters
    ----------
    n_contexts : int
        Number of contexts.

    Notes
    -----
    Rows with the same id may be anywhere in a log. So key and context are written to disk, 12 bytes for each query of a
    batch, partitioned by key so that equal keys are in one file. Memory: 16 MB, and a 64th of the bytes written.

    Examples
    --------
    >>> nothing = np.zeros((3, 1))
    >>> batch = LogBatch(["a", "b", "a"], np.array([7, 8, 7]), nothing, nothing, ids=["x", "y", "x"])
    >>> with QueryCounts(n_contexts=2) as counts:
    ...     counts.add(contexts_of(batch, np.array([1, 0, 1]), 2))
    ...     counts.total()
    array([1., 1.])
    """

    def __init__(self, n_contexts: int) -> None:
        self._untied = np.zeros(n_contexts)
        self._parts: list[SpooledTemporaryFile[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in self._parts:
            part.close()

    def add(self, queries: QueryContexts) -> None:
        """Count some queries; of one that comes again, the first context counts."""
        self._untied += queries.untied
        if not len(queries.pairs):
            return
        self._parts = self._parts or [SpooledTemporaryFile(_IN_MEMORY) for _ in range(N_PARTS)]  # noqa: SIM115 - closed on exit
        place = queries.pairs["query"] % N_PARTS
        for part, file in enumerate(self._parts):
            file.write(queries.pairs[place == part].tobytes())

    def total(self) -> FloatArray:
        """Return the number of queries in each context, of shape (n_contexts,)."""
        counts = self._untied.copy()
        for file in self._parts:
            file.seek(0)
            pairs = np.frombuffer(file.read(), dtype=_PAIR)
            first = first_rows(pairs["query"])
            counts += np.bincount(pairs["context"][first], minlength=len(counts))
        return counts
