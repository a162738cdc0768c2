"""The comparison of methods, per budget and over all budgets.

A run that keeps its budget is judged by its quality, one that does not by its quality at equal spend: that of its own
cost-quality hull at the budget. So a method gains nothing from budgets that it keeps on average only. Verdicts compare
the mean over seeds with that of the best method at that budget; the standard error is that of the paired difference
over seeds. Oracles, and methods that see the truth, do not compete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.evaluation.report.bootstrap import interval, replicate_means
from wiserouter.evaluation.report.cost_quality_hull import Hull
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    import polars as pl

KEPT = 1.005
"""A run keeps its budget if it spends at most this many times as much."""

BoolArray = NDArray[np.bool_]

_FIGURES = (
    "quality",
    "capped_quality",
    "spend_ratio",
    "served",
    "calls_per_query",
    "collected_usd",
    "spend_usd",
    "bound",
    "table_usd",
)


class MethodComparison(NamedTuple):
    """The methods per budget and over all budgets, as two tables.

    Attributes
    ----------
    by_budget : polars.DataFrame
        One row per method and budget: means over seeds, `quality_se`, the 95 % bootstrap interval `quality_low` and
        `quality_high`, `spend_ratio_max`, `equal_spend` (quality at equal spend), `judged` (the quality that verdicts
        and regrets use), `behind` (the best rival's minus its own) with `behind_se`, `verdict`, and regrets against
        both oracles.
    by_method : polars.DataFrame
        One row per method: `aiq` with `aiq_se` and `aiq_over_zero`, the number of budgets at which it is the best or
        within one standard error, latencies, and `all_fit_s`, `all_start_s` and `all_serve_s`: the processor time of
        all its runs together.
    """

    by_budget: pl.DataFrame
    by_method: pl.DataFrame


class Grid(NamedTuple):
    """Rows as arrays of shape (n_methods, n_budgets, n_seeds)."""

    methods: list[str]
    rates_usd: list[float]
    seeds: list[int]
    figures: dict[str, FloatArray]
    rewards: list[FloatArray]
    """The rewards of every query, of shape (n_queries, n_methods * n_budgets) for each seed."""


def compare_methods(rows: pl.DataFrame, methods: Iterable[str], rivals: Iterable[str]) -> MethodComparison:
    """Return the comparison of the methods.

    Parameters
    ----------
    rows : polars.DataFrame
        The result of `run_bench`: every method on every seed and budget.
    methods : iterable of str
        In the order of the tables.
    rivals : iterable of str
        The methods that compete for the best.
    """
    grid = grid_of(rows, list(methods))
    equal = _at_equal_spend(grid)
    judged = judged_of(grid, equal)
    rival = np.isin(grid.methods, list(rivals))
    behind = behind_best(judged, rival)
    return MethodComparison(_by_budget(grid, equal, judged, behind, rival), _by_method(rows, grid, behind, rival))


def grid_of(rows: pl.DataFrame, methods: list[str], *further: str) -> Grid:
    """Return the rows as arrays, with further columns; there must be one row for each method, budget and seed."""
    rates, seeds = sorted(set(rows["rate_usd"])), sorted(set(rows["seed"]))
    place = {name: i for i, name in enumerate(methods)}
    shape = len(methods), len(rates), len(seeds)
    ordered = rows.filter(rows["method"].is_in(methods))
    ordered = ordered.with_columns(place=ordered["method"].replace_strict(place)).sort("place", "rate_usd", "seed")
    figures = {name: ordered[name].to_numpy().reshape(shape) for name in (*_FIGURES, "queries", *further)}
    rewards = [np.stack([np.asarray(one) for one in ordered.filter(seed=seed)["reward"]], axis=1) for seed in seeds]
    return Grid(methods, rates, seeds, figures, rewards)


def judged_of(grid: Grid, equal: FloatArray | None = None) -> FloatArray:
    """Return the quality that verdicts use, at equal spend for runs that do not keep the budget.

    Of shape (n_methods, n_budgets, n_seeds).
    """
    equal = _at_equal_spend(grid) if equal is None else equal
    judged: FloatArray = np.where(grid.figures["spend_ratio"] <= KEPT, grid.figures["quality"], equal)
    return judged


def kept_of(grid: Grid) -> BoolArray:
    """Return True for each method and budget that is kept on every seed."""
    return np.asarray((grid.figures["spend_ratio"] <= KEPT).all(axis=-1))


def hulls_of(grid: Grid, extra_usd: FloatArray | None = None) -> list[list[Hull]]:
    """Return the hull of each method on each seed, in USD per query; `extra_usd` is spent in addition to the calls."""
    spend = grid.figures["spend_usd"] + (0.0 if extra_usd is None else extra_usd)
    per_query, quality = spend / grid.figures["queries"], grid.figures["quality"]
    n_methods, _, n_seeds = quality.shape
    return [
        [Hull(per_query[m, :, s], quality[m, :, s], from_nothing=extra_usd is None) for s in range(n_seeds)]
        for m in range(n_methods)
    ]


def _at_equal_spend(grid: Grid) -> FloatArray:
    """Return the quality of each method's own hull at each budget, of shape (n_methods, n_budgets, n_seeds)."""
    values = [[hull.at(grid.rates_usd) for hull in of_seeds] for of_seeds in hulls_of(grid)]
    return np.array(values).transpose(0, 2, 1)


def behind_best(judged: FloatArray, rival: BoolArray) -> FloatArray:
    """Return the quality of the best rival at each budget minus each method's own, per seed."""
    means = np.where(rival[:, np.newaxis], judged.mean(axis=-1), -np.inf)
    best = means.argmax(axis=0)
    winner = judged[best, np.arange(judged.shape[1])]
    difference: FloatArray = winner[np.newaxis] - judged
    return difference


def standard_error(values: FloatArray) -> FloatArray:
    """Return the standard error of the mean over the last axis; NaN with one seed."""
    n = values.shape[-1]
    if n == 1:
        return np.full(values.shape[:-1], np.nan)
    error: FloatArray = values.std(axis=-1, ddof=1) / np.sqrt(n)
    return error


def verdicts_of(behind: FloatArray, rival: BoolArray) -> list[str]:
    """Return "best", "within 1 s.e." or "" for each method and budget, method by method; "" for all but rivals."""
    mean, error = behind.mean(axis=-1), np.nan_to_num(standard_error(behind))
    words = np.where(mean <= 0.0, "best", np.where(mean <= error, "within 1 s.e.", ""))
    return list(np.where(rival[:, np.newaxis], words, "").ravel())


def _by_budget(grid: Grid, equal: FloatArray, judged: FloatArray, behind: FloatArray, rival: BoolArray) -> pl.DataFrame:
    import polars as pl

    low, high = interval(replicate_means(grid.rewards, np.random.default_rng(0)))
    figures = grid.figures
    columns = {
        "method": np.repeat(grid.methods, len(grid.rates_usd)),
        "rate_usd": np.tile(grid.rates_usd, len(grid.methods)),
        **{name: figures[name].mean(axis=-1).ravel() for name in _FIGURES},
        "quality_se": standard_error(figures["quality"]).ravel(),
        "quality_low": low,
        "quality_high": high,
        "spend_ratio_max": figures["spend_ratio"].max(axis=-1).ravel(),
        "off_budget": np.abs(figures["spend_ratio"] - 1.0).mean(axis=-1).ravel(),
        "kept": kept_of(grid).ravel(),
        "equal_spend": equal.mean(axis=-1).ravel(),
        "judged": judged.mean(axis=-1).ravel(),
        "behind": behind.mean(axis=-1).ravel(),
        "behind_se": standard_error(behind).ravel(),
        "verdict": verdicts_of(behind, rival),
        "regret": (figures["bound"] - judged).mean(axis=-1).ravel(),
        "regret_contexts": _regret_of_contexts(grid, judged).ravel(),
    }
    return pl.DataFrame(columns)


def _regret_of_contexts(grid: Grid, judged: FloatArray) -> FloatArray:
    """Return the regret of each method against `oracle-contexts`; NaN if that was not run."""
    quality = judged.mean(axis=-1)
    if "oracle-contexts" not in grid.methods:
        return np.full(quality.shape, np.nan)
    regret: FloatArray = quality[grid.methods.index("oracle-contexts")] - quality
    return regret


def _by_method(rows: pl.DataFrame, grid: Grid, behind: FloatArray, rival: BoolArray) -> pl.DataFrame:
    import polars as pl

    low, high = grid.rates_usd[0], grid.rates_usd[-1]
    aiq = np.array([[hull.mean(low, high) for hull in of_seeds] for of_seeds in hulls_of(grid)])
    zero = aiq[grid.methods.index("zero")] if "zero" in grid.methods else np.full(aiq.shape[1], np.nan)
    verdicts = np.array(verdicts_of(behind, rival)).reshape(behind.shape[:2])
    by_method = pl.DataFrame(
        {
            "method": grid.methods,
            "aiq": aiq.mean(axis=1),
            "aiq_se": standard_error(aiq),
            "aiq_over_zero": (aiq - zero).mean(axis=1),
            "aiq_over_zero_se": standard_error(aiq - zero),
            "best": (verdicts == "best").sum(axis=1),
            "best_or_within": (verdicts != "").sum(axis=1),
            "rival": rival,
        }
    )
    times = rows.group_by("method").agg(
        pl.col("prepare_s", "fit_s", "start_s").median(), pl.col("decide_us", "decide_p99_us").median()
    )
    for own in (times, _seconds(rows)):
        by_method = by_method.join(own, on="method", how="left", maintain_order="left")
    return by_method


def _seconds(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the processor time of all runs of each method; it is fitted once for all budgets of a seed."""
    import polars as pl

    of_seeds = rows.group_by("method", "seed").agg(
        pl.col("fit_s").first(), pl.col("start_s").sum(), pl.col("serve_s").sum()
    )
    columns = [pl.col(name).sum().alias(f"all_{name}") for name in ("fit_s", "start_s", "serve_s")]
    return of_seeds.group_by("method").agg(columns)
