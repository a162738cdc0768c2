import itertools
import math

import numpy as np
import pytest
from core.planning.test_batch_allocation import batch
from scipy.optimize import linprog

from support.problems import TIGHT
from wiserouter.errors import InfeasibleBudget, InvalidInput
from wiserouter.planning import batch_capacity
from wiserouter.planning.batch_allocation import BatchProgram
from wiserouter.planning.batch_capacity import DIRECT_ROWS, CapacityProgram
from wiserouter.planning.batch_margin import CostErrors


def limited(seed):
    """Return a batch with capacities of which some bind, and for which there is an allocation."""
    reward, cost, budget = batch(seed)
    rng = np.random.default_rng(seed)
    n_queries, n_models = reward.shape
    capacity = rng.integers(0, n_queries + 1, n_models)
    free = int(np.isfinite(cost).all(axis=0).argmax())
    capacity[free] = n_queries
    return reward, cost, budget, [None if one == n_queries else int(one) for one in capacity]


def highs(reward, cost, budget, capacity):
    """Return the optimum over single queries, one by one; None if there is none."""
    n_queries, n_models = reward.shape
    usable = np.isfinite(cost).ravel()
    once = np.kron(np.eye(n_queries), np.ones(n_models))[:, usable]
    of_model = np.kron(np.ones(n_queries), np.eye(n_models))[:, usable]
    found = linprog(
        -reward.ravel()[usable],
        A_ub=np.vstack((cost.ravel()[usable], of_model)),
        b_ub=[budget, *(n_queries if one is None else one for one in capacity)],
        A_eq=once,
        b_eq=np.ones(n_queries),
        method="highs-ipm",
        options=TIGHT,
    )
    return -found.fun if found.status == 0 else None


def check(found, reward, cost, budget, capacity):
    rows = np.arange(len(reward))
    assert cost[rows, found.model].sum() <= budget + 1e-12
    assert found.expected_cost_usd == pytest.approx(cost[rows, found.model].sum(), abs=1e-12)
    assert found.expected_reward == pytest.approx(reward[rows, found.model].sum(), abs=1e-12)
    taken = np.bincount(found.model, minlength=reward.shape[1])
    assert all(one is None or n <= one for n, one in zip(taken, capacity, strict=True))


@pytest.mark.parametrize("seed", range(150))
def test_the_relaxation_equals_highs_and_the_allocation_keeps_budget_and_capacities(seed):
    reward, cost, budget, capacity = limited(seed)
    optimum = highs(reward, cost, budget, capacity)
    program = CapacityProgram(reward, cost, capacity)
    if budget < program.floor_usd:
        with pytest.raises(InfeasibleBudget):
            program.allocate(budget)
        budget = program.floor_usd * (1 + 1e-9)
        optimum = highs(reward, cost, budget, capacity)
    found = program.allocate(budget)
    check(found, reward, cost, budget, capacity)
    if optimum is not None:
        assert found.bound == pytest.approx(optimum, abs=1e-8 * max(1.0, optimum))
        exchanged = reward.shape[1] * np.ptp(reward, axis=1).max()
        assert optimum - exchanged - 1e-7 <= found.expected_reward <= optimum + 1e-7


@pytest.mark.parametrize("seed", range(30))
def test_small_batches_equal_the_best_of_all_allocations_but_for_one_exchange(seed):
    rng = np.random.default_rng(seed)
    reward, cost = rng.random((6, 3)), rng.random((6, 3))
    capacity = [2, 2, 4]
    every = np.array(
        [m for m in itertools.product(range(3), repeat=6) if max(np.bincount(m) - capacity[: max(m) + 1]) <= 0]
    )
    spend, value = (table[np.arange(6), every].sum(axis=1) for table in (cost, reward))
    program = CapacityProgram(reward, cost, capacity)
    assert program.floor_usd == pytest.approx(spend.min(), abs=1e-12)
    budget = float(rng.uniform(spend.min(), spend.max()))
    found = program.allocate(budget)
    check(found, reward, cost, budget, capacity)
    best = value[spend <= budget].max()
    assert found.expected_reward <= best + 1e-12
    assert found.bound >= best - 1e-9
    assert program.allocate(float(spend.max())).expected_reward == pytest.approx(value.max(), abs=1e-12)


def test_many_different_queries_equal_the_whole_program():
    rng = np.random.default_rng(3)
    n_queries = 2 * DIRECT_ROWS
    reward, cost = rng.random((n_queries, 4)), rng.random((n_queries, 4)) * [1, 3, 10, 30]
    budget, capacity = 3.0 * cost.min(axis=1).sum(), [n_queries // 3, n_queries // 3, n_queries // 3, None]
    found = CapacityProgram(reward, cost, capacity).allocate(budget)
    check(found, reward, cost, budget, capacity)
    assert found.bound == pytest.approx(highs(reward, cost, budget, capacity), rel=1e-9)
    assert found.bound - found.expected_reward <= 1.0


def test_capacities_that_do_not_bind_change_nothing():
    reward, cost, budget = batch(3)
    free, plain = CapacityProgram(reward, cost, [None] * reward.shape[1]), BatchProgram(reward, cost)
    assert free.allocate(budget).bound == pytest.approx(plain.bound(budget), abs=1e-9)
    assert free.floor_usd == pytest.approx(plain.floor_usd)


def test_a_margin_keeps_to_the_budget_within_the_capacities():
    rng = np.random.default_rng(5)
    reward, cost = np.sort(rng.random((50, 3)), axis=1), np.array([1.0, 2.0, 4.0]) * rng.uniform(0.5, 1.5, (50, 3))
    errors = CostErrors(0.9, np.zeros(50, dtype=int), [[0.05, 0.1, 0.2]], [[0.5, 1.0, 2.0]])
    program, budget = CapacityProgram(reward, cost, [20, 20, 20]), 130.0
    found, plain = program.allocate(budget, errors), program.allocate(budget)
    check(found, reward, cost, budget - found.margin_usd, [20, 20, 20])
    assert 0.0 <= budget - found.expected_cost_usd - found.margin_usd <= cost.max()  # the cost of one exchange
    assert found.expected_reward < plain.expected_reward
    with pytest.raises(InfeasibleBudget):
        program.allocate(program.floor_usd * 1.01, errors)


def test_capacities_that_do_not_hold_all_queries_are_refused():
    for capacity, message in (
        (
            [2, 2],
            "the capacities must let each of 5 queries have a model, got 4 in all: raise them, or leave queries out",
        ),
        ([5], "capacity must have one entry per model (2), got 1"),
        ([5, -1], "capacity must be a whole number of at least 0, got -1"),
    ):
        with pytest.raises(InvalidInput) as refused:
            CapacityProgram([[0.2, 0.9]] * 5, [[1.0, 3.0]] * 5, capacity)
        assert str(refused.value) == message
    with pytest.raises(InvalidInput, match="of 5 queries have a model, got 2 in all"):
        CapacityProgram([[0.2, 0.9]] * 5, [[1.0, np.inf]] * 5, [2, None])  # the second model takes none of them


@pytest.mark.parametrize("unit_usd", [1e-15, 1e-12, 1e-9, 1e9])
def test_the_cheapest_allocation_is_found_in_any_unit(unit_usd):
    cost = np.array([[3.0, 1.0], [2.0, 1.5], [1.0, 1.2]])
    program = CapacityProgram([[0.5, 0.5]] * 3, cost * unit_usd, [None, 1])
    assert program.floor_usd == pytest.approx(4.0 * unit_usd)
    assert program.allocate(4.0 * unit_usd).model.tolist() == [1, 0, 0]


@pytest.mark.parametrize("unit_usd", [1e-12, 1e-9, 1.0])
def test_without_money_the_best_free_models_are_taken_in_any_unit(unit_usd):
    reward = [[0.2, 0.9, 1.0], [0.2, 0.5, 1.0], [0.2, 0.4, 1.0]]
    program = CapacityProgram(reward, np.array([[0.0, 0.0, 1.0]] * 3) * unit_usd, [None, 2, 2])
    assert program.allocate(0.0).model.tolist() == [1, 1, 0]


def test_a_budget_below_the_floor_is_refused_per_query():
    program = CapacityProgram([[0.2, 0.9]] * 5, [[1.0, 3.0]] * 5, [2, None])
    assert program.floor_usd == 11.0
    with pytest.raises(InfeasibleBudget) as refused:
        program.allocate(10.0)
    assert (refused.value.rate_usd, refused.value.floor_usd) == (2.0, pytest.approx(2.2))
    found = program.allocate(11.0)
    assert sorted(found.model) == [0, 0, 1, 1, 1]
    errors = CostErrors(0.9, np.zeros(5, dtype=int), [[0.1, 0.1]], [[0.5, 0.5]])
    with pytest.raises(InfeasibleBudget) as refused:
        program.allocate(11.5, errors)
    margin = errors.margin_usd(np.array([0, 0, 1, 1, 1]), 11.0)
    assert (refused.value.rate_usd, refused.value.floor_usd) == (2.3, pytest.approx((11.0 + margin) / 5))
    with pytest.raises(InvalidInput, match="budget_usd must be a finite number"):
        program.allocate(-1.0)


def test_where_the_solver_sees_no_allocation_within_the_budget_the_cheapest_one_is_taken(monkeypatch):
    reward, cost = (
        [[0.2, 0.9, 0.4], [0.3, 0.8, 0.5], [0.1, 0.7, 0.6]],
        [[1.0, 3.0, np.inf], [2.0, 3.0, 9.0], [1.0, 4.0, 9.0]],
    )
    program = CapacityProgram(reward, cost, [2, None, None])
    solved = batch_capacity._solved
    monkeypatch.setattr(batch_capacity, "_solved", lambda part: None if np.isfinite(part.budget) else solved(part))
    found = program.allocate(7.0)
    assert found.model.tolist() == [0, 1, 0]
    assert (found.expected_cost_usd, found.expected_reward) == (5.0, pytest.approx(1.1))
    assert (found.bound, found.shadow_price) == (found.expected_reward, 0.0)


def test_an_allocation_that_a_rounding_error_lets_exceed_the_budget_is_solved_again(monkeypatch):
    reward, cost = np.tile([0.2, 0.9], (10, 1)), np.tile([1.0, 3.0], (10, 1))
    budget, capacity = 20.0, [None, 9]
    program = CapacityProgram(reward, cost, capacity)
    solved, asked = batch_capacity._solved, []

    def generous(part):
        asked.append(part.budget)
        return solved(part._replace(budget=part.budget * (1.2 if len(asked) == 1 else 1.0)))

    monkeypatch.setattr(batch_capacity, "_solved", generous)
    found = program.allocate(budget)
    check(found, reward, cost, budget, capacity)
    assert len(asked) > 1
    assert asked[0] == budget
    assert all(later < budget for later in asked[1:])


def test_a_rounding_error_of_the_sum_of_costs_is_solved_in_a_few_rounds(monkeypatch):
    solved, asked = batch_capacity._solved, []
    program = CapacityProgram([[0.9, 0.5, 0.2]] * 3, [[10.0, 0.1, 0.05]] * 3, [0, None, None])
    monkeypatch.setattr(batch_capacity, "_solved", lambda part: asked.append(part.budget) or solved(part))
    found = program.allocate(0.3)  # 0.1 + 0.1 + 0.1 is more by one rounding error
    assert sorted(found.model) == [1, 1, 2]
    assert found.bound == pytest.approx(1.5, abs=1e-9)
    assert len(asked) <= 6


def test_where_each_allocation_exceeds_the_budget_the_cheapest_one_is_taken_in_a_few_rounds(monkeypatch):
    program = CapacityProgram([[0.2, 0.9]] * 3, [[1.0, 3.0]] * 3, [None, 2])
    solved, asked = batch_capacity._solved, []

    def generous(part):
        asked.append(part.budget)
        return solved(part._replace(budget=math.inf))

    monkeypatch.setattr(batch_capacity, "_solved", generous)
    assert program.allocate(4.0).model.tolist() == [0, 0, 0]
    assert len(asked) <= 8
