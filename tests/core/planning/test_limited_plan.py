import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from support.problems import linprog_value, problems, rate_of
from wiserouter import Plan
from wiserouter.planning.limit_constraints import budget_constraint
from wiserouter.planning.limited_plan import LEAST_FREQ, Constraint, limited_plan


@st.composite
def programs(draw, max_contexts=8, max_models=6):
    """Draw frequencies, rewards and 1 to 4 constraints, whose bounds a random mix keeps."""
    n_contexts, n_models = draw(st.integers(1, max_contexts)), draw(st.integers(1, max_models))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (n_contexts, n_models)
    freq = np.maximum(rng.dirichlet(np.ones(n_contexts)), 1e-3)
    freq /= freq.sum()
    reward = rng.random(shape)
    inside = rng.dirichlet(np.ones(n_models), n_contexts)
    constraints = []
    for m in range(draw(st.integers(1, 4))):
        use = rng.random(shape) * 10.0 ** draw(st.integers(-6, 3))
        if draw(st.booleans()):
            use = np.round(use / use.max() * 3) * use.max() / 3  # ties
        sign = -1.0 if draw(st.booleans()) else 1.0
        most = float(freq @ (inside * sign * use).sum(axis=1))
        constraints.append(Constraint(f"c{m}", sign * use, most + abs(most) * draw(st.sampled_from([0.0, 0.01, 1.0]))))
    return freq, reward, constraints


def dual_value(freq, reward, constraints):
    """Return the optimum of the dual program: min sum_j pi_j t_j + b y with t_j >= u_jk - sum_m y_m a_mjk."""
    n_contexts, n_models = reward.shape
    scale = [float(np.abs(one.use).max()) or 1.0 for one in constraints]
    rows, bounds = [], []
    for j, k in itertools.product(range(n_contexts), range(n_models)):
        most = np.zeros(n_contexts)
        most[j] = -1.0
        rows.append([*most, *(-one.use[j, k] / s for one, s in zip(constraints, scale, strict=True))])
        bounds.append(-reward[j, k])
    cost = [*freq, *(one.most / s for one, s in zip(constraints, scale, strict=True))]
    limits = [(None, None)] * n_contexts + [(0.0, None)] * len(constraints)
    return float(linprog(cost, A_ub=rows, b_ub=bounds, bounds=limits, method="highs-ipm").fun)


@settings(max_examples=40, deadline=None)
@given(programs())
def test_the_value_is_that_of_the_dual_program_and_the_mix_keeps_every_bound(program):
    freq, reward, constraints = program
    plan = limited_plan(freq, reward, constraints)
    assert plan.value == pytest.approx(dual_value(freq, reward, constraints), abs=1e-6)
    assert plan.mix.min() >= 0.0
    assert plan.mix.sum(axis=1) == pytest.approx(np.ones(len(freq)), abs=1e-12)
    for one, use, bound in zip(constraints, plan.uses, plan.bounds, strict=True):
        slack = 1e-7 * float(np.abs(one.use).max())
        assert use <= one.most + slack
        assert bound == pytest.approx(one.most, abs=slack)


@settings(max_examples=40, deadline=None)
@given(programs())
def test_a_context_takes_models_of_most_worth_and_a_price_asks_for_a_bound_that_binds(program):
    freq, reward, constraints = program
    plan = limited_plan(freq, reward, constraints)
    best = plan.worth.max(axis=1, keepdims=True)
    size = 1.0 + sum(y * float(np.abs(one.use).max()) for y, one in zip(plan.prices, constraints, strict=True))
    assert np.all(plan.worth[plan.mix > 1e-6] >= np.broadcast_to(best, plan.mix.shape)[plan.mix > 1e-6] - 1e-6 * size)
    for one, price, use in zip(constraints, plan.prices, plan.uses, strict=True):
        scale = float(np.abs(one.use).max()) or 1.0
        assert price * scale * abs(use - one.most) / scale <= 1e-5 * size
    assert int(((plan.mix > 1e-6).sum(axis=1) - 1).sum()) <= len(constraints)


@settings(max_examples=40, deadline=None)
@given(problems(max_contexts=12, max_models=8))
def test_one_constraint_is_the_plan_of_the_budget(problem):
    plan = Plan(problem.freq, problem.reward, problem.cost_usd, allow_skip=problem.allow_skip)
    rate = max(rate_of(problem), plan.floor_usd * (1 + 1e-9))
    cost = Constraint("usd", problem.cost_usd, rate)
    limited = limited_plan(problem.freq, problem.reward, [cost], allow_skip=problem.allow_skip)
    price = max(limited.prices[0], plan.shadow_price(rate))  # what a rare context costs is missing elsewhere
    rare = 3 * LEAST_FREQ * len(problem.freq) * (1.0 + price)
    assert limited.value == pytest.approx(linprog_value(problem, rate), abs=rare + 1e-7)
    assert limited.value == pytest.approx(plan.value(rate), abs=rare + 1e-7)


def test_the_optimum_of_three_models_and_two_constraints_is_found_by_all_their_bases():
    rng = np.random.default_rng(3)
    for _ in range(50):
        reward, cost, latency = rng.random((3, 1, 3))
        inside = rng.dirichlet(np.ones(3))
        most = [float(inside @ cost[0]), float(inside @ latency[0])]
        uses = np.array([cost[0], latency[0]])
        values = []
        for n_zero in range(3):  # a basis has as many tight rows as variables: zeros of x and bounds
            for zero in itertools.combinations(range(3), n_zero):
                for tight in itertools.combinations(range(2), 2 - n_zero):
                    rows = np.array([np.ones(3), *np.eye(3)[list(zero)], *uses[list(tight)]])
                    x = np.linalg.solve(rows, [1.0, *[0.0] * n_zero, *(most[m] for m in tight)])
                    if x.min() >= -1e-12 and np.all(uses @ x <= np.array(most) + 1e-12):
                        values.append(float(reward[0] @ x))
        constraints = [Constraint("usd", cost, most[0]), Constraint("latency_s", latency, most[1])]
        assert limited_plan(np.ones(1), reward, constraints).value == pytest.approx(max(values), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(programs(), st.floats(1.05, 3.0))
def test_infeasible_bounds_are_loosened_by_the_least_relative_sum(program, factor):
    freq, reward, constraints = program
    least = [float(freq @ one.use.min(axis=1)) for one in constraints]
    asked = [
        one._replace(most=low - (factor - 1) * max(abs(low), 1e-3)) for one, low in zip(constraints, least, strict=True)
    ]
    plan = limited_plan(freq, reward, asked)
    relative = [max(abs(one.most), 1e-3 * float(np.abs(one.use).max())) for one in asked]
    excess = [(bound - one.most) / by for bound, one, by in zip(plan.bounds, asked, relative, strict=True)]
    for one, use, bound in zip(asked, plan.uses, plan.bounds, strict=True):
        assert use <= bound + 1e-6 * (np.abs(one.use).max() + abs(bound))
    rng = np.random.default_rng(0)
    for mix in rng.dirichlet(np.full(reward.shape[1], 0.3), (50, len(freq))):  # no other mix needs less
        uses = [float(freq @ (mix * one.use).sum(axis=1)) for one in asked]
        needed = [max(use - one.most, 0.0) / by for use, one, by in zip(uses, asked, relative, strict=True)]
        assert sum(excess) <= sum(needed) * (1 + 1e-6) + 1e-6


def test_a_bound_that_does_not_give_way_stays_and_the_other_is_loosened():
    cost, latency = np.array([[1.0, 3.0]]), np.array([[2.0, 1.0]])
    plan = limited_plan(
        np.ones(1), np.array([[0.5, 0.9]]), [Constraint("usd", cost, 1.0, False), Constraint("latency_s", latency, 1.5)]
    )
    assert plan.mix[0] == pytest.approx([1.0, 0.0], abs=1e-6)
    assert plan.bounds == pytest.approx((1.0, 2.0))


@pytest.mark.parametrize("most", [0.0, 1e-12, 1e-9, -1.0])
def test_a_bound_at_or_near_nothing_leaves_the_least_use(most):
    latency = np.array([[2.0, 1.0], [3.0, 4.0]])
    plan = limited_plan(np.full(2, 0.5), np.array([[0.5, 0.9], [0.1, 0.9]]), [Constraint("latency_s", latency, most)])
    assert plan.bounds == pytest.approx((2.0,))
    assert plan.mix[[0, 1], [1, 0]] == pytest.approx([1.0, 1.0], abs=1e-6)


def test_banned_models_get_no_share_and_skipping_needs_no_use():
    reward, cost = np.array([[0.5, 0.9]]), np.array([[1.0, 3.0]])
    plan = limited_plan(np.ones(1), reward, [Constraint("usd", cost, 3.0)], banned={1})
    assert plan.mix.tolist() == [[1.0, 0.0]]
    skipping = limited_plan(np.ones(1), reward, [Constraint("usd", cost, 0.5)], allow_skip=True)
    assert skipping.mix[0] == pytest.approx([0.5, 0.0], abs=1e-9)
    assert skipping.uses == pytest.approx((0.5,))


def test_a_budget_at_the_cheapest_mix_is_kept_though_costs_differ_by_orders_of_magnitude():
    reward = np.array([[0.78, 0.96], [0.66, 0.01], [0.44, 0.64]])
    cost = [[50.84080750892149, 52.794739622634616], [1.9496413271e-07, 1.8689746051e-07], [3.2149099787, 3.4093603907]]
    plan = Plan([0.0, 0.9999739984479353, 2.6001552064612277e-05], reward, cost)
    latency = np.array([[0.74, 4.4], [7.7e-05, 1.1e-05], [9.3e-05, 1.4e-05]])
    served, others = np.tile([0.0, 1.0], (3, 1)), np.tile([-1.0, 0.0], (3, 1))
    asked = [Constraint("latency_s", latency, 1e-9), Constraint("most", served, 0.3), Constraint("least", others, 0.0)]
    budget = budget_constraint(plan, 0.0, ())
    found = limited_plan(plan.freq, reward, [budget, *asked])
    assert found.mix.sum(axis=1) == pytest.approx(1.0)
    assert found.uses[0] == pytest.approx(budget.most, rel=0.001)


@example(seed=7592, lowest=-12, spread=6.0, rate=0.0, most=1e-9)  # HiGHS does not find its own solution again
@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    lowest=st.sampled_from([-12, -6, -3]),
    spread=st.sampled_from([0.0, 1e-9, 1.0, 6.0]),
    rate=st.sampled_from([0.0, 1.0, 1.1, 100.0]),
    most=st.sampled_from([1e-9, 1e-3, 1.0, 1e3]),
)
def test_costs_of_any_size_have_a_plan(seed, lowest, spread, rate, most):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 7)), int(rng.integers(2, 6)))
    cost = 10.0 ** np.minimum(rng.uniform(lowest, 6, (shape[0], 1)) + spread * rng.random(shape), 6)
    plan = Plan(rng.dirichlet(np.ones(shape[0])), rng.random(shape), cost)
    limits = [Constraint("latency_s", 10.0 ** rng.uniform(-3, 3, shape), most)]
    limits += [Constraint("share", np.tile(np.arange(shape[1]) == 0, (shape[0], 1)).astype(float), 0.02)]
    found = limited_plan(plan.freq, plan.reward, [budget_constraint(plan, rate * plan.floor_usd, ()), *limits])
    assert found.mix.min() >= 0.0
    assert found.mix.sum(axis=1) == pytest.approx(1.0)
    assert np.isfinite(found.prices).all()


def test_constraints_that_contradict_each_other_and_do_not_give_way_are_refused():
    use = np.array([[1.0, 2.0]])
    least, most = Constraint("least", -use, -1.75, elastic=False), Constraint("most", use, 1.25, elastic=False)
    with pytest.raises(ValueError, match=r"^constraints that do not give way must have a mix that keeps them$"):
        limited_plan(np.ones(1), np.array([[0.2, 0.7]]), [least, most])
    loosened = limited_plan(np.ones(1), np.array([[0.2, 0.7]]), [least, most._replace(elastic=True)])
    assert loosened.bounds == pytest.approx((-1.75, 1.75))
    assert loosened.uses == pytest.approx((-1.75, 1.75), abs=1e-6)
