"""The draw of a mixture against a plain transcription of its rules, and the figures behind it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.problems import problems
from wiserouter import NO_CONTEXT, Estimates, Plan
from wiserouter.budgets.funds import Funds
from wiserouter.planning.choice_inputs import ContextFigures, Counts
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.mixture import Mixture, ReserveRule, cheapest_choice
from wiserouter.planning.shift import Shift

ROUNDING = 1e-9


def split(plan, context, rate):
    """Return the plan's two models, the share of the second and the price; below the floor, the cheapest model."""
    if rate >= plan.floor_usd:
        return plan.split(context, rate)
    row = plan.rows[context]
    cheapest = min(range(plan.n_models), key=lambda k: (row.cost_usd[k], -row.reward[k]))
    return cheapest, cheapest, 0.0, math.inf


def oracle(mixture, context, funds, rng, allowed, shift):
    """Return the drawn model, the mix, the price, and the expected cost and reward, step by step on arrays."""
    plan, rule = mixture.plan, mixture.reserve_rule
    rate = funds.rate_usd
    floor = plan.floor_usd
    low, high, share, price = split(plan, context, rate)
    if shift.shadow_price is not None and rate >= floor:
        price = shift.shadow_price
    planned = np.array(plan.rows[context].reward)
    means = planned if mixture.means is None else mixture.means[context]
    mean_cost = np.array(plan.rows[context].cost_usd)
    reward = planned if shift.reward is None else np.clip(planned + shift.reward, 0.0, 1.0)
    own = shift.own_cost_usd
    cost = mean_cost if own is None else np.where(np.isnan(own), mean_cost, own)
    guarded = (
        np.zeros(len(cost)) if rule is None else np.array(rule.guarded_cost_usd(context)[:-1]) + (cost - mean_cost)
    )
    after = funds.requests - 1
    room = math.inf
    if rule is not None:
        room = funds.left_usd - after * floor
        if rule.drift:
            room -= rule.drift_margin_usd * math.sqrt(max(after, 0)) + funds.cushion_usd
    candidates = list(range(len(cost)) if allowed is None else allowed)
    models = [k for k in candidates if guarded[k] <= room] or [min(candidates, key=lambda k: cost[k])]
    if plan.allow_skip:
        models = [SKIP, *models]
    reward, cost = np.append(reward, 0.0), np.append(cost, 0.0)
    worth = -cost if math.isinf(price) else reward - price * cost
    best = min(models, key=lambda k: (-worth[k], cost[k]))
    scale = ROUNDING * max(1.0, float(np.abs(worth[models]).max())) if not math.isinf(price) else 0.0
    ties = {k for k in models if worth[k] >= worth[best] - scale}
    return ties, (low, high, share), price, cost, np.append(means - planned, 0.0) + reward, best


@st.composite
def draws(draw):
    problem = draw(problems(max_contexts=4, max_models=5))
    n_contexts, n_models = problem.reward.shape
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    plan = Plan(problem.freq, problem.reward, problem.cost_usd, allow_skip=problem.allow_skip)
    drift = draw(st.sampled_from([0.0, 0.5]))
    rule = ReserveRule(plan, rng.random((n_contexts, n_models)) * 0.3, drift=drift) if draw(st.booleans()) else None
    means = rng.random((n_contexts, n_models)) if draw(st.booleans()) else None
    requests = draw(st.integers(1, 8))
    ceiling = float(problem.freq @ problem.cost_usd.max(axis=1))
    left = requests * plan.floor_usd + draw(st.floats(-0.5, 2.0)) * (ceiling + 0.1)
    funds = Funds(left, requests, (), draw(st.sampled_from([0.0, 0.05])))
    as_array = draw(st.booleans())  # as a regression predicts
    kinds = draw(st.sets(st.sampled_from(["reward", "own_cost_usd", "shadow_price"])))
    deviations = rng.normal(0.0, 0.3, n_models)
    shift = Shift(
        reward=(deviations if as_array else deviations.tolist()) if "reward" in kinds else None,
        shadow_price=float(rng.random() * 2.0) if "shadow_price" in kinds else None,
        own_cost_usd=np.where(rng.random(n_models) < 0.4, np.nan, rng.random(n_models)).tolist()
        if "own_cost_usd" in kinds
        else None,
    )
    allowed = sorted(draw(st.sets(st.integers(0, n_models - 1), min_size=1))) if draw(st.booleans()) else None
    return Mixture(plan, "actual", rule, None, means), draw(st.integers(0, n_contexts - 1)), funds, allowed, shift


@settings(max_examples=150)
@given(draws())
def test_a_query_of_its_own_takes_the_permitted_model_of_most_worth(case):
    mixture, context, funds, allowed, shift = case
    choice = mixture.choose(context, funds, np.random.default_rng(0), allowed, shift)
    ties, (low, high, share), price, cost, reward, best = oracle(mixture, context, funds, None, allowed, shift)
    assert choice.model in ties
    assert choice.shadow_price == price
    assert choice.expected_cost_usd == pytest.approx(cost[choice.model], abs=1e-12)
    expected = 0.0 if choice.model == SKIP else reward[choice.model]
    assert choice.expected_reward == pytest.approx(expected, abs=1e-12)
    assert (choice.rule, choice.debit, choice.floor_usd, choice.limited) == (
        "plan",
        "actual",
        mixture.plan.floor_usd,
        None,
    )
    assert choice.figures is mixture.figures(context)
    assert sum(p for _, p in choice.mix) == pytest.approx(1.0)
    assert dict(choice.mix)[choice.model] == choice.probability
    if len(choice.mix) == 2:
        assert choice.mix == ((low, 1.0 - share), (high, share))
        assert {low, high} <= ties
    elif low in ties and high in ties and share and low != high:
        assert cost[low] > cost[best] or cost[high] > cost[best]  # at price 0 the cheapest of equal ones


@settings(max_examples=100)
@given(draws())
def test_a_plain_query_is_drawn_from_the_plan_within_the_reserve_rule(case):
    mixture, context, funds, allowed, _ = case
    low, high, share, price = split(mixture.plan, context, funds.rate_usd)
    seen = {mixture.choose(context, funds, np.random.default_rng(seed), allowed).model for seed in range(8)}
    choice = mixture.choose(context, funds, np.random.default_rng(1), allowed)
    rule, figures = mixture.reserve_rule, mixture.figures(context)
    candidates = list(range(mixture.plan.n_models) if allowed is None else allowed)
    room = math.inf
    if rule is not None:
        after = funds.requests - 1
        room = funds.left_usd - after * mixture.plan.floor_usd
        if rule.drift:
            room -= rule.drift_margin_usd * math.sqrt(after) + funds.cushion_usd
    held = figures.guarded_cost_usd or [0.0] * (mixture.plan.n_models + 1)
    models = [k for k in candidates if held[k] <= room]
    cheapest = min(figures.costs_usd[k] for k in candidates)
    if not models:
        assert all(k == SKIP or figures.costs_usd[k] == cheapest for k in seen)
        return
    assert seen <= {SKIP, *models}
    planned = {k for k, p in ((low, 1.0 - share), (high, share)) if p > 0.0}
    if planned <= {SKIP, *models}:
        assert seen <= planned
        assert {k for k, _ in choice.mix} <= planned | {low, high}
    else:
        worth = {
            k: -figures.costs_usd[k] if math.isinf(price) else figures.weighed[k] - price * figures.costs_usd[k]
            for k in models
        }
        best = max(worth.values())
        assert all(k in planned or worth[k] == pytest.approx(best, abs=1e-9) for k in seen)
    assert choice.shadow_price == price
    mean = (0.0, 0.0) if choice.model == SKIP else (figures.rewards[choice.model], figures.costs_usd[choice.model])
    assert (choice.expected_reward, choice.expected_cost_usd) == mean
    assert dict(choice.mix)[choice.model] == choice.probability


def test_below_the_floor_a_context_without_queries_takes_its_cheapest_model_too():
    mixture = Mixture(Plan([1.0, 0.0], [[0.2, 0.3], [0.2, 0.9]], [[1.0, 3.0], [0.03, 0.12]]), "actual")
    assert [mixture.choose(context, Funds(0.5, 1), np.random.default_rng(0)).model for context in (0, 1)] == [0, 0]


def test_the_reserve_rule_counts_the_cost_of_the_query_itself():
    plan = Plan([1.0], [[0.2, 0.9]], [[1.0, 3.0]])
    mixture = Mixture(plan, "actual", ReserveRule(plan, 0.5))
    funds = Funds(5.0, 2)  # 4 may be spent, so that a call at the floor remains
    for own, reward, model in (
        ([1.0, 2.0], None, 1),
        ([1.0, 3.5], None, 1),
        ([1.0, 3.75], None, 0),
        ([4.0, 3.75], None, 1),  # none fits: the cheapest
        ([math.nan, math.nan], [0.0, 0.0], 1),
        ([math.nan, math.nan], [0.0, -0.8], 0),
    ):
        shift = Shift(reward=reward, own_cost_usd=own, shadow_price=0.05)
        assert mixture.choose(0, funds, np.random.default_rng(0), shift=shift).model == model
    assert mixture.choose(0, funds, np.random.default_rng(0), [0], Shift(own_cost_usd=[9.0, 1.0])).model == 0


# Figures


def plan_of(allow_skip=False):
    return Plan([0.25, 0.75], [[0.2, 0.9], [0.4, 0.6]], [[1.0, 3.0], [2.0, 5.0]], allow_skip=allow_skip)


def test_the_figures_of_a_context_are_rows_of_the_plan_and_of_what_is_behind_it():
    counts = Counts(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]]))
    plan = plan_of()
    rule = ReserveRule(plan, [[0.1, 0.2], [0.3, 0.4]], drift=0.5)
    means = np.array([[0.1, 0.8], [0.3, 0.5]])
    mixture = Mixture(plan, "paper", rule, counts, means)
    figures = mixture.figures(1)
    assert figures == ContextFigures(
        [0.3, 0.5], [2.0, 5.0], [3.0, 4.0], [7.0, 8.0], [0, 1], [2.3, 5.4, 0.0], [0.4, 0.6], figures.drift_margin_usd
    )
    assert figures.drift_margin_usd == pytest.approx(0.5 * (0.25 * 0.1 + 0.75 * 0.3))
    assert mixture.figures(1) is figures
    assert (figures.weighed, figures.means(1)) == ([0.4, 0.6], (0.5, 5.0))
    bare = Mixture(plan, "paper").figures(0)
    assert bare == ContextFigures([0.2, 0.9], [1.0, 3.0], [0.0, 0.0], [0.0, 0.0], [0, 1], None, None, None)
    assert bare.weighed == [0.2, 0.9]
    skipping = Mixture(plan_of(allow_skip=True), "paper", ReserveRule(plan_of(allow_skip=True), 0.1, drift=0.5))
    assert skipping.figures(0).drift_margin_usd == 0.0
    assert skipping.figures(0).envelope == [1]
    assert ReserveRule(plan, 0.1).drift_margin_usd is None


def test_a_revised_context_shows_its_present_figures():
    counts = Counts(np.zeros((2, 2)), np.zeros((2, 2)))
    estimates = Estimates(2, 2)
    estimates.add_table(np.array([1, 1]), [[0.5, 1.0], [0.5, 1.0]], [[1.0, 2.0], [1.0, 2.0]])
    means = np.zeros((2, 2))
    mixture = Mixture(plan_of(), "actual", None, counts, means)
    before = mixture.figures(1), mixture.figures(0)
    mixture.revise(1, estimates, [0.25, 0.75])
    after = mixture.figures(1)
    assert (after.calls, after.labels, after.rewards) == ([2.0, 2.0], [2.0, 2.0], [0.25, 0.75])
    assert mixture.figures(0) is before[1]
    plain = Mixture(plan_of(), "actual")
    plain.revise(1, estimates, [0.25, 0.75])
    assert plain.figures(1).rewards == [0.4, 0.6]


def test_a_query_of_unknown_context_has_the_means_over_all_contexts():
    counts = Counts(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]]))
    plan = plan_of()
    rule = ReserveRule(plan, np.array([[0.8, 0.1], [0.4, 0.3]]), drift=0.5)
    mixture = Mixture(plan, "paper", rule, counts, np.array([[0.1, 0.8], [0.3, 0.5]]))
    one = mixture.without_context
    figures = one.figures(0)
    assert (one.debit, one.plan.n_contexts) == ("paper", 1)
    assert figures.rewards == pytest.approx([0.25, 0.575])
    assert figures.planned == pytest.approx([0.35, 0.675])
    assert figures.costs_usd == pytest.approx([1.75, 4.5])
    assert (figures.calls, figures.labels) == ([4.0, 6.0], [12.0, 14.0])
    assert figures.guarded_cost_usd == pytest.approx([2.25, 4.75, 0.0])
    assert figures.drift_margin_usd == pytest.approx(0.25)
    bare = Mixture(plan, "actual").without_context.figures(0)
    assert (bare.guarded_cost_usd, bare.planned, bare.calls) == (None, None, [0.0, 0.0])


def test_the_cheapest_choice_holds_its_figures():
    plan = plan_of()
    choice = cheapest_choice(plan, 1, [0, 1], float)
    assert choice[:7] == (0, 1.0, math.inf, 2.0, 0.4, "actual", ((0, 1.0),))
    assert (choice.rule, choice.figures.costs_usd) == ("cheapest", [2.0, 5.0])
    assert cheapest_choice(plan, 1, [1], float)[:5] == (1, 1.0, math.inf, 5.0, 0.6)
    assert cheapest_choice(plan, NO_CONTEXT, [0, 1], float).expected_cost_usd == pytest.approx(1.75)
    unknown = cheapest_choice(None, 0, [0, 1], {0: 2.0, 1: 1.0}.__getitem__)
    assert unknown[:8] == (1, 1.0, math.inf, 0.0, 0.0, "actual", ((1, 1.0),), None)
    assert unknown.rule == "cheapest"
