"""Caps on the shares of models: never exceeded, and worth as much as scipy's linear program with the constraint."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from wiserouter import NO_CONTEXT, Budget, Contexts, Estimates, Model, Offline, Plan, Price, WiseRouter
from wiserouter.planning.share_caps import ShareCaps, part_of_context


def capped_value(plan, spend_usd, model, most):
    """Return what scipy finds: the best reward of a mix that spends so much and gives a model so large a share."""
    j, k = plan.reward.shape
    weights = np.repeat(plan.freq, k)
    one_of_each = np.kron(np.eye(j), np.ones(k))
    share = weights * np.tile(np.arange(k) == model, j)
    found = linprog(
        -weights * plan.reward.ravel(),
        A_ub=[weights * plan.cost_usd.ravel(), share],
        b_ub=[spend_usd, most],
        A_eq=one_of_each,
        b_eq=np.ones(j),
        bounds=(0, 1),
    )
    assert found.success
    return -found.fun


def capped_mix(plan, rate_usd, model, most):
    """Return the mix of the plan, of which each context keeps its part of the capped model."""
    mix = plan.mix(rate_usd)
    for j in range(plan.n_contexts):
        price = plan.split(j, rate_usd).shadow_price
        worth = plan.reward[j] - price * plan.cost_usd[j]
        worth[model] = -np.inf
        taken = mix[j, model] * (1.0 - part_of_context(plan, rate_usd, model, most, j))
        mix[j, model] -= taken
        mix[j, int(worth.argmax())] += taken
    return mix


@st.composite
def plans(draw):
    seed, n_contexts, n_models = draw(st.integers(0, 10_000)), draw(st.integers(1, 6)), draw(st.integers(2, 5))
    rng = np.random.default_rng(seed)
    freq = rng.dirichlet(np.ones(n_contexts))
    return Plan(freq, rng.random((n_contexts, n_models)), 10.0 ** rng.uniform(-3, 0, (n_contexts, n_models)))


@settings(max_examples=60, deadline=None)
@given(plan=plans(), at=st.floats(0.0, 1.0), most=st.floats(0.0, 1.0), k=st.integers(0, 4))
def test_a_capped_mix_keeps_its_share_and_is_worth_what_linprog_finds_at_its_spend(plan, at, most, k):
    model = k % plan.n_models
    rate_usd = plan.floor_usd + at * (plan.ceiling_usd - plan.floor_usd)
    mix = capped_mix(plan, rate_usd, model, most)
    assert mix.sum(axis=1) == pytest.approx(1.0)
    assert plan.freq @ mix[:, model] <= most + 1e-9
    value, spend_usd = (float(plan.freq @ (mix * table).sum(axis=1)) for table in (plan.reward, plan.cost_usd))
    # contexts that are split may hold a model of the mix that another one displaces: a slack of one split context
    slack = float((plan.freq * np.ptp(plan.reward, axis=1)).max())
    best = capped_value(plan, spend_usd, model, most)
    assert value <= best + 1e-9
    assert value >= best - slack


@settings(max_examples=40, deadline=None)
@given(most=st.floats(0.0, 1.0), wants=st.lists(st.booleans(), min_size=1, max_size=300))
def test_no_beginning_exceeds_the_share_by_more_than_one_decision(most, wants):
    caps, rng, served = ShareCaps({1: most}), np.random.default_rng(0), 0
    for n, wanted in enumerate(wants, start=1):
        free = caps.free(None, 2, NO_CONTEXT, None, 0.0, rng)
        took = wanted and (free is None or 1 in free)
        caps.count(int(took))
        served += took
        assert served <= most * n / 0.999**300 + 1.0


def test_a_cap_excludes_no_query_that_only_its_model_can_take():
    caps = ShareCaps({1: 0.0})
    rng = np.random.default_rng(0)
    assert caps.free({1}, 2, NO_CONTEXT, None, 0.0, rng) == {1}
    assert caps.free(None, 2, NO_CONTEXT, None, 0.0, rng) == {0}


def test_a_model_without_a_share_takes_no_query_that_another_may_take():
    caps, rng = ShareCaps({0: 0.0, 1: 0.5}), np.random.default_rng(0)
    caps.count(1)  # so that it has had its share
    assert caps.free({0, 1}, 3, NO_CONTEXT, None, 0.0, rng) == {1}
    assert caps.free(None, 3, NO_CONTEXT, None, 0.0, rng) == {2}
    assert caps.unbanned(None, 3) == {1, 2}
    assert caps.unbanned({0}, 3) == {0}


def fitted(reward, cost_usd):
    estimates = Estimates(*np.shape(reward))
    for j, k in np.ndindex(np.shape(reward)):
        for _ in range(500):
            estimates.add_cost(j, k, cost_usd[j][k])
            estimates.add_reward(j, k, reward[j][k])
    contexts = Contexts(np.eye(len(reward)), np.full(len(reward), 1.0 / len(reward)))
    return WiseRouter(
        [Model("s", Price(0, 0)), Model("l", Price(0, 0))], contexts, estimates=estimates, policy=Offline(), seed=0
    )


def test_a_router_gives_the_share_to_the_contexts_where_it_is_worth_most():
    reward, cost_usd = [[0.2, 0.9], [0.2, 0.6], [0.2, 0.4]], [[0.01, 0.05]] * 3
    n, most = 3_000, 0.4
    router = fitted(reward, cost_usd)
    router.start(Budget(1_000.0, n))
    router.change_model("l", max_share=most)
    rng, earned, large, spent = np.random.default_rng(1), 0.0, 0, 0.0
    for _ in range(n):
        context = int(rng.integers(3))
        decision = router.decide(context=context)
        k = decision.model == "l"
        large, earned, spent = large + k, earned + reward[context][k], spent + cost_usd[context][k]
        router.charge(decision, cost_usd[context][k])
    best = capped_value(Plan([1 / 3] * 3, reward, cost_usd), spent / n, 1, most)
    assert large <= most * n + 10
    assert earned / n >= 0.97 * best


def test_the_first_of_equal_contexts_gets_its_demand_first():
    plan = Plan([0.25, 0.25, 0.5], [[0.2, 0.9]] * 3, [[1.0, 3.0]] * 3)
    assert [part_of_context(plan, 3.0, 1, 0.375, j) for j in range(3)] == [1.0, 0.5, 0.0]
    assert [part_of_context(plan, 3.0, 1, 0.75, j) for j in range(3)] == [1.0, 1.0, 0.5]
    assert part_of_context(plan, 0.0, 1, 0.0, 0) == 1.0  # the plan does not ask for it
    assert part_of_context(plan, 0.0, 0, 0.0, 0) == 0.0
