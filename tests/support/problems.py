"""Random linear programs for property tests, and their optimum by linear programming."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from wiserouter.planning.plan import Plan
from wiserouter.planning.value_mix import Tier


class Problem(NamedTuple):
    freq: np.ndarray
    reward: np.ndarray
    cost_usd: np.ndarray
    position: float  # of the rate between the floor (0) and a little above the most expensive mix (1)
    allow_skip: bool


@st.composite
def problems(draw, max_contexts=64, max_models=40):
    """Draw instances of every kind: smooth, on a coarse grid (ties, duplicates), with zeros and empty contexts."""
    n_contexts, n_models = draw(st.integers(1, max_contexts)), draw(st.integers(1, max_models))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (n_contexts, n_models)
    reward, cost = rng.random(shape), rng.random(shape)
    if draw(st.booleans()):  # ties and duplicates
        levels = draw(st.integers(1, 6))
        reward, cost = np.round(reward * levels) / levels, np.round(cost * levels) / levels
    if draw(st.booleans()):  # zero-cost models
        cost[rng.random(shape) < 0.2] = 0.0
    freq = rng.dirichlet(np.full(n_contexts, draw(st.sampled_from([0.1, 1.0, 10.0]))))
    if draw(st.booleans()) and n_contexts > 1:  # contexts that never occur
        freq[rng.random(n_contexts) < 0.3] = 0.0
        freq[0] += freq.sum() == 0
        freq /= freq.sum()
    freq[freq < 1e-6] = 0.0
    freq /= freq.sum()
    return Problem(freq, reward, cost, draw(st.floats(0.0, 1.1)), draw(st.booleans()))


TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""The least tolerances of HiGHS; with its usual 1e-7 an optimum near a corner exceeds the budget by as much."""


def rate_of(problem: Problem) -> float:
    """Return the rate at the problem's position between its floor and the most expensive mix."""
    floor = 0.0 if problem.allow_skip else float(problem.freq @ problem.cost_usd.min(axis=1))
    ceiling = float(problem.freq @ problem.cost_usd.max(axis=1))
    return floor + problem.position * (ceiling - floor) + 1e-6  # on the floor itself, HiGHS may see no feasible point


def linprog_value(problem: Problem, rate: float) -> float:
    """Return the optimum that HiGHS finds."""
    weights = problem.freq[:, None]
    n_contexts, n_models = problem.reward.shape
    rows = np.kron(np.eye(n_contexts), np.ones(n_models))
    once = {"A_eq": rows, "b_eq": np.ones(n_contexts)}
    scale = 1e6  # HiGHS reads coefficients below 1e-9 as zero, which would be another problem
    spend, bound = scale * (weights * problem.cost_usd).ravel()[None, :], np.array([scale * rate])
    if problem.allow_skip:
        once, spend, bound = {}, np.vstack([spend, rows]), np.append(bound, np.ones(n_contexts))
    result = linprog(-(weights * problem.reward).ravel(), A_ub=spend, b_ub=bound, method="highs", options=TIGHT, **once)
    assert result.status == 0, result.message
    return -float(result.fun)


def optimum_of_values(plan: Plan, tiers: list[Tier], rate: float) -> float:
    """Return the optimum over all (context, tier, model) where requests have values, by HiGHS."""
    shares, values = np.array([t.share for t in tiers]), np.array([t.value for t in tiers])
    weight = plan.freq[:, None] * shares[None, :]
    gain = weight[:, :, None] * values[None, :, None] * plan.reward[:, None, :]
    cost = weight[:, :, None] * np.broadcast_to(plan.cost_usd[:, None, :], gain.shape)
    rows = np.kron(np.eye(weight.size), np.ones(plan.n_models))
    limits: dict[str, object] = {"A_ub": [cost.ravel()], "b_ub": [rate]}
    if plan.allow_skip:
        limits = {"A_ub": np.vstack([cost.ravel(), rows]), "b_ub": [rate, *np.ones(weight.size)]}
    else:
        limits |= {"A_eq": rows, "b_eq": np.ones(weight.size)}
    solved = linprog(-gain.ravel(), **limits, bounds=(0, 1), method="highs", options=TIGHT)
    assert solved.success
    return -float(solved.fun)
