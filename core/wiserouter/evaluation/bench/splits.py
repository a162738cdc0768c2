"""The split of a table by seed, with embeddings and contexts fitted on the training half once for all methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import process_time
from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.baselines.base import Answers, BenchQuery, Training
from wiserouter.evaluation.bench.list_prices import list_prices
from wiserouter.evaluation.reference_policies import oracle_plan
from wiserouter.evaluation.table import Table, random_halves
from wiserouter.planning.plan import Plan
from wiserouter.pricing.pool import Model
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import open_encoder
from wiserouter.types import Embedding, FloatArray, IntArray

DEFAULT_ENCODER = "tfidf"
"""The encoder of a table without a column of embeddings."""


class Queries(NamedTuple):
    """Queries with the answers of every model; arrays with one row per query."""

    embeddings: Embedding
    context_ids: IntArray
    chars: IntArray
    answers: Answers

    @property
    def n(self) -> int:
        """Number of queries."""
        return len(self.context_ids)

    def query(self, i: int, *, with_truth: bool) -> BenchQuery:
        """Return one query, with the answers of all models if the method may see them."""
        truth = Answers(self.answers.reward[i], self.answers.cost_usd[i]) if with_truth else None
        return BenchQuery(self.embeddings[i], int(self.context_ids[i]), int(self.chars[i]), truth)


class TrainTestSplit(NamedTuple):
    """The training and the test half of a table.

    Attributes
    ----------
    train, test : Queries
        The test half is in the order in which it is served.
    contexts : Contexts
        Fitted on the training half.
    models : tuple of Model
        The pool, with list prices.
    seed : int
        Seed of the split.
    prepare_s : float, seconds
        Time of encoding the training half and fitting its contexts.
    oracle : Plan
        The linear program over the single queries of the test half (`oracle_plan`).
    """

    train: Queries
    test: Queries
    contexts: Contexts
    models: tuple[Model, ...]
    seed: int
    prepare_s: float
    oracle: Plan

    def training(self) -> Training:
        """Return the training half with an empty bill."""
        train = self.train
        return Training(train.embeddings, train.context_ids, train.chars, self.contexts, self.models, train.answers)


class Vectors(NamedTuple):
    """Embeddings of both halves; of the test half in the order in which it is served."""

    train: Embedding
    test: Embedding


def split_table(
    table: Table,
    seed: int,
    *,
    encoder: str | None = None,
    n_contexts: int = 16,
    embeddings: Embedding | None = None,
) -> TrainTestSplit:
    """Split a table 50:50, and fit encoder and contexts on the training half.

    Parameters
    ----------
    table : Table
        The table.
    seed : int
        Seed of the split and of k-means.
    encoder : str, optional
        As `open_encoder` takes it; by default `embeddings` are used, or tfidf without them.
    n_contexts : int, default 16
        Number of contexts J; fewer where the training half has fewer queries.
    embeddings : ndarray of float32 of shape (n_queries, dim), optional
        Embeddings of the table.

    Examples
    --------
    >>> from wiserouter.evaluation.datasets.synthetic import make_table
    >>> split = split_table(make_table(100, np.random.default_rng(0)), seed=0, n_contexts=3)
    >>> split.train.n, split.test.n, split.contexts.n_contexts
    (50, 50, 3)
    """
    train, test = parts = random_halves(len(table.prompts), seed)
    began = process_time()
    encode = embedder(table.prompts, embeddings if encoder is None else None, train, encoder)
    rows = encode(train)
    contexts = Contexts.fit(rows, min(n_contexts, len(rows)), seed=seed)
    prepare_s = process_time() - began
    return build_split(table, parts, Vectors(rows, encode(test)), contexts, seed, prepare_s)


def embedder(
    prompts: Sequence[str], embeddings: Embedding | None, train: IntArray, encoder: str | None
) -> Callable[[IntArray], Embedding]:
    """Return a function from row numbers to embeddings: the given ones, else those of an encoder fitted on `train`."""
    if embeddings is not None:
        return lambda index: embeddings[index]
    fitted = open_encoder(encoder or DEFAULT_ENCODER).fit([prompts[i] for i in train])
    return lambda index: fitted.encode_many([prompts[i] for i in index])


def build_split(
    table: Table, parts: tuple[IntArray, IntArray], rows: Vectors, contexts: Contexts, seed: int, prepare_s: float = 0.0
) -> TrainTestSplit:
    """Return the split of a table into two given parts, from their embeddings and contexts."""
    train, test = parts
    served = _queries(table.rows(test), rows.test, contexts)
    return TrainTestSplit(
        _queries(table.rows(train), rows.train, contexts),
        served,
        contexts,
        _pool(table.models, table.cost_usd[train]),
        seed,
        prepare_s,
        oracle_plan(*served.answers),
    )


def single_models_plan(queries: Queries) -> Plan:
    """Return the mixtures of single models at the true means of some queries, with or without serving all of them."""
    reward, cost_usd = queries.answers
    return Plan([1.0], [reward.mean(axis=0)], [cost_usd.mean(axis=0)], allow_skip=True)


def _pool(names: tuple[str, ...], cost_usd: FloatArray) -> tuple[Model, ...]:
    prices = list_prices(dict(zip(names, cost_usd.mean(axis=0).tolist(), strict=True)))
    return tuple(Model(name, prices[name]) for name in names)


def _queries(table: Table, rows: Embedding, contexts: Contexts) -> Queries:
    chars = np.array([len(prompt) for prompt in table.prompts], dtype=np.int64)
    return Queries(rows, contexts.assign_many(rows), chars, Answers(table.reward, table.cost_usd))
