"""The comparison of WR-Offline with the best other method at each budget."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wiserouter.evaluation.curves import OWN
from wiserouter.evaluation.plots import label_axes, log_x, new_figure
from wiserouter.evaluation.report.aggregates import OURS, Aggregates
from wiserouter.evaluation.report.comparison import judged_of, kept_of, standard_error
from wiserouter.evaluation.report.section import ReportSection, figure, with_error
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICT = f"""
`{OURS}` against the best other method at each budget, mean over seeds; lead: its quality minus the other's, ± the
standard error of the paired difference. Runs that spend more than the budget (†: some do) are judged at equal spend.
**Bold**: ahead, or behind by at most one standard error."""


class HeadToHead(NamedTuple):
    """The comparison at one budget: the row of the best other method in the arrays, and both qualities per seed."""

    rate_usd: float
    rival: int
    ours: FloatArray
    others: FloatArray

    @property
    def lead(self) -> FloatArray:
        """The lead of WR-Offline per seed."""
        return self.ours - self.others


def verdict(aggregates: Aggregates) -> ReportSection:
    """Return the section on the lead over the best other method at every budget."""
    head = ("USD per query", OURS, "spend/budget", "best other", "quality", "spend/budget", "lead")
    budgets = head_to_head(aggregates)
    rows = [_row(aggregates, at, pair) for at, pair in enumerate(budgets)]
    draw = partial(_draw, aggregates.about.table, budgets)
    return ReportSection("verdict", "Against the best other method", VERDICT, head, rows, draw)


def head_to_head(aggregates: Aggregates) -> list[HeadToHead]:
    """Return the comparison with the best other method at every budget."""
    grid, judged, ours = aggregates.grid, judged_of(aggregates.grid), aggregates.place(OURS)
    others = [i for i, name in enumerate(grid.methods) if name in aggregates.about.rivals and i != ours]
    best = [others[i] for i in judged[others].mean(axis=-1).argmax(axis=0)]
    return [
        HeadToHead(rate, rival, judged[ours, at], judged[rival, at])
        for at, (rate, rival) in enumerate(zip(grid.rates_usd, best, strict=True))
    ]


def _row(aggregates: Aggregates, at: int, pair: HeadToHead) -> list[str]:
    kept, spend = kept_of(aggregates.grid), aggregates.grid.figures["spend_ratio"].mean(axis=-1)
    ours, rival = (
        [figure(quality.mean()), f"{spend[i, at]:.4f}{'' if kept[i, at] else ' †'}"]
        for i, quality in ((aggregates.place(OURS), pair.ours), (pair.rival, pair.others))
    )
    mean, error = pair.lead.mean(), float(standard_error(pair.lead))
    lead = with_error(mean, error, "+")
    shown = f"**{lead}**" if mean >= -np.nan_to_num(error) else lead
    return [f"{pair.rate_usd:.4g}", *ours, f"`{aggregates.grid.methods[pair.rival]}`", *rival, shown]


def _draw(table: str, budgets: list[HeadToHead]) -> Figure:
    picture = new_figure(height=4.2)
    axes = picture.subplots()
    error = [np.nan_to_num(standard_error(pair.lead)) for pair in budgets]
    lead = [pair.lead.mean() for pair in budgets]
    axes.errorbar([pair.rate_usd for pair in budgets], lead, yerr=error, marker="o", color=OWN, linewidth=2)
    axes.axhline(0.0, color="black", linestyle="--", linewidth=1)
    log_x(axes)
    label_axes(axes, f"{OURS} on {table}", "budget, USD per query (log scale)", "lead over the best other")
    return picture
