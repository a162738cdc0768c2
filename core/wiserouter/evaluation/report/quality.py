"""Sections on quality by budget: the paper's Table 1, quality at equal spend, and bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from wiserouter.evaluation.curves import curve, draw_curves
from wiserouter.evaluation.plots import label_axes, log_x, new_figure
from wiserouter.evaluation.report.aggregates import Aggregates
from wiserouter.evaluation.report.section import ReportSection, figure, with_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ComparisonRow = Mapping[str, Any]

QUALITY = """
Mean score over all test queries (one not served counts 0), ± the standard error over seeds. **Bold**: best, or within
one standard error of the best. †: some runs spend more than the budget and are judged by their quality at equal spend.
Budgets are for all test queries (paper, Table 1)."""
FRONTIER = """
The quality of each method's own cost-quality hull at the budget. The picture shows spend and quality of each method,
mean over seeds; `oracle` is an upper bound on all."""
INTERVALS = """
95 % bootstrap intervals over seeds and queries."""


def table1(aggregates: Aggregates) -> ReportSection:
    """Return the section on quality by method and budget."""
    head = tuple(f"B={rate * aggregates.queries:.4g}" for rate in aggregates.about.shown_usd)
    return ReportSection("table1", "Quality", QUALITY, ("USD", *head), by_method(aggregates, _quality))


def frontier(aggregates: Aggregates) -> ReportSection:
    """Return the section on quality at equal spend, with the cost-quality picture."""
    rows = by_method(aggregates, lambda row: figure(row["equal_spend"]))
    draw = partial(_draw_frontier, aggregates)
    return ReportSection("frontier", "Quality at equal spend", FRONTIER, per_query(aggregates), rows, draw)


def intervals(aggregates: Aggregates) -> ReportSection:
    """Return the section on the intervals of quality."""
    rows = by_method(aggregates, lambda row: f"{row['quality_low']:.3f} to {row['quality_high']:.3f}")
    return ReportSection("intervals", "Intervals of quality", INTERVALS, per_query(aggregates), rows)


def per_query(aggregates: Aggregates) -> tuple[str, ...]:
    """Return the column headings of a table of methods by budgets."""
    return ("USD per query", *(f"{rate:.4g}" for rate in aggregates.about.shown_usd))


def by_method(aggregates: Aggregates, cell: Callable[[ComparisonRow], str]) -> list[list[str]]:
    """Return one row per method and one cell per budget shown."""
    rows: dict[str, list[str]] = {}
    for row in aggregates.shown.iter_rows(named=True):
        rows.setdefault(row["method"], [row["method"]]).append(cell(row))
    return list(rows.values())


def _quality(row: ComparisonRow) -> str:
    text = with_error(row["quality"], row["quality_se"])
    return (f"**{text}**" if row["verdict"] else text) + ("" if row["kept"] else " †")


def _draw_frontier(aggregates: Aggregates) -> Figure:
    picture = new_figure(height=5.0)
    axes = picture.subplots()
    log_x(axes)
    draw_frontier(axes, aggregates, aggregates.grid.methods)
    label_axes(axes, f"Cost and quality on {aggregates.about.table}", "spend, USD per query (log scale)", "quality")
    return picture


def draw_frontier(axes: Axes, aggregates: Aggregates, methods: Sequence[str]) -> None:
    """Draw the quality of methods over their spend, mean over seeds."""
    figures = aggregates.grid.figures
    spend = (figures["spend_usd"] / figures["queries"]).mean(axis=-1)
    quality = figures["quality"].mean(axis=-1)
    places = [aggregates.place(method) for method in methods]
    draw_curves(axes, (curve(aggregates.grid.methods[i], spend[i], quality[i]) for i in places), aggregates.own)
