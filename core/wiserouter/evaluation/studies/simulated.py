"""The paper's simulation: cumulative cost and regret of online algorithms (Figure "Simulation experiment")."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from wiserouter.evaluation.plots import simulation_figure
from wiserouter.evaluation.report.section import ReportSection, with_error
from wiserouter.evaluation.simulation import MethodSummary, Study, simulate, summarise

METHODS = ("epsilon-first-484", "epsilon-first-known-484", "optimistic", "random", "epsilon-greedy", "linucb", "oracle")
TEXT = """
{horizon:,} requests, 11 contexts, 11 models, a budget midway between always the cheapest and always the most expensive
model, mean costs are paid (paper, Appendix "Simulation Experiment"; here the means are drawn again for each seed).
Reward ratio: relative to the linear program at the true means. `epsilon-first` explores 4 requests per context and
model."""


def simulated(seeds: Iterable[int] = range(5), horizon: int = 1_500, *, jobs: int = 1) -> ReportSection:
    """Return the section on the simulation of the paper."""
    scores = simulate(Study("paper", METHODS, accounting="paper"), [horizon], seeds, jobs=jobs)
    summaries = summarise(scores)
    head = ("method", "reward ratio", "regret", "spend ratio", "most", "amortised regret")
    title = "Simulation: cumulative cost and amortised regret"
    draw = partial(simulation_figure, summaries, "Amortised regret")
    return ReportSection("simulation", title, TEXT.format(horizon=horizon), head, list(map(_row, summaries)), draw)


def _row(summary: MethodSummary) -> list[str]:
    error = summary.standard_error("reward_ratio")
    return [
        summary.method,
        with_error(summary.mean("reward_ratio"), float("nan") if error is None else error),
        f"{summary.mean('regret'):.1f}",
        f"{summary.mean('spend_ratio'):.4f}",
        f"{summary.of('spend_ratio').max():.4f}",
        f"{summary.amortized_regret[-1]:.4f}",
    ]
