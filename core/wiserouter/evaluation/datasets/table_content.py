"""The content of a routing table of any layout, including its ids and embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wiserouter.errors import LogError
from wiserouter.evaluation.datasets.checksums import content_hash
from wiserouter.fitting.log import LogBatch, RoutingLog, files
from wiserouter.fitting.log.batch import merged
from wiserouter.types import Embedding

if TYPE_CHECKING:
    import polars as pl

_KEYS = ("rb_row", "sample_id")
"""Key columns: the first one present must be unique (RouterBench repeats some `sample_id`)."""


class Content(NamedTuple):
    """All queries of a table, one per row, with ids and embeddings; `rows` is the number of rows in the file."""

    batch: LogBatch
    models: tuple[str, ...]
    sha256: str
    embeddings: Embedding | None
    ids: list[str]
    rows: int


def read_content(path: Path) -> Content:
    """Return the content of a log.

    Raises
    ------
    LogError
        If a cell is out of range, an id is repeated or an embedding is not a list of finite numbers.
    """
    log = RoutingLog.read(path)
    parts = list(log.batches())
    rows = sum(len(part.prompts) for part in parts)
    batch = merged(parts)
    ids, embeddings = [str(i + 1) for i in range(len(batch.prompts))], None
    if log.layout.name == "wide":
        columns = _extra(path)
        ids, embeddings = _ids(columns, path) or ids, _embeddings(columns, path)
    digest = content_hash(batch.prompts, log.models, batch.reward, batch.cost_usd, embeddings)
    return Content(batch, log.models, digest, embeddings, ids, rows)


def _extra(path: Path) -> pl.DataFrame:
    """Return the key columns and the embeddings of a wide file."""
    frame = files.scan(path)
    there = [name for name in (*_KEYS, "embedding") if name in files.column_names(frame, path)]
    with files.reading(path):
        return frame.select(there).collect()


def _ids(columns: pl.DataFrame, path: Path) -> list[str] | None:
    import polars as pl

    keys = [name for name in _KEYS if name in columns.columns]
    if not keys:
        return None
    key = columns[keys[0]]
    if key.is_duplicated().any():
        row = int(np.flatnonzero((~key.is_first_distinct()).to_numpy())[0])
        rule = f"an id must be unique, got {key[row]!r} again: drop or rename one"
        raise LogError(rule, file=path, row=row + 1, column=keys[0], value=key[row])
    return columns["sample_id" if "sample_id" in keys else keys[0]].cast(pl.String).fill_null("").to_list()


def _embeddings(columns: pl.DataFrame, path: Path) -> Embedding | None:
    if "embedding" not in columns.columns:
        return None
    try:
        rows = np.array(columns["embedding"].to_list(), dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise LogError(
            "an embedding must be a list of numbers, all of one length", file=path, column="embedding"
        ) from error
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise LogError("an embedding must be a list of finite numbers", file=path, column="embedding")
    return rows
