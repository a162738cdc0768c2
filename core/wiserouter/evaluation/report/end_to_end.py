"""Budgets that must also pay for collecting what a method learns from (paper, Section "Performance Under End-to-End").

Offline methods need every model's answer to the training half before they serve; methods that learn from single calls
need a fraction of that, and have the rest to serve with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wiserouter.evaluation.report.comparison import KEPT, grid_of, hulls_of
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    import polars as pl

SHARES = {"a tenth": 0.1, "a quarter": 0.25, "constrained": 1.0}
"""Shares of the cost of the whole training half; with the least budget to serve with beside them."""


class EndToEnd(NamedTuple):
    """Quality for budgets that cover learning and serving.

    Attributes
    ----------
    budgets_usd : dict of str to float
        The budgets by name, in USD per test query; mean over seeds.
    quality : ndarray of shape (n_methods, n_budgets)
        Mean over seeds; NaN where the method cannot be had for so little.
    collected : ndarray of shape (n_methods,)
        What a method collected at the middle budget, as a share of the cost of the whole training half.
    """

    budgets_usd: dict[str, float]
    quality: FloatArray
    collected: FloatArray


def end_to_end(rows: pl.DataFrame, methods: list[str]) -> EndToEnd:
    """Return what each method reaches end to end; `rows` and `methods` are those of `standings_of`.

    Notes
    -----
    "constrained" and "generous" are the paper's: the whole training half with the least, and the most, to serve with.
    Between its points a method is worth their hull; the cost of collecting is part of each point.
    """
    grid = grid_of(rows, methods)
    figures, rates = grid.figures, grid.rates_usd
    table_usd = figures["table_usd"][0, 0] / figures["queries"][0, 0]
    budgets = {name: share * table_usd + rates[0] for name, share in SHARES.items()}
    budgets["generous"] = table_usd + rates[-1]
    allowed = np.array(list(budgets.values())) + (KEPT - 1.0) * rates[0]
    quality = [
        np.mean([hull.at(usd) for hull, usd in zip(of_seeds, allowed.T, strict=True)], axis=0)
        for of_seeds in hulls_of(grid, figures["collected_usd"])
    ]
    share = (figures["collected_usd"] / figures["table_usd"])[:, len(rates) // 2].mean(axis=-1)
    return EndToEnd({name: float(each.mean()) for name, each in budgets.items()}, np.array(quality), share)
