"""The table that a bench runs on: read, checked, and known by its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from wiserouter.errors import UnknownModel
from wiserouter.evaluation.replay import Table, dense_table
from wiserouter.log import RoutingLog

LEFT_OUT: dict[str, tuple[str, ...]] = {"routerbench": ("Yi-34B-Chat",)}
"""Models that are left out by default, by the start of the file's name: the paper takes 10 of RouterBench's 11."""


class BenchTable(NamedTuple):
    """A dense table and where it came from.

    Attributes
    ----------
    name : str
        The file's name without its ending.
    table : Table
        Prompts, scores and costs.
    left_out : tuple of str
        Models of the file that take no part.
    dropped : int
        Queries that lack a score or a cost of the others.
    """

    name: str
    table: Table
    left_out: tuple[str, ...] = ()
    dropped: int = 0

    @property
    def digest(self) -> str:
        """SHA-256 of all that the figures depend on."""
        prompts, reward, cost_usd, models = self.table
        digest = hashlib.sha256(repr((models, len(prompts))).encode())
        for prompt in prompts:
            digest.update(prompt.encode("utf-8", "surrogatepass") + b"\0")
        for array in (reward, cost_usd):
            digest.update(array.tobytes())
        return digest.hexdigest()


def read_table(path: str | Path, leave_out: Iterable[str] | None = None) -> BenchTable:
    """Read a routing log of which every model answered every query; incomplete queries are dropped.

    Parameters
    ----------
    path : str or Path
        What `RoutingLog.read` takes.
    leave_out : iterable of str, optional
        Models that take no part; by default those of `LEFT_OUT`.

    Raises
    ------
    UnknownModel
        If a model to leave out is not in the table.
    LogError
        If it cannot be read, or no query is complete.
    """
    log = RoutingLog.read(path)
    name = Path(path).stem
    left_out = _default(name, log.models) if leave_out is None else tuple(leave_out)
    for model in left_out:
        if model not in log.models:
            raise UnknownModel(model, log.models)
    kept = RoutingLog.read(path, models=[model for model in log.models if model not in left_out])
    return BenchTable(name, *_dense(kept, left_out))


def _dense(log: RoutingLog, left_out: tuple[str, ...]) -> tuple[Table, tuple[str, ...], int]:
    table, dropped = dense_table(log)
    return table, left_out, dropped


def _default(name: str, models: Iterable[str]) -> tuple[str, ...]:
    known = next((left for start, left in LEFT_OUT.items() if name.startswith(start)), ())
    return tuple(model for model in models if model in known)
