import itertools
import math
import re
from array import array
from fractions import Fraction
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.problems import Problem, linprog_value, problems, rate_of
from wiserouter import Plan
from wiserouter.errors import InfeasibleBudget, InvalidInput
from wiserouter.planning.ceiling import ceiling_of
from wiserouter.planning.envelope import SKIP, context_envelope


def plan_of(problem: Problem) -> Plan:
    return Plan(problem.freq, problem.reward, problem.cost_usd, allow_skip=problem.allow_skip)


@settings(max_examples=300, deadline=None)
@given(problems())
def test_value_equals_linprog(problem):
    rate = max(rate_of(problem), plan_of(problem).floor_usd)
    assert plan_of(problem).value(rate) == pytest.approx(linprog_value(problem, rate), abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(problems())
def test_mix_is_a_feasible_point_that_attains_the_value_and_splits_at_most_one_context(problem):
    plan = plan_of(problem)
    rate = max(rate_of(problem), plan.floor_usd)
    mix = plan.mix(rate)
    weights = problem.freq[:, None]
    assert mix.min() >= 0.0
    assert np.all(mix.sum(axis=1) <= 1 + 1e-12)
    if not problem.allow_skip:
        assert mix.sum(axis=1) == pytest.approx(np.ones(len(mix)), abs=1e-12)
    spend, value = (weights * mix * problem.cost_usd).sum(), (weights * mix * problem.reward).sum()
    assert spend <= rate + 1e-9
    assert spend == pytest.approx(plan.spend_usd(rate), abs=1e-9)
    assert value == pytest.approx(plan.value(rate), abs=1e-9)
    split = [plan.split(j, rate) for j in range(plan.n_contexts)]
    assert sum(0 < part.share < 1 for part in split) <= 1


@settings(max_examples=200, deadline=None)
@given(problems())
def test_curve_is_concave_and_rising_and_its_slopes_are_the_shadow_prices(problem):
    plan = plan_of(problem)
    curve = plan.curve()
    assert np.all(np.diff(curve.spend_usd) > 0)
    assert np.all(np.diff(curve.value) >= 0)
    assert np.all(np.diff(curve.shadow_price) <= 0)
    assert curve.shadow_price[-1] == 0.0
    for spend, value, price in zip(*curve, strict=True):
        assert plan.value(spend) == pytest.approx(value, abs=1e-12)
        assert plan.shadow_price(spend) == price
    assert np.diff(curve.value) == pytest.approx(np.diff(curve.spend_usd) * curve.shadow_price[:-1], abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(problems(max_contexts=8, max_models=8), st.lists(st.floats(0, 2), min_size=2, max_size=6))
def test_more_budget_never_lowers_the_value(problem, extra):
    plan = plan_of(problem)
    values = [plan.value(plan.floor_usd + more) for more in sorted(extra)]
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(values))


@settings(max_examples=100, deadline=None)
@given(problems(max_contexts=8, max_models=8), st.floats(1e-6, 1e6))
def test_scaling_costs_and_rate_together_changes_nothing(problem, scale):
    rate = max(rate_of(problem), plan_of(problem).floor_usd)
    scaled = Plan(problem.freq, problem.reward, problem.cost_usd * scale, allow_skip=problem.allow_skip)
    assert scaled.value(max(rate * scale, scaled.floor_usd)) == pytest.approx(plan_of(problem).value(rate), abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(problems(max_contexts=8, max_models=8))
def test_a_dominated_or_duplicate_model_changes_nothing(problem):
    rate = max(rate_of(problem), plan_of(problem).floor_usd)
    worse = (problem.reward[:, :1] * 0.9, problem.cost_usd[:, :1] * 1.1)
    twin = (problem.reward[:, :1], problem.cost_usd[:, :1])
    for reward, cost in (worse, twin):
        more = Plan(
            problem.freq,
            np.hstack([problem.reward, reward]),
            np.hstack([problem.cost_usd, cost]),
            allow_skip=problem.allow_skip,
        )
        assert more.value(rate) == plan_of(problem).value(rate)
        assert more.mix(rate)[:, -1].max() == 0.0


@settings(max_examples=50, deadline=None)
@given(problems(max_contexts=4, max_models=5), st.integers(0, 2**32 - 1))
def test_choose_draws_from_the_mix(problem, seed):
    plan = plan_of(problem)
    rate = max(rate_of(problem), plan.floor_usd)
    rng = np.random.default_rng(seed)
    for context in range(plan.n_contexts):
        drawn = [plan.choose(context, rate, rng) for _ in range(400)]
        shares = np.bincount([k for k in drawn if k is not None], minlength=plan.n_models) / 400
        assert shares == pytest.approx(plan.mix(rate)[context], abs=0.13)


def test_hand_checked_budget_splits_the_context_where_money_buys_least():
    plan = Plan(freq=[0.5, 0.5], reward=[[0.2, 0.8], [0.4, 0.6]], cost_usd=[[1, 2], [1, 2]])
    # steps: context 0 buys .6 per USD, context 1 buys .2; floor 1.0, then 0.5 USD for each step
    assert plan.floor_usd == 1.0
    assert plan.ceiling_usd == 2.0
    assert plan.value(1.0) == pytest.approx(0.3)
    assert plan.mix(1.25).tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert plan.shadow_price(1.25) == pytest.approx(0.6)
    assert plan.mix(1.75).tolist() == [[0.0, 1.0], [0.5, 0.5]]
    assert plan.shadow_price(1.75) == pytest.approx(0.2)
    assert plan.value(1.75) == pytest.approx(0.65)
    assert plan.shadow_price(2.0) == 0.0
    assert plan.spend_usd(99.0) == 2.0


def test_the_null_action_serves_the_best_ratio_first():
    plan = Plan(freq=[0.5, 0.5], reward=[[0.9], [0.1]], cost_usd=[[1.0], [1.0]], allow_skip=True)
    assert plan.floor_usd == 0.0
    assert plan.mix(0.5).tolist() == [[1.0], [0.0]]
    assert plan.choose(1, 0.5, np.random.default_rng(0)) is None
    assert plan.rows[0].hull == [SKIP, 0]


def test_degenerate_pools():
    one = Plan(freq=[1.0], reward=[[0.7]], cost_usd=[[0.1]])
    assert (one.floor_usd, one.ceiling_usd, one.shadow_price(0.1)) == (0.1, 0.1, 0.0)
    free = Plan(freq=[1.0], reward=[[0.7, 0.8, 0.8]], cost_usd=[[0.0, 0.0, 0.0]], allow_skip=True)
    assert free.mix(0.0).tolist() == [[0.0, 1.0, 0.0]]
    never = Plan(freq=[1.0, 0.0], reward=[[0.1, 0.9], [0.1, 0.5]], cost_usd=[[1, 2], [1, 2]])
    assert never.mix(1.5)[1].tolist() == [1.0, 0.0]  # .4 per USD is less than the .8 paid at the margin
    assert never.mix(2.0)[1].tolist() == [0.0, 1.0]


def hull(costs, gains, *, allow_skip=False):
    return context_envelope(0, 1.0, costs, gains, allow_skip=allow_skip).hull


def test_equal_costs_keep_the_better_model():
    assert hull([1.0, 1.0, 1.0], [0.1, 0.9, 0.5]) == [1]
    assert hull([0.0], [0.0], allow_skip=True) == [SKIP]
    assert hull([1.0, 2.0, 3.0], [0.25, 0.5, 0.75]) == [0, 2]  # on one line
    assert hull([1.0, 2.0, 3.0, 4.0], [0.25, 0.75, 0.5, 0.875]) == [0, 1, 3]
    assert hull([0.0, 1.0], [0.3, 0.9], allow_skip=True) == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 8)), min_size=1, max_size=7), st.booleans())
def test_an_envelope_is_what_no_mixture_of_two_models_beats_ties_included(points, allow_skip):
    everyone = dict(enumerate(points)) | ({SKIP: (0, 0)} if allow_skip else {})

    def beaten(k):
        cost, gain = everyone[k]
        if any((c, -g, i) < (cost, -gain, k) and c <= cost and g >= gain for i, (c, g) in everyone.items()):
            return True  # by one model that is no worse; of equal ones the first stays
        lower = [(c, g) for c, g in everyone.values() if c < cost]
        upper = [(c, g) for c, g in everyone.values() if c > cost]
        return any(
            (gain - lg) * (uc - lc) <= (ug - lg) * (cost - lc) for lc, lg in lower for uc, ug in upper if ug > gain
        )

    expected = sorted((k for k in everyone if not beaten(k)), key=lambda k: everyone[k])
    costs, gains = ([float(point[axis]) / 8 for point in points] for axis in (0, 1))
    assert hull(costs, gains, allow_skip=allow_skip) == expected


def test_a_rate_below_the_floor_is_infeasible_and_says_so():
    plan = Plan(freq=[1.0], reward=[[0.2, 0.9]], cost_usd=[[0.01, 0.03]])
    for ask in (plan.mix, plan.value, plan.spend_usd, plan.shadow_price):
        with pytest.raises(InfeasibleBudget, match=r"at least 0\.01.*got 0\.005") as error:
            ask(0.005)
    assert (error.value.rate_usd, error.value.floor_usd) == (0.005, 0.01)
    assert plan.value(0.01 * (1 - 1e-13)) == 0.2  # rounding is not infeasibility


SHAPES = "freq, reward and cost_usd must have shapes (J,), (J, K) and (J, K) with J, K >= 1, got "


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0])
def test_a_rate_that_is_no_amount_is_refused(rate):
    with pytest.raises(InvalidInput, match=r"^rate_usd must be a finite number of at least 0, got"):
        Plan(freq=[1.0], reward=[[0.5]], cost_usd=[[0.0]]).mix(rate)


@pytest.mark.parametrize(
    ("freq", "reward", "cost_usd", "says"),
    [
        ([1.0], [[math.nan]], [[1.0]], "reward must be finite and at least 0, got nan"),
        ([1.0], [[1.5]], [[1.0]], "reward must lie in [0, 1], got 1.5: rescale the scores"),
        ([1.0], [[0.5]], [[-1.0]], "cost_usd must be finite and at least 0, got -1.0"),
        ([1.0], [[0.5]], [[math.inf]], "cost_usd must be finite and at least 0, got inf"),
        ([-1.0, 2.0], [[0.5]] * 2, [[1.0]] * 2, "freq must be finite and at least 0, got -1.0"),
        ([0.5], [[0.5]], [[1.0]], "freq must sum to 1, got 0.5: divide by its sum"),
        ([0.5, 0.5], [[0.5]], [[1.0]], f"{SHAPES}(2,), (1, 1) and (1, 1)"),
        ([1.0], [[0.5, 0.5]], [[1.0]], f"{SHAPES}(1,), (1, 2) and (1, 1)"),
        ([1.0], [[]], [[]], f"{SHAPES}(1,), (1, 0) and (1, 0)"),
        ([1.0], [0.5], [1.0], f"{SHAPES}(1,), (1,) and (1,)"),
        (
            [1.0],
            [["high"]],
            [[1.0]],
            "reward must be an array of numbers: could not convert string to float: np.str_('high')",
        ),
    ],
)
def test_bad_arrays_are_refused(freq, reward, cost_usd, says):
    with pytest.raises(InvalidInput) as refused:
        Plan(freq, reward, cost_usd)
    assert str(refused.value).replace("np.str_('high')", "'high'") == says.replace("np.str_('high')", "'high'")
    bad = re.search(r"got (-?\d\.\d|nan|inf)(:|$)", says)
    assert repr(refused.value.value) == (repr(float(bad[1])) if bad else "None")


def test_the_callers_arrays_are_not_held():
    reward = np.array([[0.2, 0.9]])
    plan = Plan([1.0], reward, [[1.0, 2.0]])
    reward[...] = 0.0
    assert plan.value(2.0) == pytest.approx(0.9)


@settings(max_examples=150, deadline=None)
@given(problems(max_contexts=12, max_models=8), st.integers(0, 2**32 - 1))
def test_a_revised_plan_equals_one_built_again(problem, seed):
    rng = np.random.default_rng(seed)
    plan, reward, cost = plan_of(problem), problem.reward.copy(), problem.cost_usd.copy()
    levels = 4 if seed % 2 else 10_000  # a coarse grid has ties
    for _ in range(5):
        context = int(rng.integers(plan.n_contexts))
        reward[context], cost[context] = rng.integers(levels + 1, size=(2, plan.n_models)) / levels
        plan.revise(context, reward[context].tolist(), cost[context].tolist())
        if rng.random() < 0.5:  # looked at between two revisions, or not
            plan.split(context, plan.floor_usd)
    fresh = Plan(problem.freq, reward, cost, allow_skip=problem.allow_skip)
    assert (plan.floor_usd, plan.ceiling_usd) == (fresh.floor_usd, fresh.ceiling_usd)
    for revised, built in zip(plan.curve(), fresh.curve(), strict=True):
        assert np.array_equal(revised, built)
    for rate in np.linspace(fresh.floor_usd, fresh.ceiling_usd * 1.1, 9):
        assert np.array_equal(plan.mix(rate), fresh.mix(rate))
        assert plan.value(rate) == fresh.value(rate)
        assert plan.spend_usd(rate) == fresh.spend_usd(rate)
        assert plan.shadow_price(rate) == fresh.shadow_price(rate)
        splits = [[one.split(j, rate) for j in range(fresh.n_contexts)] for one in (plan, fresh)]
        assert splits[0] == splits[1]
    now = problem._replace(reward=reward, cost_usd=cost)
    rate = max(rate_of(now), fresh.floor_usd)
    assert plan.value(rate) == pytest.approx(linprog_value(now, rate), abs=1e-9)
    assert np.array_equal(plan.without_context().reward, fresh.without_context().reward)


@settings(max_examples=60, deadline=None)
@given(st.integers(9, 60), st.integers(1, 12), st.integers(0, 10**6), st.booleans())
def test_steps_of_a_revised_context_are_merged_into_the_order_of_all(n_contexts, n_models, seed, allow_skip):
    rng = np.random.default_rng(seed)
    for plan, fresh in revised(n_contexts, n_models, rng, seed, allow_skip=allow_skip):
        assert plan.steps == fresh.steps
        assert plan.curve().spend_usd.tolist() == fresh.curve().spend_usd.tolist()
        rates = rng.uniform(fresh.floor_usd, fresh.ceiling_usd * 1.1, 3)
        assert all(np.array_equal(plan.mix(rate), fresh.mix(rate)) for rate in rates)


@settings(max_examples=120, deadline=None)
@given(st.integers(9, 60), st.integers(1, 12), st.integers(0, 10**6), st.booleans(), st.sampled_from([0, 99]))
def test_the_steps_near_the_price_split_as_all_steps_do(n_contexts, n_models, seed, allow_skip, fewest):
    rng = np.random.default_rng(seed)
    with mock.patch("wiserouter.planning.plan.SMALL_CELLS", 0):  # also where all steps take less time
        plans = revised(n_contexts, n_models, rng, seed, allow_skip=allow_skip, revisable=True)
    with mock.patch("wiserouter.planning.step_window._FEWEST", fewest):
        for plan, fresh in plans:
            assert plan.floor_usd == fresh.floor_usd
            rates = rng.uniform(fresh.floor_usd, fresh.ceiling_usd * 1.1, 3).tolist()
            for rate in (*rates, rates[0] + (rates[1] - rates[0]) * 1e-3, fresh.floor_usd):
                for context in range(n_contexts):
                    *found, share, price = plan.split(context, rate)
                    *expected, whole_share, whole_price = fresh.split(context, rate)
                    assert (found, price) == (expected, whole_price)
                    assert share == pytest.approx(whole_share, abs=1e-6)
                    assert {type(share), type(price)} == {float}
            assert plan.split_from_floor(0, fresh.floor_usd / 2) == fresh.split_from_floor(0, fresh.floor_usd / 2)
            assert plan.steps == fresh.steps
            assert plan.value(rates[0]) == fresh.value(rates[0])


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(0, 10**6))
def test_rows_of_many_models_are_solved_like_those_of_few(problem, seed):
    with mock.patch("wiserouter.learning.long_rows.LONG_ROW", 0):
        long, short = plan_of(problem), plan_of(problem)
        context, (reward, cost) = 0, np.random.default_rng(seed).random((2, long.n_models))
        long.revise(context, reward.tolist(), cost.tolist())
    assert isinstance(long.rows[0].reward, array)
    short.revise(context, reward.tolist(), cost.tolist())
    assert isinstance(short.rows[0].reward, list)
    assert long.steps == short.steps
    for rate in np.linspace(short.floor_usd, short.ceiling_usd * 1.1, 5):
        assert np.array_equal(long.mix(rate), short.mix(rate))
    now = problem._replace(reward=short.reward, cost_usd=short.cost_usd)
    rate = max(rate_of(now), short.floor_usd)
    assert long.value(rate) == pytest.approx(linprog_value(now, rate), abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 120), st.sampled_from([1, 2, 9, 10**6]), st.integers(-320, 2), st.integers(0, 999), st.booleans())
def test_no_model_lies_above_the_envelope_whatever_calls_cost(n_models, levels, exponent, seed, allow_skip):
    cost, reward = np.random.default_rng(seed).integers(levels + 1, size=(2, n_models)) / levels
    cost *= 10.0**exponent
    hull = context_envelope(0, 1.0, cost.tolist(), reward.tolist(), allow_skip=allow_skip).hull
    points = {k: (Fraction(cost[k]), Fraction(reward[k])) for k in range(n_models)}
    points |= {SKIP: (Fraction(), Fraction())} if allow_skip else {}
    best = {usd: max(gain for other, gain in points.values() if other == usd) for usd, _ in points.values()}
    assert points[hull[0]] == (min(best), best[min(best)])
    assert points[hull[-1]][1] == max(best.values())
    for (usd, gain), (next_usd, next_gain) in pairwise(points[k] for k in hull):
        assert usd < next_usd
        assert gain < next_gain
        slope = (next_gain - gain) / (next_usd - usd)
        if slope < 1e300:  # a steeper one is infinite
            between = [one for one in best if usd < one < next_usd]
            assert all(best[one] <= gain + slope * (one - usd) + Fraction(1e-12) for one in between)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_where_money_is_no_limit_the_program_needs_no_solution(problem):
    plan = plan_of(problem)
    ceiling = ceiling_of(plan)
    assert ceiling.spend_usd == pytest.approx(plan.ceiling_usd, rel=1e-9, abs=1e-12)
    taken = plan.freq @ plan.mix(plan.ceiling_usd * (1.0 + 1e-9))
    assert taken[ceiling.model] == pytest.approx(taken.max(), abs=1e-9)


def revised(n_contexts, n_models, rng, seed, *, allow_skip, revisable=False):
    """Return a plan after several revisions each, with one that is built again."""
    levels = (2, 4, 10_000)[seed % 3]  # coarse grids have equal slopes in many contexts
    reward, cost = rng.integers(levels + 1, size=(2, n_contexts, n_models)) / levels
    freq = rng.dirichlet(np.ones(n_contexts))
    plan = Plan(freq, reward, cost, allow_skip=allow_skip, revisable=revisable)

    def after_each():
        for _ in range(6):
            for context in rng.integers(n_contexts, size=rng.integers(1, 4)):  # one context may change twice
                reward[context], cost[context] = rng.integers(levels + 1, size=(2, n_models)) / levels
                plan.revise(int(context), reward[context].tolist(), cost[context].tolist())
            yield plan, Plan(freq, reward, cost, allow_skip=allow_skip)

    return after_each()
