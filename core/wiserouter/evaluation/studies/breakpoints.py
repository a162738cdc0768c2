r"""Regret where the budget lies on a breakpoint of the value curve, for a plan solved at each request and less often.

At such a budget a rate just below and one just above mix different contexts, so that a plan at the rate b / tau changes
between two bases. The means are known and calls cost their mean, so that all regret is that of the allocation. Regret
is counted from the best plan in hindsight (the linear program at the contexts that did arrive), and from the linear
program at their frequencies, whose value no policy reaches: the two benchmarks themselves differ by order sqrt(T).

The rules:

- *each request*: the plan at the rate b / tau, as the router has it.
- *rarely, with thresholds*: solved when :math:`T^{(5/6)^u}` requests are left (u = 0, 1, ...), where a share of the mix
  within :math:`n^{-1/4}` of 0 or 1 with n requests left is taken as 0 or 1 (Bumpensanti and Wang 2020).
- *each request, rounded*: the plan at b / tau, whose mix takes the model with the larger share (Arlotto and Gurvich
  2019; Vera and Banerjee 2021).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.report.section import ReportSection
from wiserouter.evaluation.simulation.paper_environment import paper_environment
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.plan import Plan
from wiserouter.types import FloatArray, IntArray

HORIZONS = (500, 1_500, 5_000, 15_000, 50_000)
RULES = ("each request", "rarely, with thresholds", "each request, rounded")
TEXT = """
Regret in units of reward over the whole horizon, at a breakpoint of the value curve near the middle budget and halfway
between it and the next one: mean over environments ± the standard error over environments. Slope: of log regret on
log T; 0.5 is order sqrt(T), 0 is bounded. Below 0 in the lines from the first rule: less regret than with that one."""


class _Table(NamedTuple):
    """A plan as arrays, to be drawn from for many runs at once."""

    spend_usd: FloatArray
    low: IntArray
    step_context: IntArray
    high: IntArray
    reward: FloatArray
    cost_usd: FloatArray
    cheapest: IntArray


def breakpoints(
    environments: Iterable[int] = range(10), horizons: Iterable[int] = HORIZONS, n_runs: int = 40
) -> ReportSection:
    """Return the section on regret at breakpoint budgets.

    Parameters
    ----------
    environments : iterable of int
        Seeds of the environments (`paper_environment`).
    horizons : iterable of int
        Numbers of requests T.
    n_runs : int, default 40
        Streams of requests per environment and horizon.
    """
    environments, horizons, rows = list(environments), list(horizons), []
    for place in ("breakpoint", "between"):
        found = np.array(
            [[regrets(seed, horizon, place == "breakpoint", n_runs) for horizon in horizons] for seed in environments]
        )  # environment, horizon, rule, benchmark
        for r, rule in enumerate(RULES):
            for b, benchmark in enumerate(("hindsight", "frequencies")):
                rows.append([place, rule, benchmark, *_cells(found[:, :, r, b], horizons)])
            if r:  # equal streams: the benchmarks cancel
                rows.append([place, rule, "first rule", *_cells(found[:, :, r, 0] - found[:, :, 0, 0], horizons)])
    columns = ("budget", "solved", "regret from", *(f"T = {horizon:,}" for horizon in horizons), "slope")
    return ReportSection("breakpoints", "Regret at breakpoint budgets", TEXT, columns, rows)


def regrets(seed: int, horizon: int, on_breakpoint: bool, n_runs: int) -> FloatArray:
    """Return the mean regret of each rule from both benchmarks in one environment, of shape (n_rules, 2)."""
    plan = paper_environment(seed, horizon).plan
    spend_usd = plan.curve().spend_usd
    middle = int(np.abs(spend_usd - 0.5 * (spend_usd[0] + spend_usd[-1])).argmin())
    middle = min(max(middle, 1), len(spend_usd) - 2)
    rate = spend_usd[middle] if on_breakpoint else 0.5 * (spend_usd[middle] + spend_usd[middle + 1])
    rng = np.random.default_rng([seed, horizon])
    contexts = rng.choice(len(plan.freq), size=(horizon, n_runs), p=plan.freq)
    draws, table = rng.random((horizon, n_runs)), _table(plan)
    counts = np.stack([np.bincount(run, minlength=len(plan.freq)) for run in contexts.T])
    hindsight = np.mean([horizon * Plan(n / horizon, plan.reward, plan.cost_usd).value(rate) for n in counts])
    fluid = horizon * plan.value(rate)
    gained = [float(served(table, rule, rate * horizon, contexts, draws).mean()) for rule in RULES]
    return np.array([[hindsight - one, fluid - one] for one in gained])


def served(table: _Table, rule: str, budget_usd: float, contexts: IntArray, draws: FloatArray) -> FloatArray:
    """Return the total mean reward of each run under a rule, of shape (n_runs,).

    Parameters
    ----------
    table : _Table
        The plan.
    rule : str
        One of `RULES`.
    budget_usd : float, USD
        For all requests of a run.
    contexts, draws : ndarray of shape (horizon, n_runs)
        Contexts, and numbers uniform on [0, 1) to draw with.
    """
    horizon, n_runs = contexts.shape
    left_usd, gained = np.full(n_runs, budget_usd), np.zeros(n_runs)
    solve_at, taken, share, floor = float(horizon), np.zeros(n_runs, dtype=np.int64), left_usd, table.spend_usd[0]
    rarely = rule == RULES[1]
    for t, arrived in enumerate(contexts):
        left = horizon - t
        if not rarely or left <= solve_at:
            taken, share = _located(table.spend_usd, left_usd / left)
            margin = left**-0.25 if rarely else 0.5 if rule == RULES[2] else 0.0
            share = np.where(share < margin, 0.0, np.where(share >= 1.0 - margin, 1.0, share)) if margin else share
            solve_at = solve_at ** (5.0 / 6.0) if solve_at > 2.0 else left - 1.0
        splits = (table.step_context[taken] == arrived) & (draws[t] < share)
        models = np.where(splits, table.high[taken], table.low[taken, arrived])
        cost_usd = table.cost_usd[arrived, models]
        models = np.where(left_usd - cost_usd < (left - 1) * floor, table.cheapest[arrived], models)
        left_usd = left_usd - table.cost_usd[arrived, models]
        gained += table.reward[arrived, models]
    return gained


def _located(spend_usd: FloatArray, rate_usd: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the number of steps taken whole at each rate, and the share of the next one."""
    taken = np.clip(np.searchsorted(spend_usd, rate_usd, side="right") - 1, 0, len(spend_usd) - 1)
    start, end = spend_usd[taken], spend_usd[np.minimum(taken + 1, len(spend_usd) - 1)]
    return taken, np.clip((rate_usd - start) / np.where(end > start, end - start, np.inf), 0.0, 1.0)


def _table(plan: Plan) -> _Table:
    steps, hulls = plan.steps, [[action for action in row.hull if action != SKIP] for row in plan.rows]
    low = np.empty((len(steps) + 1, plan.n_contexts), dtype=np.int64)
    low[0] = [hull[0] for hull in hulls]
    for rank, step in enumerate(steps):
        low[rank + 1] = low[rank]
        low[rank + 1, step.context] = step.to
    spend_usd = plan.floor_usd + np.concatenate(([0.0], np.cumsum([step.spend_usd for step in steps])))
    contexts, high = [*(step.context for step in steps), -1], [*(step.to for step in steps), 0]
    return _Table(spend_usd, low, np.array(contexts), np.array(high), plan.reward, plan.cost_usd, low[0])


def _cells(regret: FloatArray, horizons: list[int]) -> list[str]:
    """Return the mean regret at each horizon, and the slope of its logarithm, with standard errors."""
    n = max(len(regret), 2)
    means, errors = regret.mean(axis=0), regret.std(axis=0, ddof=min(1, len(regret) - 1)) / np.sqrt(n)
    cells = [f"{mean:.2f} ± {error:.2f}" for mean, error in zip(means, errors, strict=True)]
    positive = means > 0.0
    slope = np.polyfit(np.log(np.array(horizons)[positive]), np.log(means[positive]), 1)[0] if positive.sum() > 1 else 0
    return [*cells, f"{slope:.2f}"]
