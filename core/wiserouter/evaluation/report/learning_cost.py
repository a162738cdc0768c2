"""Sections on the cost of learning: end-to-end budgets, and the break-even point."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from wiserouter.evaluation.curves import curve, draw_curves
from wiserouter.evaluation.plots import label_axes, new_figure
from wiserouter.evaluation.report.aggregates import Aggregates
from wiserouter.evaluation.report.comparison import hulls_of
from wiserouter.evaluation.report.quality import per_query
from wiserouter.evaluation.report.section import ReportSection, figure
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

END_TO_END = """
Quality under budgets, in USD per test query, that pay for training data as well as for serving. Collected: cost of the
training data as a share of that of the whole training half. The picture shows each method at all its budgets over its
total spend; the vertical line is the cost of the whole training half, which offline methods have spent before they
serve the first query (paper, Section "Performance Under End-to-End Budget")."""
BILL = """
USD spent to learn, and the number of queries that earn it back (SA-BEP, the break-even point of SAVERouter): the saving
per query is against the least that the Zero router, which needs no training data, spends for the same quality. "never":
the Zero router is as cheap. "beyond": the Zero router does not reach that quality at any budget."""


def end_to_end_section(aggregates: Aggregates) -> ReportSection:
    """Return the section on quality by end-to-end budget."""
    spent = aggregates.spent
    head = ("method", "collected", *(f"{name}: {usd:.4g}" for name, usd in spent.budgets_usd.items()))
    each = zip(aggregates.about.methods, spent.collected.tolist(), spent.quality.tolist(), strict=True)
    rows = [[name, f"{share:.1%}", *map(figure, quality)] for name, share, quality in each]
    title = "Learning and serving"
    return ReportSection("end-to-end", title, END_TO_END, head, rows, partial(_draw_end_to_end, aggregates))


def bill(aggregates: Aggregates) -> ReportSection:
    """Return the section on the cost of learning and the queries that earn it back."""
    figures, grid = aggregates.grid.figures, aggregates.grid
    shown = [grid.rates_usd.index(rate) for rate in aggregates.about.shown_usd]
    collected = figures["collected_usd"].mean(axis=-1)
    points = break_even(aggregates)
    rows = [
        [method, f"{collected[i].mean():.4g}", *(_queries(points[i, b]) for b in shown)]
        for i, method in enumerate(grid.methods)
        if method in aggregates.about.rivals and collected[i].any()
    ]
    first, *rates = per_query(aggregates)
    return ReportSection("bill", "Dollars spent to learn", BILL, (first, "collected, USD", *rates), rows)


def break_even(aggregates: Aggregates) -> FloatArray:
    """Return the number of queries that earn back the cost of learning, of shape (n_methods, n_budgets).

    Infinite where nothing is saved, NaN where the Zero router cannot reach the quality.
    """
    grid = aggregates.grid
    zero = hulls_of(grid)[aggregates.place("zero")]
    queries = grid.figures["queries"]
    own = (grid.figures["spend_usd"] / queries).mean(axis=-1)
    price = np.stack([hull.price_usd(grid.figures["quality"][..., s]) for s, hull in enumerate(zero)], axis=-1)
    saved = price.mean(axis=-1) - own
    collected = grid.figures["collected_usd"].mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        points: FloatArray = np.where(np.isnan(saved) | (saved > 0.0), collected / saved, np.inf)
    return np.where(collected == 0.0, 0.0, points)


def _queries(point: float) -> str:
    if np.isnan(point):
        return "beyond"
    return "never" if np.isinf(point) else f"{point:,.0f}"


def _draw_end_to_end(aggregates: Aggregates) -> Figure:
    picture = new_figure(height=8.0)
    panels = picture.subplots(2, 1)
    for axes, name in zip(panels, ("generous", "constrained"), strict=True):
        _draw_panel(axes, aggregates, name)
    return picture


def _draw_panel(axes: Axes, aggregates: Aggregates, name: str) -> None:
    """Draw the methods that one end-to-end budget can pay for."""
    figures = aggregates.grid.figures
    budget_usd = aggregates.spent.budgets_usd[name] * aggregates.queries
    total = (figures["collected_usd"] + figures["spend_usd"]).mean(axis=-1)
    quality = figures["quality"].mean(axis=-1)
    rivals = [(i, method) for i, method in enumerate(aggregates.grid.methods) if method in aggregates.about.rivals]
    paid = total <= budget_usd * 1.005
    curves = (curve(method, total[i, paid[i]], quality[i, paid[i]]) for i, method in rivals)
    draw_curves(axes, curves, aggregates.own)
    axes.axvline(float(figures["table_usd"].mean()), color="black", linestyle="--", linewidth=1)
    label_axes(axes, f"{name}: {budget_usd:.4g} USD", "learning and serving, USD", "quality")
