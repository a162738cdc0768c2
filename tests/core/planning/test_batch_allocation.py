from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, linprog, milp
from scipy.stats import binom
from scipy.stats import f as f_distribution

from support.problems import TIGHT
from wiserouter.errors import InfeasibleBudget, InvalidInput
from wiserouter.planning import batch_allocation
from wiserouter.planning.batch_allocation import BatchProgram
from wiserouter.planning.batch_margin import SAMPLED_TOTALS, CostErrors, sampled_level


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
    terms = [[0.5, 0.25], [2.0, 1.0]], [[3.0, 2.0], [1.5, 1.0]], [[0.1, 0.5], [0.4, 0.2]]
    errors = CostErrors(0.9, group, *terms)
    of_means = 4 * 0.25**2 + 2.0**2 + (2 * 0.5) ** 2 + 0.4**2  # the queries of a group, then the groups of a model
    of_calls = 2 * 2.0**2 + 1.5**2
    normal = NormalDist().inv_cdf(errors.level) * np.sqrt(of_means + of_calls)
    assert errors.margin_usd(model, 0.0) == pytest.approx(normal)
    for total in (1.0, 10.0, 1_000.0):
        leaning = f_distribution(2 * total**2 / of_calls, 2 * total**2 / of_means).ppf(errors.level) - 1.0
        assert errors.margin_usd(model, total) == pytest.approx(max(total * leaning, normal))
    alone = CostErrors(0.9, group, *terms[:2]).margin_usd(model, 1_000.0)
    assert alone < errors.margin_usd(model, 1_000.0)
    with pytest.raises(InvalidInput) as refused:
        CostErrors(0.4, group, [[0.0]], [[0.0]])
    assert (str(refused.value), refused.value.value) == ("confidence must be at least 0.5, got 0.4", 0.4)
    with pytest.raises(InvalidInput, match="confidence must lie between 0 and 1, both left out, got 1"):
        CostErrors(1, group, [[0.0]], [[0.0]])
    wrong = ([0.0], [0.0], [0.0]), ([[0.0]], [[0.0, 1.0]], [[0.0]]), ([[0.0]], [[0.0]], [[0.0, 1.0]])
    for mean, call, shared in wrong:
        with pytest.raises(InvalidInput) as refused:
            CostErrors(0.5, group, mean, call, shared)
        assert str(refused.value) == (
            f"mean_usd, call_usd and shared_usd must have the same shape (n_groups, n_models), got {np.shape(mean)}, "
            f"{np.shape(call)} and {np.shape(shared)}"
        )


def test_without_errors_there_is_no_margin_and_with_tiny_ones_hardly_any():
    model = np.zeros(4, dtype=int)
    assert CostErrors(0.99, model, [[0.0]], [[0.0]]).margin_usd(model, 10.0) == pytest.approx(0.0, abs=1e-4)
    assert CostErrors(0.99, model, [[1e-9]], [[1e-9]]).margin_usd(model, 10.0) == pytest.approx(0.0, abs=1e-4)


@given(st.floats(0.5, 0.99))
def test_a_sample_of_totals_shows_the_stated_share(confidence):
    """The exact distribution of the share in a sample, for the level that is held back."""
    level = sampled_level(confidence)
    assert confidence < level < 1.0
    missed = binom(SAMPLED_TOTALS, 1.0 - level).sf(np.floor(SAMPLED_TOTALS * (1.0 - confidence) + 1e-9))
    assert missed <= 0.03  # 0.01, but for whole numbers and the normal approximation of few failures


class Batch(NamedTuple):
    """A batch of 2,000 queries in five groups, whose means are known to 10 % and whose calls deviate by 150 %."""

    group: np.ndarray
    mean_usd: np.ndarray
    reward: np.ndarray

    def totals(self, model, truths, family, rng):
        """Return true totals: means that deviate together, and calls around them."""
        count = np.bincount(self.group * 4 + model, minlength=20).reshape(5, 4)
        error = rng.normal(size=(truths, 5, 4))
        if family == "gamma":
            truth = self.mean_usd * np.maximum(1.0 + 0.1 * error, 1e-9)
        else:
            truth = self.mean_usd * np.exp(0.1 * error - 0.005)
        return rng.gamma(np.maximum(count / 2.25, 1e-9), 2.25 * truth).sum(axis=(1, 2))


def uncertain(seed):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 5, 2_000)
    mean = rng.uniform(0.5, 2.0, 4) * np.array([1, 2, 5, 12]) * rng.uniform(0.5, 1.5, (5, 1))
    return Batch(group, mean, np.clip(rng.normal([0.3, 0.5, 0.65, 0.8], 0.2, (2_000, 4)), 0, 1))


@pytest.mark.parametrize("family", ["gamma", "lognormal"])
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_of_a_thousand_truths_at_least_the_stated_share_stays_within_the_budget(confidence, family):
    for seed in range(10):
        batch, rng = uncertain(seed), np.random.default_rng(100 + seed)
        program = BatchProgram(batch.reward, batch.mean_usd[batch.group])
        budget = 2.0 * program.floor_usd
        errors = CostErrors(confidence, batch.group, 0.1 * batch.mean_usd, 1.5 * batch.mean_usd)
        found = program.allocate(budget, errors)
        assert 0.0 <= budget - found.expected_cost_usd - found.margin_usd <= batch.mean_usd.max()  # one call
        assert (batch.totals(found.model, SAMPLED_TOTALS, family, rng) <= budget).mean() >= confidence
        if confidence >= 0.8:
            plain = program.allocate(budget).model
            assert (batch.totals(plain, SAMPLED_TOTALS, family, rng) <= budget).mean() < 0.6


@pytest.mark.parametrize(("confidence", "most"), [(0.8, 0.01), (0.9, 0.01), (0.95, 0.012), (0.99, 0.025)])
def test_what_a_margin_holds_back_beyond_the_exact_quantile_is_a_hundredth_of_the_budget(confidence, most):
    for seed in range(5):
        batch = uncertain(seed)
        program = BatchProgram(batch.reward, batch.mean_usd[batch.group])
        budget = 2.0 * program.floor_usd
        errors = CostErrors(confidence, batch.group, 0.1 * batch.mean_usd, 1.5 * batch.mean_usd)
        model = program.allocate(budget, errors).model
        totals = batch.totals(model, 20_000, "gamma", np.random.default_rng(seed))
        print(confidence, 1.0 - np.quantile(totals, confidence) / budget)
        assert 0.0 <= 1.0 - np.quantile(totals, confidence) / budget <= most


def test_a_margin_that_the_cheapest_models_do_not_leave_is_refused():
    errors = CostErrors(0.99, np.zeros(10, dtype=int), [[1.0, 1.0]], [[1.0, 1.0]])
    with pytest.raises(InfeasibleBudget):
        BatchProgram([[0.2, 0.9]] * 10, [[1.0, 3.0]] * 10).allocate(11.0, errors)


@pytest.mark.parametrize("dearest", [10.0, np.inf])
def test_a_budget_that_equals_the_cheapest_models_but_for_rounding_pays_for_these_alone(dearest):
    found = BatchProgram([[0.9, 0.2]] * 3, [[dearest, 0.1]] * 3).allocate(0.3)
    assert found.model.tolist() == [1, 1, 1]


@given(st.integers(0, 10**6), st.booleans())
def test_amounts_in_cents_never_exceed_a_budget(seed, tight):
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    cost = np.round(rng.random(shape), 2)
    program = BatchProgram(np.round(rng.random(shape), 1), cost)
    budget = program.floor_usd * (1.0 - 1e-13) if tight else program.floor_usd + float(np.round(rng.random(), 2))
    found = program.allocate(budget)
    assert found.expected_cost_usd <= max(budget, program.floor_usd) * (1.0 + 1e-15)
