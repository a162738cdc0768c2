"""Make the pictures of the README and of docs/concepts.md. Run as `uv run poe pictures`.

The badges; three commands as a recording of the terminal; the envelope of one context; the plan of a made-up workload;
the account of one call; and, from the rows of a bench, quality by spend: `uv run poe pictures bench/NAME.parquet`.
"""

import sys
import tempfile
from contextlib import chdir
from pathlib import Path

import numpy as np
import polars as pl

from support.badges import badges
from support.recording import animated, screen
from wiserouter import Plan, RoutingLog, WiseRouter
from wiserouter.evaluation.curves import FIELD, INK, NAMED, OWN
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter.evaluation.plots import label_axes, new_figure, plot_plan, save
from wiserouter.evaluation.report import aggregate, make_section, read_results

DOCS = Path(__file__).parents[2] / "docs"


def recording() -> str:
    """Return three commands of a newcomer as an SVG that moves: the demo, a fit, and what budgets would buy."""
    table = make_table(600, np.random.default_rng(0))
    columns = {"prompt": table.prompts}
    for k, name in enumerate(table.models):
        columns |= {f"score|{name}": table.reward[:, k], f"cost|{name}": table.cost_usd[:, k]}
    commands = (
        "uv run wiserouter demo",
        "uv run wiserouter fit calls.parquet -o support.wise",
        "uv run wiserouter plan support.wise --requests 10000 --budget 10",
    )
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        pl.DataFrame(columns).write_parquet("calls.parquet")
        return animated([screen(f"s{n}", command) for n, command in enumerate(commands)], "wiserouter")


def draw_envelope(path: Path) -> None:
    """Draw the models of one context by mean cost and reward, with the envelope of the best mixes."""
    cost, reward = np.array([0.2, 0.7, 1.4, 2.6, 3.4]), np.array([0.35, 0.62, 0.58, 0.86, 0.80])
    names = ("nano", "mini", "code", "large", "max")
    plan = Plan(freq=[1.0], reward=[reward], cost_usd=[cost])
    rates = np.linspace(cost.min(), 3.8, 200)
    figure = new_figure(height=3.4)
    axes = figure.subplots()
    axes.plot(rates, [plan.value(rate) for rate in rates], color=OWN, linewidth=2.5)
    for name, x, y in zip(names, cost, reward, strict=True):
        chosen = y >= plan.value(x) - 1e-9
        axes.plot([x], [y], "o", color=OWN if chosen else FIELD, markersize=8)
        axes.annotate(name, (x, y), xytext=(6, -14), textcoords="offset points", color=INK if chosen else NAMED)
    axes.set_xlim(0, 4.4)
    axes.set_ylim(0.28, 0.95)
    axes.annotate(
        "best mix at each price", (1.6, plan.value(1.6)), xytext=(-90, 22), textcoords="offset points", color=OWN
    )
    label_axes(axes, "One context: models and their envelope", "mean cost, USD per 1,000 queries", "mean reward")
    save(figure, path)


def draw_plan(path: Path) -> None:
    """Draw the plan of a router fitted on a made-up workload, with a budget that is asked for."""
    table = make_table(600, np.random.default_rng(0))
    log = RoutingLog.from_arrays(
        prompts=table.prompts, reward=table.reward, cost_usd=table.cost_usd, models=table.models
    )
    router = WiseRouter.fit(log, n_contexts=6)
    plot_plan(router.plan, router.pool.names, path, asked_usd=0.001)


def draw_reservation(path: Path) -> None:
    """Draw spent, reserved and left before a call, while it is in flight and after its settlement."""
    figure = new_figure(height=2.6)
    axes = figure.subplots()
    states = {"before": (6.0, 0.0), "in flight": (6.0, 1.5), "settled": (6.4, 0.0)}
    parts = {"spent": OWN, "reserved": "#e9a23b", "left": FIELD}
    for row, (spent, reserved) in enumerate(states.values()):
        begin = 0.0
        for (name, colour), width in zip(parts.items(), (spent, reserved, 10.0 - spent - reserved), strict=True):
            axes.barh([row], [width], left=begin, color=colour, edgecolor="white")
            if width:
                ink = "white" if colour == OWN else INK
                axes.text(begin + width / 2, row, f"{name}\n{width:g}", ha="center", va="center", color=ink, fontsize=9)
            begin += width
    axes.set_yticks(range(len(states)), list(states))
    axes.invert_yaxis()
    label_axes(axes, "A hard budget of 10 USD: the account of one call", "USD", "")
    save(figure, path)


if __name__ == "__main__":
    draw_envelope(DOCS / "envelope.svg")
    draw_plan(DOCS / "plan.svg")
    draw_reservation(DOCS / "reservation.svg")
    for name in sys.argv[1:]:
        save(make_section("summary", aggregate(read_results(name))).draw(), DOCS / "quality.svg")
    (DOCS / "badges.svg").write_text(badges(), encoding="utf-8")
    (DOCS / "demo.svg").write_text(recording(), encoding="utf-8")
