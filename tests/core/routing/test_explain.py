import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import (
    NO_CONTEXT,
    Budget,
    Contexts,
    EpsilonFirst,
    Estimates,
    Explanation,
    Growing,
    Model,
    Offline,
    Optimistic,
    Price,
    RoutingLog,
    WiseRouter,
)
from wiserouter.errors import BudgetError, NoEligibleModel, QuerySkipped, UnknownDecision
from wiserouter.learning.residuals import QueryResiduals, Ridge
from wiserouter.planning.shift import Shift
from wiserouter.routing import decider
from wiserouter.stores import MemoryStore
from wiserouter.testing import FakeClock, TableEncoder

NAMES = ("small", "middle", "large", "waste")
REWARD = ((0.2, 0.4, 0.9, 0.5), (0.5, 0.55, 0.6, 0.3))
COST = ((1.0, 2.5, 3.0, 6.0), (1.0, 2.0, 3.0, 6.0))


def make(windows=(None,) * 4, dearest=(2.0, 4.0, 5.0, 9.0), n=1, **options):
    estimates = Estimates(2, 4)
    for _ in range(n):
        estimates.add_table(np.arange(2), np.array(REWARD), np.array(COST))
    models = [
        Model(name, max_input_tokens=window, max_cost_usd=most)
        for name, window, most in zip(NAMES, windows, dearest, strict=True)
    ]
    options.setdefault("policy", Offline())
    contexts = Contexts([[1.0, 0.0], [0.0, 1.0]], [0.25, 0.75])
    return WiseRouter(models, contexts, estimates=estimates, seed=0, **options)


def rules(explanation):
    return {model.name: model.excluded_by for model in explanation.models}


def test_the_figures_are_those_of_the_decision():
    router = make(policy=Offline(accounting="paper"), n=4)
    router.start(Budget(200.0, 100))
    decision = router.decide(context=0)
    why = router.explain(decision)
    assert why == router.explain(decision.id)
    assert isinstance(why, Explanation)
    assert (why.id, why.model, why.scope, why.rule) == (decision.id, decision.model, "default", "plan")
    assert (why.rate_usd, why.left_usd, why.requests_left) == (2.0, 200.0, 100)
    assert (why.context.id, why.context.share) == (0, 0.25)
    assert why.room_usd is None
    by_name = {model.name: model for model in why.models}
    assert tuple(by_name) == NAMES
    large = by_name["large"]
    assert (large.on_envelope, large.expected_reward, large.expected_cost_usd) == (True, 0.9, 3.0)
    assert (large.labels, large.calls, large.worst_case_usd) == (4, 4, None)
    assert large.worth == pytest.approx(0.9 - why.shadow_price * 3.0)
    assert by_name[decision.model].probability == decision.probability
    assert sum(model.probability for model in why.models) == pytest.approx(1.0)
    assert by_name["middle"].excluded_by == (
        "dominated: not on the envelope, a mix of small and large scores no less at its cost"
    )
    assert by_name["waste"].excluded_by == "dominated: not on the envelope, large costs no more and scores no less"


def test_it_is_true_of_the_moment_of_the_decision():
    router = make()
    router.start(Budget(200.0, 100))
    decision = router.decide(context=0)
    before = router.explain(decision).as_dict()
    for _ in range(30):
        later = router.decide(context=0)
        router.charge(later, 0.5)
        router.reward(later, 0.0)
    router.update_model(Model("small", max_cost_usd=7.0))
    router.add_model(Model("new"), reward=0.5, cost_usd=1.0)
    assert router.explain(decision).as_dict() == before


def test_what_became_of_the_call_is_told():
    clock = FakeClock()
    router = make(store=MemoryStore(clock, reservation_ttl_s=60.0))
    router.start(Budget(200.0, 100))
    first, second, third = (router.decide(context=1) for _ in range(3))
    assert (router.explain(first).state, router.explain(first).cost_usd) == ("in flight", None)
    router.charge(first, 1.25, model="large")
    router.reward(first, 0.75)
    router.release(second)
    clock.advance(61)
    router.status()
    why = router.explain(first)
    assert (why.state, why.cost_usd, why.reward, why.answered_by) == ("charged", 1.25, 0.75, "large")
    assert [router.explain(each).state for each in (second, third)] == ["released", "presumed"]
    assert router.explain(third).cost_usd == third.expected_cost_usd
    with pytest.raises(UnknownDecision, match="'nothing'"):
        router.explain("nothing")


def test_restrictions_and_windows_are_named():
    router = make(windows=(None, None, 100, 100))
    router.start(Budget(250.0, 100))
    why = router.explain(router.decide(context=0, eligible=["small", "middle", "large"], input_tokens=150))
    assert rules(why)["large"] == "context window: needs 150 tokens, window 100"
    assert rules(why)["waste"] == "context window: needs 150 tokens, window 100"
    assert why.input_tokens == 150
    why = router.explain(router.decide(context=0, eligible=["small"]))
    assert rules(why) == {"small": None, **dict.fromkeys(NAMES[1:], "not in eligible")}
    router.retire_model("large")
    assert rules(router.explain(router.decide(context=0)))["large"] == "retired"


def test_a_hard_limit_names_its_worst_case():
    router = make()
    router.start(Budget(8.0, 2, limit="hard"))
    first = router.decide(context=0)
    assert (router.explain(first).room_usd, first.model) == (pytest.approx(8.0), "large")
    why = router.explain(router.decide(context=0))
    assert rules(why)["large"] == "hard limit: worst case 5 exceeds what is left, 3"
    assert [model.worst_case_usd for model in why.models] == [2.0, 4.0, 5.0, 9.0]
    assert rules(why)["small"] is None


def test_the_reserve_rule_shows_its_figures():
    router = make()
    router.start(Budget(2.8, 2))
    why = router.explain(router.decide(context=0))
    assert why.model == "small"
    assert rules(why)["large"] == "reserve rule: c > b - (tau - 1) c_min: 3 > 2.8 - 1 x 1 = 1.8"


def test_exploration_names_what_was_tried_least():
    router = WiseRouter([Model(name) for name in NAMES], policy=EpsilonFirst(50), seed=0)
    router.start(Budget(100.0, 100))
    seen = [router.decide("x") for _ in range(6)]
    why = router.explain(seen[-1])
    assert why.rule == "explore"
    assert sorted(model.probability for model in why.models) == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    (left_out,) = [rule for rule in rules(why).values() if rule]
    assert left_out == "exploring: tried 2 times here, others 1"
    assert [model.worth for model in why.models if model.on_envelope] == []


def test_a_used_up_budget_says_so():
    router = make()
    router.start(Budget(1.0, 10, on_exhausted="cheapest"))
    router.charge(router.decide(context=0), 1.0)
    why = router.explain(router.decide(context=0))
    assert (why.rule, why.model, why.shadow_price) == ("cheapest", "small", None)
    assert rules(why)["large"] == "budget used up: only the cheapest model goes on"
    json.dumps(why.as_dict(), allow_nan=False)


def test_a_query_without_a_context_and_a_store_without_facts():
    router = make(n=3)
    router.start(Budget(300.0, 100))
    why = router.explain(router.decide(context=NO_CONTEXT))
    assert (why.context.id, why.context.share) == (NO_CONTEXT, 1.0)
    assert [model.labels for model in why.models] == [6, 6, 6, 6]
    decision = router.decide(context=0)
    router._store.find(decision.id).trace = None
    assert router.explain(decision).models == ()


def test_skipping_has_a_probability():
    router = make(policy=Offline(allow_skip=True))
    router.start(Budget(500.0 * router.plan.curve().spend_usd[1] / 2, 500))
    served = []
    for _ in range(20):
        with suppress(QuerySkipped):
            served.append(router.decide(context=1))
    why = router.explain(served[0])
    assert 0.0 < why.skip_probability < 1.0
    assert why.skip_probability + sum(model.probability for model in why.models) == pytest.approx(1.0)


@st.composite
def situations(draw):
    n_models = draw(st.integers(1, 5))
    figure = st.floats(0.0, 1.0, allow_subnormal=False)
    row = st.lists(figure, min_size=n_models, max_size=n_models)
    reward, cost = (draw(st.lists(row, min_size=2, max_size=2)) for _ in range(2))
    budget = Budget(
        draw(st.floats(0.0, 12.0)),
        draw(st.integers(1, 20)),
        limit=draw(st.sampled_from(["expected", "hard"])),
        on_exhausted=draw(st.sampled_from(["reject", "cheapest"])),
    )
    policy = draw(
        st.sampled_from(
            [
                Offline,
                Optimistic,
                lambda: Offline(accounting="paper"),
                lambda: EpsilonFirst(3),
                lambda: Offline(allow_skip=True),
                lambda: Optimistic(allow_skip=True, alpha=-0.3),
            ]
        )
    )
    eligible = draw(st.none() | st.lists(st.integers(0, n_models - 1), min_size=1, unique=True))
    windows = draw(st.lists(st.sampled_from([None, 10, 100]), min_size=n_models, max_size=n_models))
    return reward, cost, budget, policy(), eligible, windows, draw(st.integers(0, 3))


@settings(max_examples=150, deadline=None)
@given(situations())
def test_probabilities_sum_to_1_and_every_model_that_is_no_candidate_has_a_rule(situation):
    reward, cost, budget, policy, eligible, windows, seed = situation
    estimates = Estimates(2, len(windows))
    estimates.add_table(np.arange(2), np.array(reward), np.array(cost))
    models = [Model(f"m{k}", max_input_tokens=window, max_cost_usd=2.0) for k, window in enumerate(windows)]
    contexts = Contexts(np.zeros((2, 1)), [0.5, 0.5])
    router = WiseRouter(models, contexts, estimates=estimates, policy=policy, seed=seed)
    router.start(budget)
    names = None if eligible is None else [f"m{k}" for k in eligible]
    for context in (0, 1, NO_CONTEXT, 0, 1):
        try:
            decision = router.decide(context=context, eligible=names, input_tokens=50)
        except (BudgetError, NoEligibleModel, QuerySkipped):
            continue
        router.charge(decision, cost[context][router.pool.index(decision.model)])
        why = router.explain(decision)
        assert sum(model.probability for model in why.models) + why.skip_probability == pytest.approx(1.0)
        chosen = next(model for model in why.models if model.name == decision.model)
        assert chosen.probability == pytest.approx(decision.probability)
        for model in why.models:
            assert (model.excluded_by is None) == (model.probability > 0 or _could_be(model, why))
            assert model.excluded_by is None or model.probability == 0.0
        assert json.loads(json.dumps(why.as_dict(), allow_nan=False)) == why.as_dict()


def _could_be(model, why):
    """Return whether an envelope model was left without a share by the rate alone."""
    return model.on_envelope and why.rule == "plan" and model.excluded_by is None


PROMPTS = [f"{'sort this python list' if i % 2 else 'translate a french letter'} please" for i in range(40)]


def test_contexts_say_what_they_are_about():
    rng = np.random.default_rng(0)
    log = RoutingLog.from_arrays(PROMPTS, rng.random((40, 2)), rng.random((40, 2)), ("a", "b"))
    router = WiseRouter.fit(log, n_contexts=2)
    router.start(Budget(100.0, 40))
    why = router.explain(router.decide("sort a python list")).context
    assert {"sort", "python", "list"} & set(why.terms)
    assert "french" not in why.terms
    assert why.typical_prompts == ("row 2", "row 4", "row 6", "row 8", "row 10")


def test_typical_prompts_carry_the_ids_of_the_log(tmp_path):
    rows = "".join(f'q{i},"{"aa" if i % 2 else "bb"}",m,0.5,0.1\n' for i in range(12))
    (tmp_path / "log.csv").write_text("query_id,prompt,model,reward,cost_usd\n" + rows)
    encoder = TableEncoder({"aa": [1.0, 0.0], "bb": [0.0, 1.0]})
    router = WiseRouter.fit(tmp_path / "log.csv", encoder=encoder, n_contexts=2)
    found = {router.contexts.summary(router.contexts.assign(x)).prompts for x in ([1.0, 0.0], [0.0, 1.0])}
    assert found == {("q1", "q3", "q5", "q7", "q9"), ("q0", "q2", "q4", "q6", "q8")}
    assert all(summary.terms == () for summary in router.contexts.summaries)


def test_infinite_prices_are_told_as_none():
    router = make()
    router.start(Budget(0.5, 1, on_exhausted="cheapest"))
    decision = router.decide(context=0)
    assert math.isinf(decision.shadow_price)
    assert router.explain(decision).shadow_price is None


def optimistic(n_contexts=2, n=3, **options):
    models = [Model(name, Price(price, price)) for name, price in (("small", 1e-6), ("middle", 2e-6), ("large", 9e-6))]
    contexts = Contexts(np.eye(n_contexts), np.full(n_contexts, 1.0 / n_contexts))
    return WiseRouter(models[:n], contexts, policy=Optimistic(), seed=0, **options)


TRUE_COST = {"small": 1.0, "middle": 2.0, "large": 4.0, "new": 1.5}
TRUE_REWARD = {"small": 0.3, "middle": 0.6, "large": 0.9, "new": 0.7}


def test_an_optimistic_choice_shows_means_and_what_it_took_them_as():
    router = optimistic()
    router.start(Budget(1_000.0, 400))
    rng = np.random.default_rng(0)
    doubts = []
    for t in range(120):
        decision = router.decide(context=NO_CONTEXT if t % 10 == 9 else t % 2)
        before = router.explain(decision)
        assert sum(model.probability for model in before.models) == pytest.approx(1.0)
        (chosen,) = [model for model in before.models if model.name == decision.model]
        assert chosen.expected_reward == pytest.approx(decision.expected_reward)
        assert chosen.expected_cost_usd == pytest.approx(decision.expected_cost_usd)
        assert all(model.optimistic_reward >= model.expected_reward - 1e-12 for model in before.models)
        assert all(model.probability > 0 or model.excluded_by or model.on_envelope for model in before.models)
        if before.shadow_price is not None:
            assert chosen.worth == pytest.approx(
                chosen.optimistic_reward - before.shadow_price * chosen.expected_cost_usd
            )
        doubts.append(chosen.optimistic_reward - chosen.expected_reward)
        router.charge(decision, TRUE_COST[decision.model] * rng.uniform(0.8, 1.2))
        router.reward(decision, float(rng.random() < TRUE_REWARD[decision.model]))
        after = router.explain(decision)
        assert (after.models, after.context) == (before.models, before.context)
    assert np.mean(doubts[-20:]) < np.mean(doubts[:20])
    calls = [sum(model.calls for model in router.explain(router.decide(context=c)).models) for c in (0, 1)]
    assert sum(calls) == pytest.approx(108, abs=4)  # the rows follow at 1 % more observations


def test_an_optimistic_explanation_stays_true_when_the_plan_is_revised():
    router = optimistic()
    router.start(Budget(1_000.0, 400))
    decision = router.decide(context=0)
    before = router.explain(decision).as_dict()["models"]
    for t in range(40):
        later = router.decide(context=t % 2)
        router.charge(later, TRUE_COST[later.model])
        router.reward(later, 1.0)
    router.add_model(Model("new", Price(1e-6, 1e-6)))
    assert router.explain(decision).as_dict()["models"] == before
    assert len(router.explain(router.decide(context=0)).models) == 4


def test_the_reserve_of_several_budgets_is_told():
    router = make()
    router.start(Budget(2.8, 2, within=Budget(100.0, every="month", horizon=40)))
    why = router.explain(router.decide(context=0))
    assert why.model == "small"
    assert rules(why)["large"] == "reserve rule: c > b - (tau - 1) c_min, less what is held back: 3 > 1.8"


def judged(monkeypatch, shift, policy=None):
    monkeypatch.setattr(decider, "Shift", lambda *_: shift)
    residuals = QueryResiduals(Ridge(np.zeros((4, 2)), np.zeros((2, 4))))
    return make(policy=policy or Offline(accounting="paper"), residuals=residuals)


@pytest.mark.parametrize("policy", [None, Optimistic()])
def test_a_query_judged_one_by_one_shows_its_own_figures(policy, monkeypatch):
    own_usd = [math.nan, math.nan, 4.0, math.nan]
    router = judged(monkeypatch, Shift(np.array([0.7, 0.0, -0.6, 0.0]), 0.1, own_usd), policy)
    router.start(Budget(250.0, 100))
    decision = router.decide(context=0, embedding=[1.0, 0.0])
    why = router.explain(decision)
    by_name = {model.name: model for model in why.models}
    assert (why.model, why.rule, why.shadow_price) == ("small", "plan", 0.1)
    assert by_name["small"].probability == decision.probability == 1.0
    assert by_name["small"].expected_reward == pytest.approx(decision.expected_reward)
    assert by_name["small"].expected_cost_usd == pytest.approx(decision.expected_cost_usd)
    assert by_name["large"].expected_cost_usd == pytest.approx(4.0, abs=0.1)
    assert rules(why)["large"].startswith("worth no more to this query than small: ")
    for name in ("middle", "large", "waste"):
        assert by_name[name].worth < by_name["small"].worth


def test_where_the_rate_pays_for_the_cheapest_only_a_judged_query_tells_costs(monkeypatch):
    router = judged(monkeypatch, Shift(np.zeros(4), None, [4.0, math.nan, math.nan, math.nan]))
    router.start(Budget(90.0, 100))
    why = router.explain(router.decide(context=0, embedding=[1.0, 0.0]))
    assert (why.model, why.shadow_price) == ("middle", None)
    assert rules(why)["large"] == "costs this query no less than middle: 3, 2.5"


def test_contexts_that_have_grown_since_do_not_change_an_explanation():
    models = [Model("small", max_cost_usd=2.0), Model("large", max_cost_usd=5.0)]
    growing = Growing(4, first_after=40, per_context=10, keep=100, background=False)
    router = WiseRouter(models, policy=Optimistic(), growing=growing, seed=0)
    router.start(Budget(1_000.0, 400))
    rng = np.random.default_rng(0)
    told = []
    for t in range(100):
        decision = router.decide(embedding=np.eye(4, dtype=np.float32)[t % 4] + rng.normal(0, 0.05, 4))
        told.append((decision, router.explain(decision).context))
        router.charge(decision, 1.0 + (decision.model == "large"))
        router.reward(decision, 0.5)
    assert router.contexts.n_contexts > 1
    assert told[0][1].share == 1.0
    assert [router.explain(decision).context for decision, _ in told] == [context for _, context in told]
    last = told[-1][0]
    router._store.find(last.id).trace = None
    assert router.explain(last).context.share is None


def test_scores_of_new_judges_may_come_in_during_an_explanation():
    router = make()
    router.start(Budget(250.0, 100))
    decision = router.decide(context=0)
    router.charge(decision, 1.0)

    def explained():
        for _ in range(100):
            router.explain(decision)
            router.status()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool:
            reader = pool.submit(explained)
            for number in range(300):
                router.reward(decision, 1.0, source=f"judge:{number}")
            reader.result(60.0)
    finally:
        sys.setswitchinterval(interval)
