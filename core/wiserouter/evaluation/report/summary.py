"""The opening of a report: three sentences and one picture."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from wiserouter.evaluation.plots import label_axes, log_x, new_figure
from wiserouter.evaluation.report.aggregates import OURS, Aggregates
from wiserouter.evaluation.report.comparison import KEPT, kept_of
from wiserouter.evaluation.report.quality import draw_frontier
from wiserouter.evaluation.report.section import ReportSection

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def summary(aggregates: Aggregates) -> ReportSection:
    """Return the section that says how WR-Offline compares, in three sentences and a picture."""
    text = " ".join((standing(aggregates), margin(aggregates), spending(aggregates)))
    return ReportSection("summary", "In short", text, (), [], partial(_draw, aggregates))


def standing(aggregates: Aggregates) -> str:
    """Return the sentence on how often it is the best."""
    by_method = aggregates.comparison.by_method
    own = by_method.row(by_method["method"].to_list().index(OURS), named=True)
    n_budgets, n_rivals = len(aggregates.grid.rates_usd), int(by_method["rival"].sum())
    return (
        f"Of {n_rivals} methods, `{OURS}` has the highest quality, or one within a standard error of it, at "
        f"{own['best_or_within']} of {n_budgets} budgets."
    )


def margin(aggregates: Aggregates) -> str:
    """Return the sentence on its mean quality, beside the best other method and beside what is possible."""
    by_method = aggregates.comparison.by_method
    means = dict(zip(by_method["method"], by_method["aiq"], strict=True))
    others = by_method.filter(by_method["rival"] & (by_method["method"] != OURS))
    if not others.height:
        return f"Its mean quality over the budgets is {means[OURS]:.3f}."
    best = str(others.sort("aiq", descending=True)["method"][0])
    lead = means[OURS] - means[best]
    return (
        f"Its mean quality over the budgets is {means[OURS]:.3f}, {abs(lead):.3f} {'above' if lead >= 0 else 'below'} "
        f"that of the best other one, `{best}`."
    )


def spending(aggregates: Aggregates) -> str:
    """Return the sentence on what it spends of its budgets."""
    place = aggregates.place(OURS)
    spent = aggregates.grid.figures["spend_ratio"][place]
    n_kept = int(kept_of(aggregates.grid)[place].sum())
    return (
        f"It spends {spent.mean():.1%} of a budget on average and at most {spent.max():.1%}, and keeps {n_kept} of "
        f"{len(aggregates.grid.rates_usd)} in every run (at most {KEPT:.1%})."
    )


def _draw(aggregates: Aggregates) -> Figure:
    picture = new_figure(height=4.0)
    axes = picture.subplots()
    log_x(axes)
    draw_frontier(axes, aggregates, [one for one in aggregates.grid.methods if one in aggregates.about.rivals])
    label_axes(axes, f"Quality by spend on {aggregates.about.table}", "spend, USD per query (log scale)", "quality")
    return picture
