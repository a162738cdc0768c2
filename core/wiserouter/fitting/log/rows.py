"""Rows of a frame as a batch of a log: one query per row in a wide log, one call per row in a long one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from wiserouter.fitting.log.batch import LogBatch
from wiserouter.fitting.log.cells import Cells, earliest
from wiserouter.fitting.log.layout import Layout
from wiserouter.fitting.log.query_keys import query_keys
from wiserouter.pricing.prices import Price
from wiserouter.types import FloatArray

EMBEDDING = "embedding"
"""The column of the embeddings of prompts, which is read where a fit asks for it."""

Prices = Mapping[str, Price]
"""USD per token, by the name of the model."""


def wide_batch(cells: Cells, layout: Layout, columns: Sequence[tuple[str, str]]) -> LogBatch:
    """Return the batch of a wide frame, with the score and the cost column of each model."""
    named, embedded = (name in cells.frame.columns for name in ("query_id", EMBEDDING))
    reads: list[Callable[[], Any]] = [partial(cells.prompts, "prompt")]
    reads += [partial(_ids(cells, layout), "query_id")] if named else []
    reads += [partial(cells.embeddings, EMBEDDING)] if embedded else []
    reads += [partial(cells.rewards, score) for score, _ in columns]
    reads += [partial(cells.costs, cost) for _, cost in columns]
    prompts, *tables = earliest(reads)
    ids = tables.pop(0) if named else None
    embeddings = tables.pop(0) if embedded else None
    reward, cost_usd = np.split(np.stack(tables, axis=1), 2, axis=1)
    query = cells.row_numbers if ids is None else query_keys(ids)
    return LogBatch(prompts, query, reward, cost_usd, ids, embeddings)


def long_batch(cells: Cells, layout: Layout, models: Sequence[str], prices: Prices) -> LogBatch:
    """Return the batch of a long frame; calls of other models are left out."""
    fields = layout.fields
    reads: dict[str, Callable[[], Any]] = {"prompt": partial(cells.prompts, "prompt")}
    reads |= {name: partial(read, name) for name, read in _text_reads(cells, layout).items() if name in fields}
    reads |= {name: partial(read, name) for name, read in _number_reads(cells).items() if name in fields}
    if EMBEDDING in cells.frame.columns:
        reads[EMBEDDING] = partial(cells.embeddings, EMBEDDING)
    read = dict(zip(reads, earliest(reads.values()), strict=True))
    index = {name: k for k, name in enumerate(models)}
    column = np.array([index.get(name, -1) for name in read["model"]])
    kept = np.flatnonzero(column >= 0)
    tables = np.full((2, len(column), len(models)), np.nan)
    unknown = np.full(len(column), np.nan)
    for table, values in zip(tables, (read.get("reward", unknown), costs_usd(read, prices)), strict=True):
        table[kept, column[kept]] = values[kept]
    query = cells.row_numbers
    ids = read.get("query_id")
    if ids is not None:
        query = query_keys(ids)
    ids_kept = None if ids is None else [ids[i] for i in kept]
    vectors = read[EMBEDDING][kept] if EMBEDDING in read else None
    prompts = [read["prompt"][i] for i in kept]
    return LogBatch(prompts, query[kept], tables[0, kept], tables[1, kept], ids_kept, vectors)


def costs_usd(read: Mapping[str, Any], prices: Prices) -> FloatArray:
    """Return the costs of calls in USD: as logged, else by tokens and prices, else NaN."""
    models = read["model"]
    cost: FloatArray = read.get("cost_usd", np.full(len(models), np.nan))
    if not prices or "input_tokens" not in read or "output_tokens" not in read:
        return cost
    listed = {name: (one.input, one.cache_read_usd, one.output) for name, one in prices.items()}
    price = np.array([listed.get(name, (np.nan,) * 3) for name in models]).reshape(-1, 3)
    cached = np.minimum(np.nan_to_num(read.get("cached_tokens", np.zeros(len(models)))), read["input_tokens"])
    tokens = np.column_stack([read["input_tokens"] - cached, cached, read["output_tokens"]])
    return np.where(np.isnan(cost), (tokens * price).sum(axis=1), cost)


def _text_reads(cells: Cells, layout: Layout) -> dict[str, Callable[[str], list[str]]]:
    return {"model": cells.names, "query_id": _ids(cells, layout)}


def _ids(cells: Cells, layout: Layout) -> Callable[[str], list[str]]:
    return cells.run_ids if layout.of_runs else cells.texts


def _number_reads(cells: Cells) -> dict[str, Callable[[str], FloatArray]]:
    return {
        "reward": cells.rewards,
        "cost_usd": cells.costs,
        "input_tokens": cells.tokens,
        "output_tokens": cells.tokens,
        "cached_tokens": cells.tokens,
    }
