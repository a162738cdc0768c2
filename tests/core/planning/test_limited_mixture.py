"""The constraints of limits, and the draw from a plan under them: each rule on figures that can be checked by hand."""

import numpy as np
import pytest

from wiserouter import NO_CONTEXT, Limit, Limits, Plan
from wiserouter.budgets.funds import Funds
from wiserouter.budgets.limits import InfeasibleLimits, Measure
from wiserouter.planning.choice_inputs import ContextFigures
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.limit_constraints import BUDGET, banned_models, budget_constraint, limit_constraints
from wiserouter.planning.limited_mixture import LimitedMixture
from wiserouter.planning.limited_plan import LEAST_FREQ, LimitedPlan
from wiserouter.planning.policy import Choice
from wiserouter.planning.shift import Shift
from wiserouter.planning.value_mix import ValueMix
from wiserouter.planning.valued_plan import ValuedPlans, ValuedRequest

NAMES = ("small", "middle", "large")
FREQ = np.array([0.25, 0.75])
REWARD = np.array([[0.2, 0.5, 0.9], [0.4, 0.6, 0.7]])
COST = np.array([[1.0, 2.0, 4.0], [1.0, 3.0, 5.0]])
RICH = Funds(1_000.0, 10)


# Constraints


def test_the_budget_is_a_constraint_that_never_gives_way():
    plan = Plan(FREQ, REWARD, COST)
    found = budget_constraint(plan, 2.5, ())
    assert (found.name, found.most, found.elastic) == (BUDGET, 2.5, False) == ("budget", 2.5, False)
    assert found.use is plan.cost_usd
    assert budget_constraint(plan, 0.5, ()).most == pytest.approx(1.0 + 1e-9, rel=1e-12)
    assert budget_constraint(plan, 0.5, {0}).most == pytest.approx((0.5 + 2.25) * (1 + 1e-9), rel=1e-12)
    assert budget_constraint(Plan(FREQ, REWARD, COST, allow_skip=True), 0.5, ()).most == 0.5
    rare = Plan([0.0, 1.0], REWARD, [[9.0, 9.0, 9.0], [1.0, 3.0, 5.0]])
    assert budget_constraint(rare, 0.0, ()).most == pytest.approx(
        (1.0 + 9.0 * LEAST_FREQ) / (1.0 + LEAST_FREQ), rel=1e-8
    )


def test_each_limit_is_a_constraint_with_its_name_use_and_bound():
    plan = Plan(FREQ, REWARD, COST)
    latency, slow = Measure("latency_s"), Measure("latency_s", 3.0)
    uses = {latency: np.full((2, 3), 2.0), slow: np.full((2, 3), 0.1)}
    limits = Limits(
        {"latency_s": Limit(mean=2.0, share_above=(3.0, 0.05))},
        min_quality={1: 0.5, 2: 0.9},  # the last context is gone
        max_share={"large": 0.3, "small": 0.0, "other": 0.5},
        min_share={"middle": 0.1, "small": 0.0},
    )
    found = limit_constraints(limits, {latency: 1.75, slow: 0.04}, uses, plan, NAMES, {0})
    assert [(one.name, one.most, one.elastic) for one in found] == [
        ("latency_s", 1.75, True),
        ("latency_s > 3", 0.04, True),
        ("min_quality of context 1", -0.5, True),
        ("max_share of large", 0.3, True),
        ("min_share of middle", -0.1, True),
        ("min_share of small", -0.0, True),
    ]
    assert found[0].use is uses[latency]
    assert found[1].use is uses[slow]
    assert found[2].use.tolist() == [[0.0, 0.0, 0.0], pytest.approx((-REWARD[1] / 0.75).tolist())]
    assert found[3].use.tolist() == [[0.0, 0.0, 1.0]] * 2
    assert found[4].use.tolist() == [[0.0, -1.0, 0.0]] * 2
    assert found[5].use.tolist() == [[-1.0, 0.0, 0.0]] * 2
    (quality,) = limit_constraints(Limits(min_quality=0.5), {}, {}, plan, NAMES, ())
    assert (quality.name, quality.most) == ("min_quality", -0.5)
    assert np.array_equal(quality.use, -REWARD)
    rare = Plan([0.0, 1.0], REWARD, COST)
    (floor,) = limit_constraints(Limits(min_quality={0: 0.5}), {}, {}, rare, NAMES, ())
    assert floor.use[0] == pytest.approx(-REWARD[0] * (1.0 + LEAST_FREQ) / LEAST_FREQ, rel=1e-12)


def test_models_without_a_share_are_those_retired_and_those_with_a_largest_share_of_zero():
    limits = Limits(max_share={"small": 0.0, "middle": 0.5})
    assert banned_models(limits, NAMES, {2}) == {0, 2}
    assert banned_models(limits, NAMES, ()) == {0}
    assert banned_models(limits, NAMES, {1, 2}) == {1, 2}  # no other may answer


def test_limits_that_no_mix_keeps_name_what_was_asked_and_what_is_nearest():
    error = InfeasibleLimits({"latency_s": 1.0, "min_quality": 0.9}, {"latency_s": 1.25})
    assert str(error) == (
        "limits must leave a mix of models that keeps them all, got latency_s 1, min_quality 0.9: the nearest that "
        "some mix keeps are latency_s 1.25; give these, raise the budget or add a model"
    )
    assert (error.asked, error.nearest) == ({"latency_s": 1.0, "min_quality": 0.9}, {"latency_s": 1.25})


# The draw


def plan_of(mix, worth=((0.1, 0.3, 0.2), (0.1, 0.0, 0.2)), prices=(0.125, 0.4)):
    zeros = (0.0,) * len(prices)
    return LimitedPlan(np.array(mix), np.array(worth), 0.5, prices, zeros, zeros, ("budget", "latency_s"))


def figures_of(context=0, guarded=None, planned=None):
    reward, cost = REWARD[context].tolist(), COST[context].tolist()
    return ContextFigures(reward, cost, [9.0] * 3, [9.0] * 3, [0, 1, 2], guarded, planned)


def choice_of(figures, rule="plan", floor_usd=1.0):
    return Choice(0, 1.0, 0.7, 1.0, 0.2, "actual", ((0, 1.0),), figures, rule, floor_usd)


def drawn(plan, context=0, *, funds=RICH, allowed=None, shift=None, figures=None, banned=(), rule="plan", n=400):
    """Return the last choice, and how often each model was drawn."""
    mixture = LimitedMixture(plan, FREQ, banned)
    rng, found = np.random.default_rng(0), None
    counts = {}
    for _ in range(n):
        choice = choice_of(figures or figures_of(max(context, 0)), rule)
        found = mixture.vary(choice, context, funds, rng, allowed, shift)
        counts[found.model] = counts.get(found.model, 0) + 1
    return found, {k: count / n for k, count in counts.items()}


MIX = [[0.25, 0.0, 0.75], [1.0, 0.0, 0.0]]


def test_models_are_drawn_by_their_shares_and_the_choice_holds_their_figures():
    found, shares = drawn(plan_of(MIX))
    assert shares == pytest.approx({0: 0.25, 2: 0.75}, abs=0.05)
    reward, cost = (REWARD[0, found.model], COST[0, found.model])
    assert (found.expected_reward, found.expected_cost_usd) == (reward, cost)
    assert found.probability == {0: 0.25, 2: 0.75}[found.model]
    assert (found.mix, found.shadow_price, found.rule, found.floor_usd) == (((0, 0.25), (2, 0.75)), 0.125, "plan", 1.0)
    assert found.limited.mix.tolist() == MIX
    one, shares = drawn(plan_of(MIX), context=1)
    assert (one.model, one.probability, one.mix, shares) == (0, 1.0, ((0, 1.0),), {0: 1.0})


def test_a_query_without_a_context_is_drawn_from_the_mean_mix():
    found, shares = drawn(plan_of(MIX), context=NO_CONTEXT)
    assert found.mix == ((0, 0.8125), (2, 0.1875))
    assert shares == pytest.approx({0: 0.8125, 2: 0.1875}, abs=0.05)
    worth = FREQ @ np.array([[0.1, 0.3, 0.2], [0.1, 0.0, 0.2]])
    assert worth.argmax() == 2
    found, _ = drawn(plan_of(MIX), context=NO_CONTEXT, allowed=[1, 2])
    assert found.mix == ((2, 1.0),)


def test_the_rest_of_a_row_is_the_null_action_and_shares_of_rounding_are_none():
    found, shares = drawn(plan_of([[0.25, 0.0, 0.25], MIX[1]]))
    assert found.mix == ((0, 0.25), (2, 0.25), (SKIP, 0.5))
    assert shares == pytest.approx({0: 0.25, 2: 0.25, SKIP: 0.5}, abs=0.06)
    skipped, _ = drawn(plan_of([[0.0, 0.0, 0.0], MIX[1]]))
    assert (skipped.model, skipped.expected_reward, skipped.expected_cost_usd) == (SKIP, 0.0, 0.0)
    assert drawn(plan_of([[0.5, 1e-6, 0.5], MIX[1]]))[0].mix == ((0, 0.5), (2, 0.5))
    assert drawn(plan_of([[0.5, 2e-6, 0.5 - 2e-6], MIX[1]]))[0].mix[1] == (1, 2e-6)
    nearly = 1.0 - 2.9e-6
    assert drawn(plan_of([[nearly, 0.0, 0.0], MIX[1]]))[0].mix == ((0, 1.0),)
    assert drawn(plan_of([[1.0 - 3.1e-6, 0.0, 0.0], MIX[1]]))[0].mix[1][0] == SKIP


def test_a_model_that_may_not_answer_is_replaced_by_that_of_most_worth():
    found, _ = drawn(plan_of(MIX), allowed={0, 1})
    assert found.mix == ((0, 0.25), (1, 0.75))
    assert drawn(plan_of(MIX), allowed={1, 2})[0].mix == ((1, 0.25), (2, 0.75))
    assert drawn(plan_of(MIX, worth=((0.3, 0.1, 0.2),) * 2), allowed={0, 1})[0].mix == ((0, 1.0),)
    assert drawn(plan_of([[0.25, 0.0, 0.25], MIX[1]]), allowed={1})[0].mix == ((1, 0.5), (SKIP, 0.5))


def test_a_banned_model_takes_no_query_unless_no_other_may():
    worth = ((0.1, 0.3, 0.2),) * 2
    assert drawn(plan_of(MIX, worth), allowed={0, 1}, banned={1})[0].mix == ((0, 1.0),)
    assert drawn(plan_of([[0.0, 1.0, 0.0]] * 2, worth), banned={1})[0].mix == ((2, 1.0),)
    assert drawn(plan_of(MIX, worth), allowed={1}, banned={1})[0].mix == ((1, 1.0),)


def test_the_reserve_rule_holds_and_a_rate_below_the_floor_pays_for_the_cheapest_only():
    guarded = [1.5, 2.5, 4.5, 0.0]
    figures = figures_of(guarded=guarded)
    tight = Funds(4.0 + 1.5, 3)  # leaves 3.5 after two calls at the floor
    assert drawn(plan_of(MIX), figures=figures, funds=tight)[0].mix == ((0, 0.25), (1, 0.75))
    assert drawn(plan_of(MIX), figures=figures, funds=Funds(6.5, 3))[0].mix == ((0, 0.25), (2, 0.75))
    assert drawn(plan_of(MIX), figures=figures, funds=Funds(2.9, 3))[0].mix == ((0, 1.0),)
    assert drawn(plan_of(MIX), funds=Funds(2.9, 3))[0].mix == ((0, 1.0),)
    assert drawn(plan_of(MIX), funds=Funds(3.0, 3))[0].mix == ((0, 0.25), (2, 0.75))
    assert drawn(plan_of(MIX), funds=Funds(2.9, 3), allowed={2, 1})[0].mix == ((1, 1.0),)
    held_back = figures._replace(drift_margin_usd=0.5)
    assert drawn(plan_of(MIX), figures=held_back, funds=Funds(6.5, 3))[0].mix == ((0, 0.25), (1, 0.75))


def test_a_phase_of_exploration_stays_as_it_is():
    choice = choice_of(figures_of(), rule="explore")
    mixture = LimitedMixture(plan_of(MIX), FREQ)
    assert mixture.vary(choice, 0, RICH, np.random.default_rng(0), None, None) is choice
    bare = choice_of(None)
    assert mixture.vary(bare, 0, RICH, np.random.default_rng(0), None, None) is bare


def test_a_query_with_figures_of_its_own_takes_the_model_of_most_worth_at_these():
    plan = plan_of(MIX)
    found, shares = drawn(plan, shift=Shift(reward=[0.0, 0.0, -0.3]))
    assert shares == {1: 1.0}  # worths 0.1, 0.3 and 0.2 - 0.3
    assert (found.probability, found.mix, found.expected_reward) == (1.0, ((1, 1.0),), 0.5)
    found, shares = drawn(plan, shift=Shift(reward=[0.25, 0.0, 0.0]))
    assert shares == {0: 1.0}
    assert found.expected_reward == pytest.approx(0.45)
    found, shares = drawn(plan, shift=Shift(own_cost_usd=[1.0, 4.0, float("nan")]))
    assert shares == {2: 1.0}  # 0.3 - 0.125 x (4 - 2) = 0.05
    assert found.expected_cost_usd == 4.0
    same = Shift(own_cost_usd=[float("nan")] * 3)
    assert drawn(plan, shift=same)[0].mix == ((0, 0.25), (2, 0.75))
    assert drawn(plan, shift=Shift())[0].mix == ((0, 0.25), (2, 0.75))


def test_a_query_that_is_worth_nothing_is_skipped_where_the_mix_skips():
    lossy = Shift(reward=[-0.2, -0.5, -0.9])
    assert drawn(plan_of([[0.25, 0.0, 0.25], MIX[1]]), shift=lossy)[0].model == SKIP
    assert drawn(plan_of(MIX), shift=lossy)[0].model != SKIP
    assert drawn(plan_of([[0.25, 0.0, 0.25], MIX[1]]), shift=Shift(reward=[-0.05] * 3))[0].model == 1


def test_a_value_weighs_the_reward_of_the_query():
    plan = plan_of(MIX, worth=((0.1, 0.1, 0.0), (0.0, 0.0, 0.0)))
    found, shares = drawn(plan, shift=Shift(valued=valued(3.0)))
    assert shares == {2: 1.0}  # 0.1 + 2 x 0.2, 0.1 + 2 x 0.5 and 2 x 0.9
    assert found.shadow_price == 0.125 / 3.0
    assert drawn(plan, shift=Shift(valued=valued(0.5)))[1] == {0: 1.0}
    assert drawn(plan, shift=Shift(valued=valued(1.0)))[0].mix == ((0, 0.25), (2, 0.75))


def valued(value):
    return ValuedRequest(value, ValuedPlans(ValueMix()))


def test_the_shares_of_all_requests_are_means_over_contexts():
    assert LimitedMixture(plan_of(MIX), FREQ).shares.tolist() == [0.8125, 0.0, 0.1875]
