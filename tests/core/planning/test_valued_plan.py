"""Tests of the plan over contexts and tiers of values, against scipy's linear programs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.problems import optimum_of_values
from wiserouter.errors import InvalidInput
from wiserouter.learning.residuals.price_curve import PriceCurve
from wiserouter.planning.plan import Plan
from wiserouter.planning.value_mix import Tier, ValueMix, check_value
from wiserouter.planning.valued_plan import ValuedPlan, ValuedPlans, ValuedRequest


@st.composite
def problems(draw: st.DrawFn) -> tuple[Plan, list[Tier], float]:
    """Draw a plan, tiers and a rate from below the second cheapest to beyond the ceiling."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_contexts, n_models, n_tiers = (int(rng.integers(1, most)) for most in (5, 6, 5))
    digits = draw(st.sampled_from([1, 6]))  # with one digit there are many ties
    reward = rng.random((n_contexts, n_models)).round(digits)
    cost = (0.1 + rng.random((n_contexts, n_models))).round(digits)
    plan = Plan(rng.dirichlet(np.ones(n_contexts)), reward, cost, allow_skip=draw(st.booleans()))
    values = np.unique(np.exp(rng.uniform(-2, 2, n_tiers)).round(digits) + 0.1)
    tiers = [Tier(float(v), float(s)) for v, s in zip(values, rng.dirichlet(np.ones(len(values))), strict=True)]
    low, high = plan.floor_usd, plan.ceiling_usd
    return plan, tiers, low + draw(st.floats(0.0, 1.2)) * (high - low)


def outcome(plan: Plan, tiers: list[Tier], rate: float) -> tuple[float, float]:
    """Return the worth and the spend of the splits of all contexts and tiers."""
    valued, worth, spend = ValuedPlan(plan, tiers), 0.0, 0.0
    for context in range(plan.n_contexts):
        gain, cost = [*plan.reward[context], 0.0], [*plan.cost_usd[context], 0.0]
        for value, share in tiers:
            low, high, part, _ = valued.split(context, rate, value)
            weight = plan.freq[context] * share
            worth += weight * value * ((1 - part) * gain[low] + part * gain[high])
            spend += weight * ((1 - part) * cost[low] + part * cost[high])
    return worth, spend


@given(problems())
def test_the_splits_reach_the_optimum_of_the_linear_program_and_keep_the_rate(
    problem: tuple[Plan, list[Tier], float],
) -> None:
    plan, tiers, rate = problem
    worth, spend = outcome(plan, tiers, rate)
    best = optimum_of_values(plan, tiers, rate)
    assert worth == pytest.approx(best, abs=1e-8)
    assert spend <= rate + 1e-9


@given(problems())
def test_a_single_tier_splits_as_the_plan_does(problem: tuple[Plan, list[Tier], float]) -> None:
    plan, _, rate = problem
    one = ValuedPlan(plan, [Tier(1.0, 1.0)])
    for context in range(plan.n_contexts):
        assert one.split(context, rate, 1.0) == tuple(plan.split(context, rate))


@given(problems(), st.floats(0.1, 10.0))
def test_any_value_takes_a_model_that_is_best_at_its_price(
    problem: tuple[Plan, list[Tier], float], value: float
) -> None:
    plan, tiers, rate = problem
    valued = ValuedPlan(plan, tiers)
    for context in range(plan.n_contexts):
        low, _, _, price = valued.split(context, rate, value)
        gain, cost = np.append(plan.reward[context], 0.0), np.append(plan.cost_usd[context], 0.0)
        worth = (gain - price * cost)[: None if plan.allow_skip else -1]
        assert gain[low] - price * cost[low] >= worth.max() - 1e-9


def test_below_the_floor_the_cheapest_models_go_on() -> None:
    plan = Plan([1.0], [[0.2, 0.9]], [[1.0, 3.0]])
    mix = ValueMix()
    mix.add(5.0)
    request = ValuedRequest(5.0, ValuedPlans(mix))
    assert request.split_from_floor(plan, 0, 0.5) == plan.split_from_floor(0, 0.5)


def test_plans_are_solved_again_only_when_the_plan_or_the_shares_have_changed() -> None:
    plan, mix = Plan([1.0], [[0.2, 0.9]], [[1.0, 3.0]]), ValueMix()
    mix.add(1.0)
    plans = ValuedPlans(mix)
    first = plans.of(plan)
    assert plans.of(plan) is first
    plan.revise(0, [0.2, 0.5], [1.0, 3.0])
    second = plans.of(plan)
    assert second is not first
    mix.add(4.0)
    assert plans.of(plan) is not second


def test_shares_follow_the_recent_requests() -> None:
    mix = ValueMix(n_plain=1e9)  # no more than the memory counts
    for _ in range(20_000):
        mix.add(2.0)
    plain, valued = mix.tiers()
    assert plain.share == pytest.approx(0.9998**20_000, rel=0.03)
    assert (plain.value, valued.value) == (1.0, pytest.approx(2.0))


def test_the_price_curve_of_a_mix_spends_the_rate() -> None:
    own = PriceCurve(np.array([0.0, 1.0, 2.0, 4.0, 8.0]), np.array([9.0, 7.0, 4.0, 2.0, 1.0]))
    mix = ValueMix(n_plain=1)
    mix.add(2.0)
    request = ValuedRequest(2.0, ValuedPlans(mix))
    rate = 5.5  # at the price 2 the value 1 spends 4, and the value 2 as at the price 1, 7
    assert request.shadow_price(own, rate) * 2.0 == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), 1e4, 1e-4, "3", None, True])
def test_a_value_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"value must be a number from 0.001 to 1000, got"):
        check_value(value)  # type: ignore[arg-type]
