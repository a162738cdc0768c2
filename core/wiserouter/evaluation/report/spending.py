"""Sections on spending: the share of the budget that is left, and the adaptive against the static plan."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from wiserouter.evaluation.curves import FIELD, NAMED, OWN
from wiserouter.evaluation.plots import label_axes, new_figure
from wiserouter.evaluation.report.aggregates import Aggregates
from wiserouter.evaluation.report.quality import per_query
from wiserouter.evaluation.report.section import ReportSection
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ADAPTIVE, STATIC = "wr-offline", "static-lp"

UTILISATION = """
Share of the budget that is left, ± its standard deviation over seeds, and the least of any seed: near 0 is full use,
below 0 is overspent (paper, Figure "Remaining budget ratios")."""
AGAINST_STATIC = f"""
The linear program solved once (`{STATIC}`, plain means) against the one solved again for the remaining budget
(`{ADAPTIVE}`, shrunk means): spend over budget, mean over seeds and the largest; and the quality of the static plan
minus that of the adaptive one (paper, Section "Adaptive LP vs. Static LP")."""


def utilisation(aggregates: Aggregates) -> ReportSection:
    """Return the section on the remaining share of each budget."""
    left = remaining(aggregates)
    shown = [aggregates.grid.rates_usd.index(rate) for rate in aggregates.about.shown_usd]
    rows = [[method, *(_remaining(left[i, b]) for b in shown)] for i, method in enumerate(aggregates.grid.methods)]
    draw = partial(_draw_utilisation, aggregates, shown)
    return ReportSection("utilisation", "Budget left", UTILISATION, per_query(aggregates), rows, draw)


def remaining(aggregates: Aggregates) -> FloatArray:
    """Return the share of the budget that is left, of shape (n_methods, n_budgets, n_seeds)."""
    left: FloatArray = 1.0 - aggregates.grid.figures["spend_ratio"]
    return left


def adaptive(aggregates: Aggregates) -> ReportSection:
    """Return the section on spend and quality of the static plan against the adaptive one."""
    static, adapted, gap = _against_static(aggregates)
    head = ("USD per query", f"{STATIC}: spend", "most", f"{ADAPTIVE}: spend", "most", "quality gap", "s.d.")
    rows = [
        [f"{rate:.4g}", *_mean_and_most(static[b]), *_mean_and_most(adapted[b]), f"{gap[b].mean():+.4f}", _sd(gap[b])]
        for b, rate in enumerate(aggregates.grid.rates_usd)
    ]
    title = "Adaptive against static plan"
    return ReportSection("adaptive", title, AGAINST_STATIC, head, rows, partial(_draw_adaptive, aggregates))


def _against_static(aggregates: Aggregates) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return spend over budget of both plans, and the gap in quality, each of shape (n_budgets, n_seeds)."""
    figures, static, adapted = aggregates.grid.figures, aggregates.place(STATIC), aggregates.place(ADAPTIVE)
    gap: FloatArray = figures["quality"][static] - figures["quality"][adapted]
    return figures["spend_ratio"][static], figures["spend_ratio"][adapted], gap


def _draw_utilisation(aggregates: Aggregates, shown: list[int]) -> Figure:
    picture = new_figure(height=5.5)
    axes = picture.subplots()
    left = remaining(aggregates)[:, shown]
    place = np.arange(len(shown), dtype=np.float64)
    n = len(aggregates.grid.methods)
    other = next((i for i, method in enumerate(aggregates.grid.methods) if method != aggregates.own), None)
    for i, method in enumerate(aggregates.grid.methods):
        shift = 0.7 * (i / max(n - 1, 1) - 0.5)
        mine = method == aggregates.own
        axes.errorbar(
            place + shift, left[i].mean(axis=-1), left[i].std(axis=-1), linestyle="none", marker="o",
            color=OWN if mine else FIELD, markersize=6 if mine else 3, zorder=3 if mine else 2,
            label=method if mine else "each other method" if i == other else None,
        )  # fmt: skip
    axes.axhline(0.0, color="black", linewidth=1)
    axes.set_xticks(place, [f"{rate:.3g}" for rate in aggregates.about.shown_usd])
    lowest = float(left.mean(axis=-1).min())
    axes.set_ylim(max(-0.5, lowest - 0.05), 1.02)
    below = " (below -0.5: not drawn)" if lowest < -0.5 else ""
    label_axes(axes, f"Budget left on {aggregates.about.table}{below}", "budget, USD per query", "share left")
    axes.legend(frameon=False, loc="upper right")
    return picture


def _draw_adaptive(aggregates: Aggregates) -> Figure:
    picture = new_figure(height=4.2)
    axes = picture.subplots()
    static, adapted, gap = _against_static(aggregates)
    axes.errorbar(
        static.mean(axis=-1), gap.mean(axis=-1), xerr=static.std(axis=-1), yerr=gap.std(axis=-1), label=STATIC,
        linestyle="none", color=NAMED, marker="o",
    )  # fmt: skip
    axes.errorbar(
        adapted.mean(axis=-1), np.zeros(len(adapted)), xerr=adapted.std(axis=-1), label=ADAPTIVE,
        linestyle="none", color=OWN, marker="s",
    )  # fmt: skip
    axes.axvline(1.0, color="black", linestyle="--", linewidth=1)
    label_axes(axes, "One point per budget", "spend over budget", f"quality minus that of {ADAPTIVE}")
    axes.legend(frameon=False)
    return picture


def _remaining(of_seeds: FloatArray) -> str:
    return f"{of_seeds.mean():+.3f} ± {of_seeds.std():.3f} ({of_seeds.min():+.3f})"


def _mean_and_most(of_seeds: FloatArray) -> tuple[str, str]:
    return f"{of_seeds.mean():.4f}", f"{of_seeds.max():.4f}"


def _sd(of_seeds: FloatArray) -> str:
    return f"{of_seeds.std():.4f}"
