"""Largest shares of models: held by a count of the decisions, not only by the plan."""

import numpy as np
import pytest

from wiserouter import (
    Budget,
    Contexts,
    Conversations,
    EpsilonFirst,
    Estimates,
    ExploreShare,
    Limit,
    Limits,
    Model,
    WiseRouter,
)

N = 4_000
MOST = 0.3


@pytest.fixture
def router():
    estimates = Estimates(2, 2)
    for context, rewards in enumerate(([0.2, 0.9], [0.5, 0.6])):
        estimates.add_table(np.full(100, context), np.tile(rewards, (100, 1)), np.tile([0.01, 0.03], (100, 1)))
    # the log says that half of the traffic is of the first context
    one = WiseRouter(
        [Model("small"), Model("large")], Contexts(np.eye(2), np.full(2, 0.5)), estimates=estimates, seed=0
    )
    one.start(Budget(10_000.0, 100_000))
    one.set_limits(Limits(max_share={"large": MOST}))
    return one


def served(router, contexts, **terms):
    return np.array([router.decide(context=int(context), **terms).model == "large" for context in contexts])


def test_the_largest_share_holds_at_every_time(router):
    large = served(router, np.random.default_rng(1).integers(0, 2, N)).cumsum()
    assert (large <= MOST * np.arange(1, N + 1) + 1.5).all()
    assert large[-1] / N == pytest.approx(MOST, abs=0.02)


def test_it_holds_where_the_traffic_is_not_that_of_the_plan(router):
    large = served(router, np.zeros(N))  # the plan gives all of the share to this context
    assert router.status().mix["large"] == pytest.approx(MOST)
    assert large[-1_000:].mean() <= MOST + 0.01


def test_a_query_that_only_this_model_may_answer_is_answered(router):
    assert served(router, np.zeros(20), eligible=["large"]).all()


def test_each_scope_has_a_share_of_its_own(router):
    router.start(Budget(10_000.0, 100_000), scope="b")
    served(router, np.zeros(20), eligible=["large"])
    assert not served(router, np.zeros(20)).any()
    assert served(router, np.zeros(20), scope="b").any()


LATENCY_S = {"small": 1.0, "middle": 2.0, "large": 3.0}


def pool_of_three(limits, budget=None, **settings):
    estimates = Estimates(1, 3)
    estimates.add_table(
        np.zeros(50, dtype=int), np.tile([0.2, 0.7, 0.9], (50, 1)), np.tile([0.01, 0.02, 0.04], (50, 1))
    )
    models = [Model(name, resources={"latency_s": use}) for name, use in LATENCY_S.items()]
    one = WiseRouter(models, estimates=estimates, seed=0, **settings)
    one.start(budget or Budget(3_000.0, 100_000))
    one.set_limits(limits)
    return one


def counts(router, n, **terms):
    found = dict.fromkeys(LATENCY_S, 0)
    for _ in range(n):
        decision = router.decide("a", **terms)
        found[decision.model] += 1
        router.charge(decision, decision.expected_cost_usd, resources={"latency_s": LATENCY_S[decision.model]})
    return found


def test_no_rule_calls_a_banned_model_where_another_may_answer():
    large, small = Limits(max_share={"large": 0.0}), Limits(max_share={"small": 0.0})
    assert counts(pool_of_three(large, explore=ExploreShare(0.5)), 100)["large"] == 0
    assert counts(pool_of_three(large, policy=EpsilonFirst(50)), 100)["large"] == 0
    used_up = pool_of_three(small, Budget(0.1, 10, on_exhausted="cheapest"))
    assert counts(used_up, 30)["small"] == 0
    both = pool_of_three(small, explore=ExploreShare(0.5))
    both.change_model("middle", max_share=0.1)
    assert counts(both, 200, eligible=["small", "middle"])["small"] == 0
    assert counts(used_up, 3, eligible=["small"])["small"] == 3


def test_a_run_leaves_its_model_once_that_is_banned():
    router = pool_of_three(Limits(max_share={"small": 0.5}), conversations=Conversations(unit="run"))
    assert router.decide("a", conversation="run", eligible=["large"]).model == "large"
    assert router.decide("a", conversation="run").model == "large"
    router.set_limits(Limits(max_share={"large": 0.0}))
    assert router.decide("a", conversation="run").model != "large"


def test_a_banned_model_is_the_last_to_take_over_a_failed_call():
    router = pool_of_three(Limits(max_share={"large": 0.5}))
    decision = router.decide("a", eligible=["small"])
    assert router.ranking(decision) == ["small", "large", "middle"]
    router.set_limits(Limits(max_share={"large": 0.0}))
    assert router.ranking(decision) == ["small", "middle", "large"]
    decision = router.decide("a", eligible=["large"])
    assert router.ranking(decision) == ["large", "middle", "small"]


def test_explored_decisions_count_in_the_share_and_have_their_exact_probability():
    n, most = 4_000, 0.1
    router = pool_of_three(Limits(max_share={"large": most}), explore=ExploreShare(0.6))
    expected, found, large = np.zeros(3), np.zeros(3), 0
    for at in range(1, n + 1):
        decision = router.decide("a")
        chances = [model.probability for model in router.explain(decision).models]
        k = router.pool.index(decision.model)
        assert decision.probability == chances[k]
        expected, large = expected + chances, large + (k == 2)
        found[k] += 1
        assert large <= most * at + 1.5
        router.charge(decision, decision.expected_cost_usd)
    assert large == pytest.approx(most * n, rel=0.05)
    assert found == pytest.approx(expected, abs=4.0 * np.sqrt(n) / 2.0)


def test_the_plan_makes_up_for_what_explored_decisions_use_of_a_mean():
    router = pool_of_three(Limits({"latency_s": Limit(mean=1.6)}), explore=ExploreShare(0.3))
    counts(router, 3_000)  # the explored ones use 2.0
    assert router.status().limits[0].mean == pytest.approx(1.6, rel=0.01)


def test_the_last_model_in_service_answers_though_it_is_banned():
    router = pool_of_three(Limits(max_share={"large": 0.0}))
    router.retire_model("small")
    assert router.decide("a").model == "middle"
    router.retire_model("middle")
    assert router.decide("a").model == "large"
    assert router.status().warnings == (
        "no mix of models keeps all limits; the nearest that is kept: max_share of large 1",
    )
    router.update_model(Model("middle"))
    assert router.decide("a").model == "middle"
    assert router.status().warnings == ()
