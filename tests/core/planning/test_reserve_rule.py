"""The reserve rule by hand: what a call may cost, and the models that this permits."""

import math

import pytest

from support.draws import Scripted
from wiserouter import Estimates, Plan
from wiserouter.budgets.funds import Funds
from wiserouter.planning.mixture import Mixture, ReserveRule, permitted, room_usd


def permits(reserve_rule, plan, funds, model):
    return reserve_rule.guarded_cost_usd(0)[model] <= room_usd(funds, plan.floor_usd, reserve_rule.drift_margin_usd)


def test_the_reserve_rule_by_hand():
    # c = (1, 3) without spread: a call may cost b - (tau - 1) x 1
    plan = Plan([1.0], [[0.2, 0.9]], [[1.0, 3.0]])
    reserve_rule = ReserveRule(plan, 0.0)
    assert reserve_rule.guarded_cost_usd(0) == [1.0, 3.0, 0.0]
    assert room_usd(Funds(12.0, 10), plan.floor_usd, reserve_rule.drift_margin_usd) == 3.0
    assert room_usd(Funds(11.9, 10), plan.floor_usd, reserve_rule.drift_margin_usd) == pytest.approx(2.9)
    mixture = Mixture(plan, "actual", reserve_rule)
    rich = mixture.choose(0, Funds(12.0, 10), Scripted(0.05))  # p(large) = (1.2 - 1) / 2 = .1
    assert (rich.model, rich.probability) == (1, pytest.approx(0.1))
    poor = mixture.choose(0, Funds(11.9, 10), Scripted(0.05))
    assert (poor.model, poor.probability) == (0, 1.0)


def test_the_guarded_cost_adds_the_spread_of_a_models_costs():
    estimates = Estimates(1, 1)
    for cost in (1.0, 3.0):
        estimates.add_cost(0, 0, cost)
    reserve_rule = ReserveRule(Plan([1.0], [[0.5]], [[2.0]]), estimates.cost_spread_usd())  # sd = sqrt(2)
    assert reserve_rule.guarded_cost_usd(0)[0] == pytest.approx(2.0 + 2.0**0.5)


def test_the_reserve_rule_with_drift_and_cushion_by_hand():
    # floor 1, spread of the cheapest 0.1; 10 requests: the nine after it cost 9, deviate by 2 x 0.1 x 3, and 0.5 beyond
    # the mean is left for the last
    plan = Plan([1.0], [[0.2, 0.9]], [[1.0, 3.0]])
    reserve_rule = ReserveRule(plan, [[0.1, 0.2]], drift=2.0)
    least = 3.0 + 0.2 + 9 * 1.0 + 2.0 * 0.1 * math.sqrt(9) + 0.5
    assert permits(reserve_rule, plan, Funds(least + 1e-9, 10, cushion_usd=0.5), 1)
    assert not permits(reserve_rule, plan, Funds(least - 1e-9, 10, cushion_usd=0.5), 1)
    assert permits(reserve_rule, plan, Funds(least - 0.5 + 1e-9, 10), 1)
    plan.revise(0, [0.2, 0.9], [1.0, 2.0])
    assert permits(reserve_rule, plan, Funds(least - 1.0 + 1e-9, 10, cushion_usd=0.5), 1)


def test_nothing_is_held_back_for_queries_that_may_be_skipped():
    plan = Plan([1.0], [[0.9]], [[3.0]], allow_skip=True)
    assert permits(ReserveRule(plan, [[0.1]], drift=3.0), plan, Funds(3.1 + 1e-9, 1_000), 0)


def test_the_smallest_room_counts_where_several_budgets_bear_a_call():
    both = Funds(3.0, 1, (Funds(3.0, 1), Funds(90.0, 89)))
    assert room_usd(Funds(10.0, 5), 1.0, None) == 6.0
    assert room_usd(both, 1.0, None) == 2.0
    assert room_usd(both, 1.0, 0.1) == pytest.approx(90.0 - 88.0 - 0.1 * math.sqrt(88))
    assert room_usd(both._replace(cushion_usd=0.5), 1.0, None) == 1.5


def test_models_within_the_room_are_permitted():
    assert permitted([2, 0, 1], [1.0, 3.0, 2.0, 0.0], 2.0) == [2, 0]
    assert permitted([1], [1.0, 3.0, 2.0, 0.0], 2.0) == []
    assert permitted([1, 2], None, 0.0) == [1, 2]
