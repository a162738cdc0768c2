"""Sections on all budgets together: AIQ over the Zero router, regret against the oracles, and latency."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from wiserouter.evaluation.arena.score import arena_score
from wiserouter.evaluation.curves import FIELD, OWN, curve, draw_curves
from wiserouter.evaluation.plots import label_axes, log_x, new_figure
from wiserouter.evaluation.report.aggregates import Aggregates
from wiserouter.evaluation.report.quality import ComparisonRow, by_method, per_query
from wiserouter.evaluation.report.section import ReportSection, figure, with_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AIQ = """
AIQ: mean quality of the hull between the least and the largest budget (RouterBench), and how far it lies above that of
the Zero router, below which a method has no value. Regret: quality below that of the linear program over single
queries, and below that of the plan at the true means of the contexts. Off budget: distance of the spend from the
budget. Regret and distance are means over the budgets shown; wins are counted over all budgets. Arena: the score by
which RouterArena ranks routers, at the budget where it is greatest; comparable within this table alone."""
REGRET = """
Quality per query below that of the linear program over single queries, which no choice of answers exceeds at the same
budget; runs that spend more than the budget are judged at equal spend."""
LATENCY = """
Train: prepare (embeddings and contexts, the same for all), fit (once) and tune (for each budget). Decide: one query,
learning from it included, its embedding excluded. Medians over runs, processor time of one thread. All: fit, tune and
serve of all seeds and budgets together."""


def aiq(aggregates: Aggregates) -> ReportSection:
    """Return the section with one row of figures per method."""
    head = ("method", "AIQ", "over `zero`", "best", "or within 1 s.e.", "regret", "of contexts", "off budget", "arena")
    means = aggregates.shown.select("method", "regret", "regret_contexts", "off_budget").group_by("method").mean()
    joined = aggregates.comparison.by_method.join(means, on="method", how="left", maintain_order="left")
    rows = [[*_overall(row), arena_cell(aggregates, row["method"])] for row in joined.iter_rows(named=True)]
    draw = partial(_draw_aiq, aggregates) if "zero" in aggregates.about.methods else None
    return ReportSection("aiq", "Over all budgets", AIQ, head, rows, draw)


def regret(aggregates: Aggregates) -> ReportSection:
    """Return the section on regret against the oracle by method and budget."""
    rows = by_method(aggregates, lambda row: figure(row["regret"]))
    draw = partial(_draw_regret, aggregates)
    return ReportSection("regret", "Regret against the linear program", REGRET, per_query(aggregates), rows, draw)


def latency(aggregates: Aggregates) -> ReportSection:
    """Return the section on the time of training and of one decision."""
    head = ("method", "train, s", "prepare, s", "fit, s", "tune, s", "decide, us", "99th percentile, us", "all, s")
    rows = [_times(row) for row in aggregates.comparison.by_method.iter_rows(named=True)]
    return ReportSection("latency", "Latency", LATENCY, head, rows)


def _overall(row: ComparisonRow) -> list[str]:
    return [
        row["method"],
        with_error(row["aiq"], row["aiq_se"]),
        with_error(row["aiq_over_zero"], row["aiq_over_zero_se"], "+"),
        str(row["best"]) if row["rival"] else "",
        str(row["best_or_within"]) if row["rival"] else "",
        figure(row["regret"]),
        figure(row["regret_contexts"], "+"),
        f"{row['off_budget']:.1%}",
    ]


def arena_cell(aggregates: Aggregates, method: str) -> str:
    """Return the greatest arena score of a method over the budgets, out of 100; empty where it spends nothing."""
    place, figures = aggregates.place(method), aggregates.grid.figures
    usd = (figures["spend_usd"] / figures["queries"]).mean(axis=-1)[place]
    points = zip(figures["quality"].mean(axis=-1)[place], usd, strict=True)
    scores = [arena_score(float(quality), 1_000.0 * float(spend)) for quality, spend in points if spend > 0.0]
    return f"{100.0 * max(scores):.2f}" if scores else ""


def _times(row: ComparisonRow) -> list[str]:
    train = row["prepare_s"] + row["fit_s"] + row["start_s"]
    return [
        row["method"],
        *(figure(value, digits=3) for value in (train, row["prepare_s"], row["fit_s"], row["start_s"])),
        *(figure(row[name], digits=1) for name in ("decide_us", "decide_p99_us")),
        figure(row["all_fit_s"] + row["all_start_s"] + row["all_serve_s"], digits=1),
    ]


def _draw_aiq(aggregates: Aggregates) -> Figure:
    rivals = aggregates.comparison.by_method.filter("rival").sort("aiq_over_zero")
    picture = new_figure(height=1.5 + 0.22 * rivals.height)
    axes = picture.subplots()
    error = rivals["aiq_over_zero_se"].fill_nan(0.0).to_list()
    colours = [OWN if method == aggregates.own else FIELD for method in rivals["method"]]
    axes.barh(rivals["method"].to_list(), rivals["aiq_over_zero"].to_list(), xerr=error, color=colours)
    axes.axvline(0.0, color="black", linewidth=1)
    label_axes(axes, f"AIQ over the Zero router on {aggregates.about.table}", "AIQ minus that of `zero`, ± s.e.", "")
    return picture


def _draw_regret(aggregates: Aggregates) -> Figure:
    picture = new_figure(height=5.5)
    axes = picture.subplots()
    log_x(axes)
    of = aggregates.comparison.by_budget.partition_by("method", as_dict=True)
    curves = (curve(str(name), one["rate_usd"], one["regret"]) for (name,), one in of.items())
    draw_curves(axes, curves, aggregates.own, least=True)
    title = f"Regret on {aggregates.about.table}"
    label_axes(axes, title, "budget, USD per query (log scale)", "quality below the bound")
    return picture
