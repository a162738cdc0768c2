"""The budgets of a bench, from the mean cost of the cheapest model to that of the most expensive one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.datasets import LoadedTable
from wiserouter.types import FloatArray
from wiserouter.validation import check_count

LAST_STEP_RATIO = 2.1
"""Ratio of the paper's last two budgets: 151.42 / 72.10 and 659.44 / 314.02 of its Table 1."""


class Budgets(NamedTuple):
    """Budgets in USD per query, in ascending order.

    Attributes
    ----------
    paper : tuple of float
        On the paper's spacing; tables show these.
    log : tuple of float
        Between the ends on a log scale; these complete the curves.
    """

    paper: tuple[float, ...]
    log: tuple[float, ...] = ()

    @property
    def all(self) -> tuple[float, ...]:
        """Both, in ascending order."""
        return tuple(sorted({*self.paper, *self.log}))


def budgets_of(cost_usd: FloatArray, n_paper: int = 6, n_log: int = 0) -> Budgets:
    """Return the budgets for a table of costs of shape (n_queries, n_models).

    The first is the mean cost of the cheapest model, the last that of the most expensive one. As in the paper's Table 1
    all but the last are evenly spaced up to the last over 2.1; if the cheapest model costs more than that, all are.
    Where all models cost the same, there is one budget.

    Examples
    --------
    >>> budgets_of(np.array([[1.0, 21.0]])).paper
    (1.0, 3.25, 5.5, 7.75, 10.0, 21.0)
    >>> budgets_of(np.array([[1.0, 16.0]]), n_paper=2, n_log=3)
    Budgets(paper=(1.0, 16.0), log=(2.0, 4.0, 8.0))
    """
    check_count("n_paper", n_paper, least=1)
    check_count("n_log", n_log)
    mean = cost_usd.mean(axis=0)
    low, high = float(mean.min()), float(mean.max())
    if not low > 0.0:
        raise InvalidInput(f"every model must cost something on average, got {low}: leave free models out", value=low)
    bend = high / LAST_STEP_RATIO
    if n_paper == 1 or low >= bend:
        paper = np.linspace(low, high, n_paper)
    else:
        paper = np.append(np.linspace(low, bend, n_paper - 1), high)
    between = np.geomspace(low, high, n_log + 2)[1:-1]
    return Budgets(_rounded(paper), _rounded(between))


def budgets_of_table(loaded: LoadedTable, n_paper: int, n_log: int) -> Budgets:
    """Return the budgets for a table; raises `InvalidInput` with the names of models that are free."""
    table = loaded.table
    free = [name for name, usd in zip(table.models, table.cost_usd.mean(axis=0), strict=True) if not usd > 0.0]
    if free:
        rule = f"every model of a bench must cost something on average, in {loaded.name} {', '.join(free)} cost nothing"
        raise InvalidInput(f"{rule}: leave free models out", value=free)
    return budgets_of(table.cost_usd, n_paper, n_log)


def _rounded(rates: FloatArray) -> tuple[float, ...]:
    """Return the different rates, rounded to 12 significant digits, so that they are the same on every machine."""
    return tuple(dict.fromkeys(float(f"{rate:.12g}") for rate in rates))
