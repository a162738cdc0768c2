"""Plots of plans, of the cost and quality of methods, and of simulations (matplotlib, extra `bench`)."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wiserouter.errors import InvalidInput, MissingExtra
from wiserouter.evaluation.curves import INK, OWN, curve, draw_curves
from wiserouter.evaluation.outcome import Outcome
from wiserouter.evaluation.simulation.summary import MethodSummary
from wiserouter.planning.plan import Plan
from wiserouter.types import FloatArray
from wiserouter.validation import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GREY = "#7b8794"
_WIDTH = 4.4  # inches
_LEAST_NAMED, _NEAR_THE_END = 0.12, 0.55


def plot_plan(plan: Plan, names: Sequence[str], path: str | Path, asked_usd: float | None = None) -> None:
    """Draw the expected quality and the share of each model over the budget per request.

    Parameters
    ----------
    plan : Plan
        The plan.
    names : sequence of str
        The names of its models.
    path : str or Path
        The file.
    asked_usd : float, optional
        A budget per request that is marked, with the quality that it buys.

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
    high = max(plan.ceiling_usd, asked_usd or 0.0) * 1.05
    rates = np.maximum(np.geomspace(low, high, 300), plan.floor_usd) if low > 0 else np.zeros(1)
    upper.plot(rates, [plan.value(rate) for rate in rates], color=OWN, linewidth=2.5)
    label_axes(upper, "Expected quality by budget", "", "expected quality")
    if low > 0:
        log_x(lower)
    draw_shares(lower, rates, np.array([plan.freq @ plan.mix(rate) for rate in rates]).T, names)
    label_axes(lower, "Share of each model", "budget, USD per request (log scale)", "share of queries")
    if asked_usd is not None and asked_usd >= low:
        mark_budget(upper, lower, asked_usd, plan.value(asked_usd))
    save(figure, path)


def draw_shares(axes: Axes, rates: FloatArray, shares: FloatArray, names: Sequence[str]) -> None:
    """Draw the shares of models as bands from dark to light, each named where it is widest.

    Parameters
    ----------
    rates : ndarray of shape (n_rates,)
        The budgets per request.
    shares : ndarray of shape (n_models, n_rates)
        The share of each model at each of them.
    """
    from matplotlib import colormaps

    colours = colormaps["cividis"](np.linspace(0.05, 0.95, len(names)))
    axes.stackplot(rates, shares, colors=colours, edgecolor="white", linewidth=0.5)
    tops = np.cumsum(shares, axis=0)
    inner = slice(len(rates) // 8, max(len(rates) * 7 // 8, len(rates) // 8 + 1))
    for name, colour, share, top in zip(names, colours, shares, tops, strict=True):
        at = inner.start + int(share[inner].argmax())
        if share[at] >= _LEAST_NAMED:
            ink = "white" if colour[:3] @ (0.299, 0.587, 0.114) < 0.5 else INK
            axes.text(rates[at], top[at] - share[at] / 2, name, ha="center", va="center", color=ink)
    axes.set_ylim(0, 1)
    axes.set_xlim(float(rates[0]), float(rates[-1]) or 1.0)


def mark_budget(upper: Axes, lower: Axes, asked_usd: float, quality: float) -> None:
    """Mark a budget per request in both parts of the picture of a plan."""
    for axes in (upper, lower):
        axes.axvline(asked_usd, color=INK, linestyle="--", linewidth=1.2)
    upper.plot([asked_usd], [quality], color=OWN, marker="o", markersize=8)
    low, high = np.log(upper.get_xlim())
    before = (np.log(asked_usd) - low) / (high - low) > _NEAR_THE_END
    upper.annotate(
        f"{asked_usd:.3g} USD buys {quality:.3f}",
        (asked_usd, 0.05),
        xycoords=upper.get_xaxis_transform(),
        xytext=(-8 if before else 8, 0),
        textcoords="offset points",
        ha="right" if before else "left",
        color=INK,
    )


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
        axes.plot(curve.spend_usd * queries, curve.value, color=OWN, alpha=0.35, label="plan at any budget")
    axes.axvline(budget, color=_GREY, linestyle="--", linewidth=1, label=f"budget {budget:.4g} USD")
    for i, each in enumerate(outcomes):
        axes.scatter(each.spend_usd, each.quality, s=90 if i == 0 else 45, color=OWN if i == 0 else INK, zorder=3)
        offset = (9, -13) if i == 0 else (7, 5)
        axes.annotate(each.method, (each.spend_usd, each.quality), xytext=offset, textcoords="offset points")
    log_x(axes)
    axes.margins(x=0.25, y=0.15)
    axes.legend(loc="lower right", frameon=False)
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
    own = summaries[0].method
    draw_curves(
        upper, (curve(one.method, one.steps, one.amortized_regret) for one in summaries), own, least=True, marker=""
    )
    draw_curves(lower, (curve(one.method, one.steps, one.spend_usd) for one in summaries), own, named=0, marker="")
    horizon, budget = summaries[0].horizon, summaries[0].budget_usd
    upper.axhline(0.0, color=_GREY, linewidth=1)
    lower.axline((0.0, 0.0), (horizon, budget), color=_GREY, linestyle="--", linewidth=1)
    lower.set_xlim(0, horizon)
    lower.axhline(budget, color=_GREY, linestyle="--", linewidth=1, label=f"budget {budget:.4g} USD and its rate")
    label_axes(upper, title, "", "regret per request")
    label_axes(lower, "Cumulative cost", "requests", "spend, USD")
    lower.legend(loc="lower right", frameon=False)
    return figure


def new_figure(height: float) -> Figure:
    """Return an empty figure of this height in inches; raises `MissingExtra` if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("a plot", "matplotlib", "bench") from error
    return Figure(figsize=(_WIDTH, height), layout="constrained")


def label_axes(axes: Axes, title: str, x: str, y: str) -> None:
    """Set the title and the axis labels, and draw a light grid."""
    axes.set_title(title, loc="left", fontsize=11, color=INK, wrap=True)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)


def log_x(axes: Axes) -> None:
    """Give axes a logarithmic x axis with plain numbers at 1, 2 and 5."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=9)


def svg_of(figure: Figure) -> bytes:
    """Return a figure as SVG, byte for byte the same for the same data."""
    picture = BytesIO()
    _write(figure, picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file, byte for byte the same for the same data; raises `InvalidInput` as `plot_plan` does."""
    target, picture = Path(path), BytesIO()
    if not target.suffix:
        target = target.with_name(f"{target.name}.png")
    kind = {"metadata": {"Date": None}} if target.suffix == ".svg" else {}
    try:
        _write(figure, picture, format=target.suffix[1:], dpi=150, **kind)
    except ValueError as error:
        raise InvalidInput(
            f"the picture's name must end in .png, .svg or .pdf, got {str(path)!r}", value=path
        ) from error
    write_whole(target, picture.getvalue())


def _write(figure: Figure, target: BytesIO, **options: Any) -> None:
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "wiserouter"}):
        figure.savefig(target, **options)
