"""Contexts: the finite set that embeddings are assigned to (paper, Section "Context Discretization").

Queries are clustered by k-means; the context of a query is its nearest centroid; `freq` is the empirical share of each
context. scikit-learn is loaded by `fit` only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wiserouter.errors import InvalidInput
from wiserouter.parallel.forks import import_between_forks
from wiserouter.types import Embedding, FloatArray, IntArray
from wiserouter.validation import check_count

MINI_BATCH_ROWS = 100_000
"""From this many rows on, k-means runs on mini-batches; see docs/adr/0004-mini-batch-k-means.md."""


class ContextSummary(NamedTuple):
    """The summary of a context: its words, where the encoder knows any, and the ids of its most typical prompts.

    Attributes
    ----------
    terms : tuple of str
        Words that distinguish it from the others.
    prompts : tuple of str
        Ids in the log that it was fitted on, or rows of it ("row 17"); never a text.
    """

    terms: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()


class Contexts:
    """Centroids, and the share of queries nearest to each.

    Parameters
    ----------
    centroids : array-like of shape (n_contexts, dim)
        Cluster centres in the embedding space.
    freq : array-like of shape (n_contexts,)
        Share of queries in each context; sums to 1.
    summaries : sequence of ContextSummary, optional
        One per centroid.
    n_queries : int, optional
        Number of queries that `freq` was counted from, where that is known.

    Raises
    ------
    InvalidInput
        If shapes do not match or a number is not finite.

    Examples
    --------
    >>> contexts = Contexts(centroids=[[0.0, 0.0], [1.0, 1.0]], freq=[0.25, 0.75])
    >>> contexts.assign([0.9, 0.8])
    1
    """

    def __init__(
        self,
        centroids: ArrayLike,
        freq: ArrayLike,
        summaries: Sequence[ContextSummary] = (),
        n_queries: int | None = None,
    ) -> None:
        self.centroids: Embedding = _matrix("centroids", centroids)
        self.freq: FloatArray = np.array(freq, dtype=np.float64)
        if self.freq.shape != (len(self.centroids),) or not abs(self.freq.sum() - 1.0) < 1e-6 or self.freq.min() < 0:
            raise InvalidInput(
                f"freq must hold one share per centroid ({len(self.centroids)}), each at least 0, summing to 1, "
                f"got {self.freq.tolist()}"
            )
        if len(summaries) not in {0, len(self.centroids)}:
            raise InvalidInput(f"summaries must be one per centroid ({len(self.centroids)}), got {len(summaries)}")
        self.summaries = tuple(summaries)
        self.n_queries = None if n_queries is None else check_count("n_queries", n_queries, least=1)
        self._half_square = 0.5 * np.einsum("jd,jd->j", self.centroids, self.centroids)

    @classmethod
    def single(cls) -> Contexts:
        """Return one context that holds every query: no embedding is needed.

        Examples
        --------
        >>> Contexts.single().n_contexts
        1
        """
        return cls(centroids=np.zeros((1, 0), dtype=np.float32), freq=[1.0])

    @classmethod
    def fit(cls, embeddings: ArrayLike, n_contexts: int = 16, *, seed: int = 0) -> Contexts:
        """Cluster embeddings by k-means.

        Parameters
        ----------
        embeddings : array-like of shape (n_queries, dim)
            One row per query.
        n_contexts : int, default 16
            Number of clusters J; fewer where there are fewer distinct rows.
        seed : int, default 0
            Seeds the initial centroids.

        Returns
        -------
        Contexts
            Centroids, and the share of `embeddings` nearest to each.

        Raises
        ------
        InvalidInput
            If there are fewer rows than contexts, or a number is not finite.

        Notes
        -----
        Lloyd's k-means with k-means++ seeding; mini-batches from `MINI_BATCH_ROWS` rows on.
        """
        rows = _matrix("embeddings", embeddings)
        check_count("n_contexts", n_contexts, least=1)
        if len(rows) < n_contexts:
            raise InvalidInput(f"n_contexts={n_contexts} must be at most the number of queries, {len(rows)}: lower it")
        if n_contexts == 1 or rows.shape[1] == 0:
            return cls(rows.mean(axis=0, keepdims=True), [1.0], n_queries=len(rows))
        centroids = _k_means(rows, min(n_contexts, _n_distinct(rows, n_contexts)), seed)
        found = cls(centroids, np.full(len(centroids), 1.0 / len(centroids)))
        return found.counted(np.bincount(found.assign_many(rows), minlength=found.n_contexts))

    @property
    def n_contexts(self) -> int:
        """Number of contexts J."""
        return len(self.centroids)

    def summary(self, context: int) -> ContextSummary:
        """Return the summary of a context; empty where none was made."""
        return self.summaries[context] if 0 <= context < len(self.summaries) else ContextSummary()

    @property
    def dim(self) -> int:
        """Length of an embedding; 0 where none is needed."""
        return int(self.centroids.shape[1])

    def assign(self, embedding: ArrayLike) -> int:
        """Return the context whose centroid is nearest to one embedding of shape (dim,).

        Raises
        ------
        InvalidInput
            If the length is not `dim` or a number is not finite.
        """
        centroids = self.centroids
        if len(centroids) == 1:
            return 0
        x = as_numbers(embedding)
        if x.shape != centroids.shape[1:]:
            raise InvalidInput(f"embedding must have shape ({self.dim},), got {x.shape}")
        if not math.isfinite(x.dot(x)):
            raise InvalidInput("embedding must be finite and of finite length, got NaN, an infinity or an overflow")
        return int((centroids.dot(x) - self._half_square).argmax())

    def assign_many(self, embeddings: ArrayLike) -> IntArray:
        """Return the nearest context of each row of an array of shape (n, dim)."""
        rows = _matrix("embeddings", embeddings)
        if self.n_contexts == 1:
            return np.zeros(len(rows), dtype=np.int64)
        if rows.shape[1] != self.dim:
            raise InvalidInput(f"embeddings must have {self.dim} columns, got {rows.shape[1]}")
        return np.asarray((rows @ self.centroids.T - self._half_square).argmax(axis=1), dtype=np.int64)

    def counted(self, queries: ArrayLike) -> Contexts:
        """Return the same contexts with frequencies from the number of queries in each; raise if there is none.

        Examples
        --------
        >>> contexts = Contexts(centroids=[[0.0], [1.0]], freq=[0.5, 0.5]).counted([1, 3])
        >>> contexts.freq.tolist(), contexts.n_queries
        ([0.25, 0.75], 4)
        """
        counts = np.asarray(queries, dtype=np.float64)
        if not counts.sum() > 0:
            raise InvalidInput(f"queries must hold at least one query, got {counts.tolist()}", value=queries)
        return Contexts(self.centroids, counts / counts.sum(), self.summaries, round(counts.sum()))

    def with_summaries(self, summaries: Sequence[ContextSummary]) -> Contexts:
        """Return the same contexts with these summaries."""
        return Contexts(self.centroids, self.freq, summaries, self.n_queries)


def _k_means(rows: Embedding, n_contexts: int, seed: int) -> NDArray[Any]:
    import_between_forks("sklearn", "sklearn.cluster")
    import sklearn  # noqa: F401 first: its modules import one another, which two threads cannot do at once
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    if len(rows) < MINI_BATCH_ROWS:
        model = KMeans(n_contexts, n_init=1, random_state=seed)
    else:
        model = MiniBatchKMeans(n_contexts, n_init=3, batch_size=4096, random_state=seed)
    with threadpool_limits(1):  # threads add in any order: the same bits on any number of cores
        return np.asarray(model.fit(rows).cluster_centers_)


def _n_distinct(rows: Embedding, enough: int) -> int:
    """Return the number of distinct rows, or any number of at least `enough`."""
    head = len(np.unique(rows[: 4 * enough], axis=0))
    return head if head >= enough else len(np.unique(rows, axis=0))


def as_numbers(embedding: ArrayLike) -> Embedding:
    """Return an embedding as an array; raise `InvalidInput` where it holds anything but numbers."""
    try:
        return np.asarray(embedding, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"embedding must be a vector of numbers: {error}", value=embedding) from error


def _matrix(name: str, values: ArrayLike) -> Embedding:
    try:
        array = np.array(values, dtype=np.float32, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{name} must be a matrix of numbers: {error}") from error
    if array.ndim != 2 or not len(array):
        raise InvalidInput(f"{name} must have shape (n, dim) with n >= 1, got {array.shape}")
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise InvalidInput(f"{name} must be finite, got NaN or an infinity in row {row}")
    return array
