"""The number of queries of a log in each context, each counted once, in bounded memory."""

from __future__ import annotations

from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Self

import numpy as np

from wiserouter.fitting.log import LogBatch
from wiserouter.fitting.log.batch import first_rows
from wiserouter.types import FloatArray, IntArray

N_PARTS = 64
"""Number of temporary files that keys are partitioned into; each is read into memory at the end."""

_IN_MEMORY = 1 << 18  # bytes of a part before it goes to disk
_PAIR = np.dtype([("query", "<i8"), ("context", "<i4")])


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
    ...     counts.add(batch, np.array([1, 0, 1]))
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

    def add(self, batch: LogBatch, contexts: IntArray) -> None:
        """Count the queries of a batch, whose rows fall in these contexts."""
        if batch.ids is None:
            self._untied += np.bincount(contexts, minlength=len(self._untied))
            return
        rows = first_rows(batch.query)
        pairs = np.empty(len(rows), dtype=_PAIR)
        pairs["query"], pairs["context"] = batch.query[rows], contexts[rows]
        self._parts = self._parts or [SpooledTemporaryFile(_IN_MEMORY) for _ in range(N_PARTS)]  # noqa: SIM115 - closed on exit
        for part, file in enumerate(self._parts):
            file.write(pairs[pairs["query"] % N_PARTS == part].tobytes())

    def total(self) -> FloatArray:
        """Return the number of queries in each context, of shape (n_contexts,)."""
        counts = self._untied.copy()
        for file in self._parts:
            file.seek(0)
            pairs = np.frombuffer(file.read(), dtype=_PAIR)
            first = first_rows(pairs["query"])
            counts += np.bincount(pairs["context"][first], minlength=len(counts))
        return counts
