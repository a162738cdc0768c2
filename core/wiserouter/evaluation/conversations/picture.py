"""The picture of a simulation: quality over spend, and the share of the spend that cache misses cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wiserouter.evaluation.conversations.summary import PolicySummary
from wiserouter.evaluation.curves import curve, draw_curves
from wiserouter.evaluation.plots import label_axes, log_x, new_figure, save

OURS = "conversation"
"""The policy in colour, where it was simulated."""


def plot_policies(summaries: Sequence[PolicySummary], path: str | Path, title: str) -> None:
    """Draw quality and waste of each policy over the spend; raises as `plots.plot_plan` does."""
    figure = new_figure(height=6.5)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    log_x(upper)
    spend = [(one.budget_usd * one.spend_ratio).mean(axis=0) for one in summaries]
    names = [one.policy for one in summaries]
    own = OURS if OURS in names else names[0]
    both = list(zip(summaries, spend, strict=True))
    draw_curves(upper, (curve(one.policy, usd, one.quality.mean(axis=0)) for one, usd in both), own)
    wasted = (curve(one.policy, usd, 100.0 * one.waste.mean(axis=0)) for one, usd in both)
    draw_curves(lower, wasted, own, named=0)
    label_axes(upper, title, "", "quality")
    label_axes(lower, "Waste", "spend, USD per conversation (log scale)", "% of the spend")
    save(figure, path)
