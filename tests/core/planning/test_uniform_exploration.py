import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, Contexts, EpsilonFirst, Estimates, ExploreShare, Model, Offline, Optimistic, WiseRouter
from wiserouter.budgets.funds import Funds
from wiserouter.errors import BudgetError, InvalidInput
from wiserouter.planning.choice_inputs import ContextFigures
from wiserouter.planning.policy import Choice
from wiserouter.planning.shift import Shift

REWARD, COST = [[0.2, 0.3, 0.9]], [[1.0, 2.0, 4.0]]
NAMES = ("small", "middle", "large")


def make(share=None, bounds=(2.0, 4.0, 8.0), **options):
    estimates = Estimates(1, 3)
    estimates.add_table(np.zeros(1, dtype=np.int64), REWARD, COST)
    models = [Model(name, max_cost_usd=most) for name, most in zip(NAMES, bounds, strict=True)]
    explore = None if share is None else ExploreShare(share)
    options.setdefault("policy", Offline(accounting="paper"))
    return WiseRouter(models, Contexts.single(), estimates=estimates, explore=explore, seed=0, **options)


def choice(mix, *, model, guarded=None, floor=0.0, rule="plan"):
    figures = ContextFigures(REWARD[0], COST[0], [9.0] * 3, [9.0] * 3, [0, 2], guarded)
    return Choice(model, dict(mix)[model], 0.1, COST[0][model], REWARD[0][model], "actual", mix, figures, rule, floor)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.sets(st.integers(0, 2), min_size=1), st.integers(0, 99))
def test_the_mix_is_the_plans_and_a_uniform_share(share, high, others, seed):
    allowed = others | {0, 2}
    told = choice(((0, 1.0 - high), (2, high)), model=2)
    varied = ExploreShare(share).vary(told, Funds(100.0, 10), np.random.default_rng(seed), allowed)
    mix = dict(varied.mix)
    assert sum(mix.values()) == pytest.approx(1.0)
    assert mix.keys() == allowed
    for k in allowed:
        assert mix[k] == pytest.approx((1 - share) * {0: 1 - high, 2: high}.get(k, 0.0) + share / len(allowed))
    assert varied.probability == mix[varied.model]
    assert (varied.expected_cost_usd, varied.expected_reward) == (COST[0][varied.model], REWARD[0][varied.model])


def test_models_are_drawn_as_often_as_the_mix_says():
    router = make(0.3)
    router.start(Budget(10_000.0, 4_000))
    counts = dict.fromkeys(NAMES, 0)
    expected = np.zeros(3)
    for _ in range(2_000):
        decision = router.decide("a")
        counts[decision.model] += 1
        expected += [model.probability for model in router.explain(decision).models]
        router.release(decision)
    spread = np.sqrt(expected * (1 - expected / 2_000))
    assert (abs(np.array([*counts.values()]) - expected) < 4 * spread).all()
    assert expected[1] == pytest.approx(200.0)  # the plan never takes the middle one


def test_limits_and_the_reserve_rule_hold():
    rng = np.random.default_rng(0)
    tight = choice(((0, 1.0),), model=0, guarded=[1.1, 2.1, 4.1, 0.0], floor=1.0)
    varied = ExploreShare(1.0).vary(tight, Funds(11.5, 10), rng)  # room: 11.5 - 9 x 1 = 2.5
    assert dict(varied.mix) == {0: 0.5, 1: 0.5}
    alone = ExploreShare(1.0).vary(tight, Funds(11.0, 10), rng)
    assert alone == tight
    assert ExploreShare(1.0).vary(tight, Funds(9.0, 10), rng) == tight  # nothing but what the plan took is permitted
    own = ExploreShare(1.0).vary(tight, Funds(11.5, 10), rng, None, Shift(own_cost_usd=[math.nan, 4.0, math.nan]))
    assert dict(own.mix) == {0: 1.0}


def test_what_explores_or_has_run_out_stays_as_it_is():
    rng = np.random.default_rng(0)
    broke = choice(((0, 1.0),), model=0, rule="cheapest")
    assert ExploreShare(1.0).vary(broke, Funds(5.0, 5), rng) is broke
    trial = broke._replace(rule="explore", figures=ContextFigures(*[[0.0] * 3] * 5, invoked=[0.0] * 3))
    assert ExploreShare(1.0).vary(trial, Funds(5.0, 5), rng) is trial


@pytest.mark.parametrize("policy", [Offline(), Optimistic(), EpsilonFirst(20)])
def test_a_hard_budget_is_kept_and_lasts(policy):
    rng = np.random.default_rng(1)
    router = make(0.3, policy=policy)
    router.start(Budget(600.0, 300, limit="hard"))
    answered = 0
    for _ in range(300):
        try:
            decision = router.decide("a")
        except BudgetError:
            continue
        k = router.pool.index(decision.model)
        router.charge(decision, COST[0][k] * rng.uniform(0, 2))
        router.reward(decision, REWARD[0][k])
        answered += 1
    status = router.status()
    assert status.spent_usd <= 600.0
    assert answered >= 298
    assert status.spent_usd >= 0.97 * 600.0


def test_without_it_nothing_is_drawn_otherwise():
    one, other = make(), make()
    other.explore = None
    for router in (one, other):
        router.start(Budget(200.0, 100))
    assert [one.decide("a").model for _ in range(50)] == [other.decide("a").model for _ in range(50)]


@pytest.mark.parametrize("share", [0, -0.1, 1.5, float("nan"), "half"])
def test_a_share_is_a_share(share):
    with pytest.raises(InvalidInput, match="share must lie above 0 and at most at 1"):
        ExploreShare(share)
