"""The figures of a suite: for a group of methods, at every budget of every table, per table and over all tables.

At each budget of each table the methods of a group are judged as in `comparison`: by the quality of their runs, or,
where a run spends more than the budget, by its quality at equal spend. `behind` is the quality of the best method at
that budget minus a method's own; its mean over the budgets of a table is the method's regret on that table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wiserouter.evaluation.report.comparison import (
    BoolArray,
    behind_best,
    grid_of,
    judged_of,
    kept_of,
    standard_error,
    verdicts_of,
)
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    import polars as pl

SPENT = 0.97
"""A budget is spent if at least this share of it is."""

_TIMES = ("fit_s", "start_s", "serve_s", "decide_us", "decide_p99_us")


class SuiteGroup(NamedTuple):
    """Methods that learn from as much, and compete with each other.

    Attributes
    ----------
    name, title : str
        Its name in JSON and in links, and its heading.
    ours : str
        The method of this project that is compared with the others at every budget.
    rivals : tuple of str
        The methods that compete.
    """

    name: str
    title: str
    ours: str
    rivals: tuple[str, ...]


class SuiteFigures(NamedTuple):
    """The figures of one group.

    Attributes
    ----------
    group : SuiteGroup
        The methods.
    by_budget : polars.DataFrame
        One row per table, method and budget: means over seeds; `rank` among the rivals by `judged`; `behind` the best
        rival, with `behind_se` and `verdict`; `lead` over the best `other` rival, with `lead_se`; `below_single`, the
        quality of the best mixture of single models at the same spend minus its own.
    by_table : polars.DataFrame
        One row per table and method: `held` (budgets at which it is best or within one standard error) of `budgets`,
        mean `rank`, `regret`, `quality` and `spend_ratio`.
    by_method : polars.DataFrame
        One row per method over all tables, in the order of the mean rank; `least_spent` is the least share that it
        spends of a budget that the spender spends; `held_before`, `regret_before` and `spend_ratio_before` are the
        figures of an earlier suite.
    """

    group: SuiteGroup
    by_budget: pl.DataFrame
    by_table: pl.DataFrame
    by_method: pl.DataFrame


def suite_figures(
    rows: Mapping[str, pl.DataFrame],
    group: SuiteGroup,
    shown: Iterable[str] = (),
    *,
    spender: str | None = None,
    before: pl.DataFrame | None = None,
) -> SuiteFigures:
    """Return the figures of one group.

    Parameters
    ----------
    rows : mapping of str to polars.DataFrame
        The result of `run_bench` for every table, by its name.
    group : SuiteGroup
        The methods that compete.
    shown : iterable of str
        Further methods that are listed with them.
    spender : str, optional
        One of the methods, which shows what budgets can be spent.
    before : polars.DataFrame, optional
        `by_budget` of an earlier suite.
    """
    import polars as pl

    methods = list(dict.fromkeys([*group.rivals, *shown]))
    by_budget = pl.concat([_by_budget(name, frame, methods, group.rivals) for name, frame in rows.items()])
    by_table = _by_table(by_budget)
    times = pl.concat([frame.select("method", *_TIMES) for frame in rows.values()]).group_by("method").mean()
    by_method = _by_method(by_budget, by_table)
    further = [_least_spent(by_budget, spender), _before(before), times]
    for each in further:
        by_method = by_method.join(each, on="method", how="left", maintain_order="left")
    return SuiteFigures(group, by_budget, by_table, by_method)


def _least_spent(by_budget: pl.DataFrame, spender: str | None) -> pl.DataFrame:
    """Return the least spend of each method at the budgets that the spender spends."""
    import polars as pl

    own = by_budget.filter(pl.col("method") == (spender or ""), pl.col("spend_ratio") >= SPENT).select(
        "table", "budget"
    )
    spent = by_budget.join(own, on=["table", "budget"], how="semi")
    return spent.group_by("method").agg(pl.col("spend_ratio").min().alias("least_spent"))


def _before(by_budget: pl.DataFrame | None) -> pl.DataFrame:
    """Return the figures of an earlier suite by method."""
    import polars as pl

    names = ("held", "regret", "spend_ratio")
    if by_budget is None:
        return pl.DataFrame(schema={"method": pl.String})
    summary = _by_method(by_budget, _by_table(by_budget))
    return summary.select("method", *(pl.col(name).alias(f"{name}_before") for name in names))


def _by_table(by_budget: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return by_budget.group_by("table", "method", maintain_order=True).agg(
        pl.col("rival").first(),
        pl.col("verdict").fill_null("").ne("").sum().alias("held"),
        pl.len().alias("budgets"),
        pl.col("rank", "quality", "spend_ratio").mean(),
        pl.col("behind").mean().alias("regret"),
    )


def _by_budget(table: str, rows: pl.DataFrame, methods: list[str], rivals: Iterable[str]) -> pl.DataFrame:
    import polars as pl

    grid = grid_of(rows, methods, "single_at_spend")
    judged, rival, spent = judged_of(grid), np.isin(grid.methods, list(rivals)), grid.figures["spend_ratio"]
    behind, n = behind_best(judged, rival), len(grid.rates_usd)
    other, lead = _leads(judged, rival)
    figures = {
        "quality": grid.figures["quality"].mean(axis=-1),
        "judged": judged.mean(axis=-1),
        "rank": _ranks(judged.mean(axis=-1), rival),
        "behind": behind.mean(axis=-1),
        "behind_se": standard_error(behind),
        "lead": lead.mean(axis=-1),
        "lead_se": standard_error(lead),
        "spend_ratio": spent.mean(axis=-1),
        "spend_ratio_max": spent.max(axis=-1),
        "kept": kept_of(grid),
        "below_single": (grid.figures["single_at_spend"] - grid.figures["quality"]).mean(axis=-1),
    }
    return pl.DataFrame(
        {
            "table": [table] * (n * len(methods)),
            "method": np.repeat(grid.methods, n),
            "rival": np.repeat(rival, n),
            "budget": np.tile(np.arange(1, n + 1), len(methods)),
            "rate_usd": np.tile(grid.rates_usd, len(methods)),
            **{name: values.ravel() for name, values in figures.items()},
            "verdict": verdicts_of(behind, rival),
            "other": np.array(grid.methods)[other].ravel(),
        }
    )


def _ranks(judged: FloatArray, rival: BoolArray) -> FloatArray:
    """Return the rank of each rival at each budget, 1 for the best, ties shared; NaN for the others."""
    from scipy.stats import rankdata

    ranks = np.full(judged.shape, np.nan)
    ranks[rival] = rankdata(-judged[rival], axis=0)
    return ranks


def _leads(judged: FloatArray, rival: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return for each method and budget the best other rival, and the lead over it for each seed."""
    means = np.where(rival[:, np.newaxis], judged.mean(axis=-1), -np.inf)
    others = np.repeat(means[np.newaxis], len(means), axis=0)
    others[np.arange(len(means)), np.arange(len(means))] = -np.inf
    best = others.argmax(axis=1)
    return best, judged - judged[best, np.arange(judged.shape[1])]


def _by_method(by_budget: pl.DataFrame, by_table: pl.DataFrame) -> pl.DataFrame:
    """Return one row per method: rivals by mean rank, then the others by their order."""
    import polars as pl

    over_budgets = by_budget.group_by("method", maintain_order=True).agg(
        pl.col("spend_ratio").min().alias("spend_ratio_min"),
        pl.col("spend_ratio").max().alias("spend_ratio_max"),
        pl.col("kept").sum(),
        pl.col("below_single").max(),
    )
    over_tables = by_table.group_by("method", maintain_order=True).agg(
        pl.col("rival").first(),
        pl.col("rank").mean(),
        pl.col("held", "budgets").sum(),
        pl.col("regret").mean(),
        pl.col("regret").max().alias("regret_worst"),
        pl.col("table").sort_by("regret").last().alias("worst_table"),
        pl.col("quality", "spend_ratio").mean(),
    )
    over_tables = over_tables.with_columns((pl.col("held") / pl.col("budgets")).alias("share"))
    joined = over_tables.join(over_budgets, on="method", how="left", maintain_order="left")
    return joined.sort("rank", nulls_last=True, maintain_order=True)
