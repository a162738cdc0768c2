"""`open_table`: a routing table by name or path, as dense arrays with the hash of its content."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wiserouter.errors import LogError, UnknownModel
from wiserouter.evaluation.datasets.table_content import read_content
from wiserouter.evaluation.errors import MissingTable
from wiserouter.evaluation.table import Table
from wiserouter.fitting.evaluation_only import check_trainable
from wiserouter.fitting.log import RoutingLog
from wiserouter.types import Embedding

COMMANDS = {
    "routerbench_5shot": "wiserouter data routerbench",
    "routerbench_0shot": "wiserouter data routerbench --release 0shot",
    "swebench": "git clone --depth 1 https://github.com/SWE-bench/swe-bench.github.io, then "
    "wiserouter data swebench swe-bench.github.io/data/leaderboards.json",
    "paretobandit": "git clone --depth 1 https://github.com/ParetoBandit/ParetoBandit, then "
    "wiserouter data paretobandit ParetoBandit/data_collection/rewards/val_k4.jsonl",
}
"""The tables known by name, each with the command that gets it."""

LEFT_OUT: dict[str, tuple[str, ...]] = {"routerbench": ("Yi-34B-Chat",)}
"""Models that the bench leaves out by default, by prefix of the table's name: the paper uses 10 of RouterBench's 11."""


class LoadedTable(NamedTuple):
    """A routing table as dense arrays, with its identity.

    Attributes
    ----------
    name : str
        The file's name without its suffix.
    table : Table
        Prompts, rewards and costs (USD) of the complete queries, and the models.
    ids : list of str
        `sample_id` of each query, or its row number from 1 if the file has none.
    embeddings : ndarray of shape (n_queries, dim) or None
        The column `embedding`, if the file is a parquet that has one.
    sha256 : str
        Hash of the whole content, including incomplete queries.
    dropped : int
        Incomplete queries that were left out.
    left_out : tuple of str
        Models of the file that were left out.
    """

    name: str
    table: Table
    ids: list[str]
    embeddings: Embedding | None
    sha256: str
    dropped: int
    left_out: tuple[str, ...] = ()


def tables_folder() -> Path:
    """Return the folder of the converted tables: the environment variable `WISEROUTER_DATA`, else `data`."""
    return Path(os.environ.get("WISEROUTER_DATA") or "data")


def open_table(table: str | Path, *, leave_out: Iterable[str] | None = (), folder: Path | None = None) -> LoadedTable:
    """Return a table as dense arrays; queries without a score or a cost are left out and counted.

    Parameters
    ----------
    table : str or Path
        A file that `RoutingLog.read` reads, or the name of a parquet in the folder, such as `routerbench_5shot`.
    leave_out : iterable of str or None, default ()
        Models to leave out; a query may lack their answers. None: those of `LEFT_OUT`.
    folder : Path, optional
        Where names are looked up; by default `tables_folder()`.

    Raises
    ------
    MissingTable
        If it does not exist; the message contains the command that gets it.
    UnknownModel
        If a model to leave out is not in the table.
    LogError
        If it is damaged, no query is complete, or it is for evaluation only.
    """
    path = path_of(table, folder)
    name = path.name.split(".")[0]
    check_trainable(RoutingLog.read(path).columns(), path)
    batch, models, sha256, embeddings, ids, _ = read_content(path)
    left_out = _by_default(name, models) if leave_out is None else tuple(leave_out)
    taken = _columns(models, left_out)
    reward, cost_usd = batch.reward[:, taken], batch.cost_usd[:, taken]
    kept = np.flatnonzero(~np.isnan(reward + cost_usd).any(axis=1)) if taken else np.zeros(0, dtype=np.int64)
    if not len(kept):
        raise LogError("the bench needs queries that every model answered, got none", file=path)
    dense = Table(batch.prompts, reward, cost_usd, tuple(models[k] for k in taken)).rows(kept)
    chosen = None if embeddings is None else embeddings[kept]
    return LoadedTable(name, dense, [ids[i] for i in kept], chosen, sha256, len(ids) - len(kept), left_out)


def _by_default(name: str, models: tuple[str, ...]) -> tuple[str, ...]:
    known = next((left for start, left in LEFT_OUT.items() if name.startswith(start)), ())
    return tuple(model for model in models if model in known)


def _columns(models: tuple[str, ...], left_out: tuple[str, ...]) -> list[int]:
    """Return the columns of the models that are not left out."""
    for model in left_out:
        if model not in models:
            raise UnknownModel(model, models)
    return [k for k, model in enumerate(models) if model not in left_out]


def path_of(table: str | Path, folder: Path | None = None) -> Path:
    """Return the file of a table, or raise `MissingTable`."""
    path = Path(table)
    if path.is_file():
        return path
    named = (folder or tables_folder()) / f"{table}.parquet"
    if named.is_file():
        return named
    name = path.name.split(".")[0]
    raise MissingTable(str(table), COMMANDS.get(name, "wiserouter data --help, which lists the sets that are known"))
