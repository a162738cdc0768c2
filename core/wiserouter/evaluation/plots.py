"""Plots of plans, of the cost and quality of methods, and of simulations (matplotlib, extra `bench`)."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wiserouter.errors import InvalidInput, MissingExtra
from wiserouter.evaluation.outcome import Outcome
from wiserouter.evaluation.simulation.summary import MethodSummary
from wiserouter.planning.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _ACCENT, _GREY = "#1f2933", "#0b7285", "#9aa5b1"
_LINES = ("-", "--", ":", "-.")


def plot_plan(plan: Plan, names: Sequence[str], path: str | Path) -> None:
    """Draw the expected quality and the share of each model over the budget per request.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    InvalidInput
        If matplotlib cannot write a file with this suffix.
    """
    figure = new_figure(height=6.0)
    upper, lower = figure.subplots(2, 1, sharex=True)
    low = max(plan.floor_usd, plan.ceiling_usd * 1e-4)  # a free model has no place on a log scale
    rates = np.maximum(np.geomspace(low, plan.ceiling_usd * 1.05, 300), plan.floor_usd) if low > 0 else np.zeros(1)
    upper.plot(rates, [plan.value(rate) for rate in rates], color=_ACCENT, linewidth=2)
    label_axes(upper, "Expected quality by budget", "", "expected quality")
    shares = np.array([plan.freq @ plan.mix(rate) for rate in rates]).T
    lower.stackplot(rates, shares, labels=names, alpha=0.85)
    label_axes(lower, "Share of each model", "budget, USD per request (log scale)", "share of queries")
    if low > 0:
        lower.set_xscale("log")
    lower.set_ylim(0, 1)
    legend_right_of(lower)
    save(figure, path)


def plot_outcomes(outcomes: Sequence[Outcome], path: str | Path, title: str, frontier: Plan | None = None) -> None:
    """Draw each method's quality over its spend, with the budget as a line; raises as `plot_plan` does.

    Parameters
    ----------
    outcomes : sequence of Outcome
        The first is the router's and is highlighted.
    frontier : Plan, optional
        The fitted plan, drawn as a curve over all budgets.
    """
    figure = new_figure(height=4.2)
    axes = figure.subplots()
    queries, budget = outcomes[0].queries, outcomes[0].budget_usd
    if frontier is not None:
        curve = frontier.curve()
        axes.plot(curve.spend_usd * queries, curve.value, color=_ACCENT, alpha=0.35, label="plan at any budget")
    axes.axvline(budget, color=_GREY, linestyle="--", linewidth=1, label=f"budget {budget:.4g} USD")
    for i, each in enumerate(outcomes):
        axes.scatter(each.spend_usd, each.quality, s=90 if i == 0 else 45, color=_ACCENT if i == 0 else _INK, zorder=3)
        offset = (9, -13) if i == 0 else (7, 5)
        axes.annotate(
            each.method, (each.spend_usd, each.quality), xytext=offset, textcoords="offset points", fontsize=9
        )
    axes.set_xscale("log")
    axes.margins(x=0.25, y=0.15)
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    label_axes(axes, title, "spend, USD (log scale)", "quality")
    save(figure, path)


def plot_simulation(summaries: Sequence[MethodSummary], path: str | Path, title: str) -> None:
    """Draw each method's regret per request and its spend, over the requests so far; raises as `plot_plan` does.

    Parameters
    ----------
    summaries : sequence of MethodSummary
        One per method, all of one horizon.
    """
    save(simulation_figure(summaries, title), path)


def simulation_figure(summaries: Sequence[MethodSummary], title: str) -> Figure:
    """Return the figure that `plot_simulation` saves."""
    figure = new_figure(height=7.0)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for i, each in enumerate(summaries):
        upper.plot(each.steps, each.amortized_regret, label=each.method, **line_of(i))
        lower.plot(each.steps, each.spend_usd, **line_of(i))
    horizon, budget = summaries[0].horizon, summaries[0].budget_usd
    upper.axhline(0.0, color=_GREY, linewidth=1)
    lower.axline((0.0, 0.0), (horizon, budget), color=_GREY, linestyle="--", linewidth=1)
    lower.set_xlim(0, horizon)
    lower.axhline(budget, color=_GREY, linestyle="--", linewidth=1, label=f"budget {budget:.4g} USD and its rate")
    label_axes(upper, title, "", "regret per request")
    label_axes(lower, "Cumulative cost", "requests", "spend, USD")
    legend_right_of(upper)
    lower.legend(loc="lower right", frameon=False, fontsize=8)
    return figure


def new_figure(height: float, width: float = 7.5) -> Figure:
    """Return an empty figure of this size in inches; raises `MissingExtra` if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("a plot", "matplotlib", "bench") from error
    return Figure(figsize=(width, height), layout="constrained")


def label_axes(axes: Axes, title: str, x: str, y: str) -> None:
    """Set the title and the axis labels, and draw a light grid."""
    axes.set_title(title, loc="left", fontsize=11, color=_INK)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)


def legend_right_of(axes: Axes) -> None:
    """Put the legend to the right of the axes."""
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8)


def line_of(i: int) -> dict[str, Any]:
    """Return the style of the i-th line; forty styles are distinct."""
    return {"color": f"C{i % 10}", "linestyle": _LINES[i // 10 % len(_LINES)], "linewidth": 1.5}


def svg_of(figure: Figure) -> bytes:
    """Return a figure as SVG, byte for byte the same for the same data."""
    picture = BytesIO()
    _write(figure, picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file, byte for byte the same for the same data; raises `InvalidInput` as `plot_plan` does."""
    kind = {"metadata": {"Date": None}} if str(path).endswith(".svg") else {}
    try:
        _write(figure, path, dpi=150, **kind)
    except ValueError as error:
        raise InvalidInput(
            f"the picture's name must end in .png, .svg or .pdf, got {str(path)!r}", value=path
        ) from error


def _write(figure: Figure, target: str | Path | BytesIO, **options: Any) -> None:
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "wiserouter"}):
        figure.savefig(target, **options)
