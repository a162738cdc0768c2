"""The picture of a simulation: quality over spend, and the share of the spend that cache misses cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wiserouter.evaluation.conversations.summary import PolicySummary
from wiserouter.evaluation.plots import label_axes, legend_right_of, line_of, new_figure, save


def plot_policies(summaries: Sequence[PolicySummary], path: str | Path, title: str) -> None:
    """Draw quality and waste of each policy over the spend; raises as `plots.plot_plan` does."""
    figure = new_figure(height=6.5)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    for i, one in enumerate(summaries):
        spend_usd = (one.budget_usd * one.spend_ratio).mean(axis=0)
        upper.plot(spend_usd, one.quality.mean(axis=0), label=one.policy, marker="o", markersize=4, **line_of(i))
        lower.plot(spend_usd, 100.0 * one.waste.mean(axis=0), marker="o", markersize=3, **line_of(i))
    upper.set_xscale("log")
    label_axes(upper, title, "", "quality")
    label_axes(lower, "Waste", "spend, USD per conversation (log scale)", "% of the spend")
    legend_right_of(upper)
    save(figure, path)
