"""The summary of a table, for `wiserouter data check`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.datasets.open_table import path_of
from wiserouter.evaluation.datasets.table_content import read_content
from wiserouter.types import FloatArray, IntArray


class TableSummary(NamedTuple):
    """The summary of a table, with figures per model in the order of `models`.

    Attributes
    ----------
    queries, rows : int
        Queries, and rows of the file.
    models : tuple of str
        Names of the models.
    mean_reward, mean_cost_usd : ndarray of shape (n_models,)
        Means over the cells with a value; NaN without any.
    missing_reward, missing_cost : ndarray of int of shape (n_models,)
        Empty cells.
    flat_cost : tuple of str
        Models whose cost never varies: usually a price in place of a measured cost.
    sha256 : str
        Hash of the content.
    """

    queries: int
    rows: int
    models: tuple[str, ...]
    mean_reward: FloatArray
    mean_cost_usd: FloatArray
    missing_reward: IntArray
    missing_cost: IntArray
    flat_cost: tuple[str, ...]
    sha256: str


def summary(table: str | Path, *, folder: Path | None = None) -> TableSummary:
    """Return the summary of a table after checking all its cells.

    Raises
    ------
    MissingTable, LogError
        As `open_table`; incomplete queries are no error here.
    """
    path = path_of(table, folder)
    batch, models, sha256, _, _, rows = read_content(path)
    no_reward, no_cost = np.isnan(batch.reward), np.isnan(batch.cost_usd)
    flat = [
        name
        for k, name in enumerate(models)
        if (~no_cost[:, k]).sum() > 1 and np.ptp(batch.cost_usd[~no_cost[:, k], k]) == 0
    ]
    return TableSummary(
        len(batch.prompts),
        rows,
        models,
        _means(batch.reward),
        _means(batch.cost_usd),
        no_reward.sum(axis=0),
        no_cost.sum(axis=0),
        tuple(flat),
        sha256,
    )


def _means(values: FloatArray) -> FloatArray:
    seen = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(seen, values, 0.0).sum(axis=0) / seen.sum(axis=0))
