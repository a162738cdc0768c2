from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, linprog, milp

from wiserouter.errors import InfeasibleBudget, InvalidInput
from wiserouter.planning import batch_allocation
from wiserouter.planning.batch_allocation import BatchProgram
from wiserouter.planning.batch_margin import CostErrors

TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def batch(seed):
    """Return rewards, costs and a budget: smooth, on a grid with ties, with free models, or a model left out."""
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(1, 60)), int(rng.integers(1, 9))
    reward, cost = rng.random(shape), rng.random(shape)
    if seed % 3 == 1:
        levels = int(rng.integers(1, 6))
        reward, cost = np.round(reward * levels) / levels, np.round(cost * levels) / levels
    if seed % 5 == 1:
        cost[rng.random(shape) < 0.2] = 0.0
    if seed % 4 == 1 and shape[1] > 1:
        cost[rng.random(shape[0]) < 0.5, -1] = np.inf
    floor, ceiling = cost.min(axis=1).sum(), np.where(np.isinf(cost), 0.0, cost).max(axis=1).sum()
    return reward, cost, float(floor + rng.uniform(0.0, 1.1) * (ceiling - floor) + 1e-6)


def highs(reward, cost, budget):
    """Return the optimum of the linear program that HiGHS finds."""
    n_queries, n_models = reward.shape
    usable = np.isfinite(cost).ravel()
    once = np.kron(np.eye(n_queries), np.ones(n_models))[:, usable]
    found = linprog(
        -reward.ravel()[usable],
        A_ub=cost.ravel()[usable][None, :],
        b_ub=[budget],
        A_eq=once,
        b_eq=np.ones(n_queries),
        method="highs",
        options=TIGHT,
    )
    assert found.status == 0, found.message
    return -found.fun


@pytest.mark.parametrize("seed", range(300))
def test_an_allocation_equals_highs_within_one_query_and_keeps_the_budget(seed):
    reward, cost, budget = batch(seed)
    found = BatchProgram(reward, cost).allocate(budget)
    optimum = highs(reward, cost, budget)
    assert found.bound == pytest.approx(optimum, abs=1e-9 * max(1.0, optimum))
    rows = np.arange(len(reward))
    assert cost[rows, found.model].sum() <= budget + 1e-12
    assert found.expected_cost_usd == pytest.approx(cost[rows, found.model].sum(), abs=1e-12)
    assert found.expected_reward == pytest.approx(reward[rows, found.model].sum(), abs=1e-12)
    assert found.bound - found.expected_reward <= np.ptp(reward, axis=1).max() + 1e-9  # one query
    if found.shadow_price:
        assert budget - found.expected_cost_usd <= np.where(np.isinf(cost), 0.0, cost).max() + 1e-12


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_an_allocation_is_within_one_query_of_the_integer_optimum(seed):
    reward, cost, budget = batch(seed)
    cost = np.where(np.isinf(cost), 1e3, cost)
    n_queries, n_models = reward.shape
    once = np.kron(np.eye(n_queries), np.ones(n_models))
    limits = [LinearConstraint(once, 1, 1), LinearConstraint(cost.ravel()[None, :], -np.inf, budget)]
    optimum = -milp(-reward.ravel(), constraints=limits, integrality=np.ones(reward.size), bounds=(0, 1)).fun
    found = BatchProgram(reward, cost).allocate(budget)
    assert optimum - np.ptp(reward, axis=1).max() - 1e-9 <= found.expected_reward <= optimum + 1e-6


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 10.0))
def test_more_budget_never_lowers_the_bound_and_a_scale_of_money_changes_nothing(seed, scale):
    reward, cost, budget = batch(seed)
    program = BatchProgram(reward, cost)
    assert program.bound(budget * 1.1) >= program.bound(budget) - 1e-12
    scaled = BatchProgram(reward, cost * scale).bound(budget * scale)
    assert scaled == pytest.approx(program.bound(budget), abs=1e-9)


def test_queries_with_equal_estimates_are_split_in_order():
    found = BatchProgram([[0.2, 0.9]] * 10, [[1.0, 3.0]] * 10).allocate(16.0)
    assert found.model.sum() == 3
    assert (found.shadow_price, found.expected_cost_usd) == (pytest.approx(0.35), 16.0)


def test_a_budget_below_the_cheapest_models_is_refused():
    with pytest.raises(InfeasibleBudget, match="at least 1,"):
        BatchProgram([[0.2, 0.9]] * 10, [[1.0, 3.0]] * 10).allocate(9.9)
    assert BatchProgram([[0.2, 0.9]] * 10, [[0.1, 3.0]] * 10).allocate(1.0).expected_cost_usd == pytest.approx(1.0)


SHAPES = "reward and cost_usd must have the same shape (n_queries, n_models), got "
COSTS = "cost_usd must be at least 0, or infinite where a model cannot take a query, got less or NaN"


@pytest.mark.parametrize(
    ("reward", "cost", "message"),
    [
        ([[0.1]], [[0.1, 0.2]], f"{SHAPES}(1, 1) and (1, 2)"),
        ([0.1], [0.1], f"{SHAPES}(1,) and (1,)"),
        ([[]], [[]], f"{SHAPES}(1, 0) and (1, 0)"),
        (
            [[np.nan, 1.0]],
            [[1.0, 1.0]],
            "reward must be finite, got NaN or infinity: an infinite cost excludes a model",
        ),
        ([[0.1, 0.1]], [[1.0, -1.0]], COSTS),
        ([[0.1]], [[np.nan]], COSTS),
        (
            [[0.1, 0.1]] * 3,
            [[np.inf, 1.0], [0.0, np.inf], [np.inf, np.inf]],
            "each query needs a model of finite cost, query 2 has none: leave it out",
        ),
    ],
)
def test_tables_that_do_not_fit_are_refused(reward, cost, message):
    with pytest.raises(InvalidInput) as refused:
        BatchProgram(reward, cost)
    assert str(refused.value) == message


def test_the_parts_of_a_large_batch_are_those_of_one_table(monkeypatch):
    reward, cost, budget = batch(7)
    reward, cost = np.tile(reward, (3, 1)), np.tile(cost, (3, 1))
    whole = BatchProgram(reward, cost).allocate(3 * budget)
    monkeypatch.setattr(batch_allocation, "CHUNK_QUERIES", 5)
    parts = BatchProgram(reward, cost).allocate(3 * budget)
    assert np.array_equal(whole.model, parts.model)
    assert (whole.bound, whole.shadow_price) == (parts.bound, parts.shadow_price)


def test_a_refused_budget_is_stated_per_query_with_its_margin():
    program = BatchProgram([[0.2, 0.9]] * 10, [[1.0, 3.0]] * 10)
    with pytest.raises(InfeasibleBudget) as refused:
        program.allocate(5.0)
    assert (refused.value.rate_usd, refused.value.floor_usd) == (0.5, 1.0)
    errors = CostErrors(0.9, np.zeros(10, dtype=int), [[0.1, 0.1]], [[0.5, 0.5]])
    with pytest.raises(InfeasibleBudget) as refused:
        program.allocate(11.0, errors)
    margin = errors.margin_usd(np.zeros(10, dtype=int), 10.0)
    assert (refused.value.rate_usd, refused.value.floor_usd) == (1.1, pytest.approx((10.0 + margin) / 10))
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(InvalidInput, match="budget_usd must be a finite number"):
            program.allocate(wrong)


def test_the_margin_is_the_larger_one_of_a_normal_and_of_a_leaning_total():
    group, model = np.array([0, 0, 1]), np.array([1, 1, 0])
    errors = CostErrors(0.9, group, [[0.5, 0.25], [2.0, 1.0]], [[3.0, 2.0], [1.5, 1.0]])
    variance = 4 * 0.25**2 + 2 * 2.0**2 + 2.0**2 + 1.5**2
    quantile = NormalDist().inv_cdf(0.9)
    assert errors.margin_usd(model, 0.0) == pytest.approx(quantile * np.sqrt(variance))
    for total in (1.0, 10.0, 1_000.0):
        spread = np.log1p(variance / total**2)
        leaning = total * (np.exp(quantile * np.sqrt(spread) - spread / 2) - 1.0)
        assert errors.margin_usd(model, total) == pytest.approx(max(leaning, quantile * np.sqrt(variance)))
    with pytest.raises(InvalidInput) as refused:
        CostErrors(0.4, group, [[0.0]], [[0.0]])
    assert (str(refused.value), refused.value.value) == ("confidence must be at least 0.5, got 0.4", 0.4)
    with pytest.raises(InvalidInput, match="confidence must lie between 0 and 1, both left out, got 1"):
        CostErrors(1, group, [[0.0]], [[0.0]])
    for mean, call in (([0.0], [0.0]), ([[0.0]], [[0.0, 1.0]])):
        with pytest.raises(InvalidInput) as refused:
            CostErrors(0.5, group, mean, call)
        assert str(refused.value) == (
            f"mean_usd and call_usd must have the same shape (n_groups, n_models), got {np.shape(mean)} and "
            f"{np.shape(call)}"
        )


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99])
def test_the_total_stays_within_the_budget_with_the_stated_confidence(confidence):
    rng = np.random.default_rng(7)
    n_queries, n_groups, n_models = 2_000, 5, 4
    group = rng.integers(0, n_groups, n_queries)
    mean = rng.uniform(0.5, 2.0, n_models) * np.array([1, 2, 5, 12]) * rng.uniform(0.5, 1.5, (n_groups, 1))
    mean_error, call = 0.1 * mean, 1.5 * mean
    reward = np.clip(rng.normal([0.3, 0.5, 0.65, 0.8], 0.2, (n_queries, n_models)), 0, 1)
    program = BatchProgram(reward, mean[group])
    budget = 2.0 * program.floor_usd
    found = program.allocate(budget, CostErrors(confidence, group, mean_error, call))
    assert found.expected_cost_usd + found.margin_usd <= budget
    assert found.expected_cost_usd + found.margin_usd >= 0.999 * budget
    truths = 20_000
    plain = program.allocate(budget).model
    truth = np.maximum(mean + mean_error * rng.normal(size=(truths, *mean.shape)), 1e-9)
    shape = (mean / call) ** 2

    def share_kept(model):  # truths: means that deviate together, calls with a gamma distribution around them
        count = np.bincount(group * n_models + model, minlength=mean.size).reshape(mean.shape)
        total = rng.gamma(np.maximum(count * shape, 1e-9), truth / shape).sum(axis=(1, 2))
        return (total <= budget).mean()

    error = np.sqrt(confidence * (1 - confidence) / truths)
    assert share_kept(found.model) >= confidence - 2 * error
    assert share_kept(plain) < 0.6


def test_a_margin_that_the_cheapest_models_do_not_leave_is_refused():
    errors = CostErrors(0.99, np.zeros(10, dtype=int), [[1.0, 1.0]], [[1.0, 1.0]])
    with pytest.raises(InfeasibleBudget):
        BatchProgram([[0.2, 0.9]] * 10, [[1.0, 3.0]] * 10).allocate(11.0, errors)
