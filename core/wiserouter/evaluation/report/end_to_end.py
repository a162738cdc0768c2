"""Quality under budgets that also pay for training data (paper, Section "Performance Under End-to-End Budget").

Offline methods need every model's answer to the training half before they serve; methods that learn from single calls
need a fraction of that, and keep the rest for serving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wiserouter.evaluation.report.comparison import KEPT, grid_of, hulls_of
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    import polars as pl

SHARES = {"a tenth": 0.1, "a quarter": 0.25, "constrained": 1.0}
"""Shares of the cost of the whole training half, to which the least serving budget is added."""


class EndToEnd(NamedTuple):
    """Quality under budgets that cover learning and serving.

    Attributes
    ----------
    budgets_usd : dict of str to float
        The budgets by name, in USD per test query; mean over seeds.
    quality : ndarray of shape (n_methods, n_budgets)
        Mean over seeds; NaN where the budget is too small for the method.
    collected : ndarray of shape (n_methods,)
        Cost of the training data used at the middle budget, as a share of the cost of the whole training half.
    """

    budgets_usd: dict[str, float]
    quality: FloatArray
    collected: FloatArray


def end_to_end(rows: pl.DataFrame, methods: list[str]) -> EndToEnd:
    """Return the end-to-end quality of each method; `rows` and `methods` are those of `compare_methods`.

    Notes
    -----
    "constrained" and "generous" are the paper's: the whole training half with the least, and the largest, serving
    budget. Between its points a method is valued by their hull; each point includes the cost of collecting.
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
