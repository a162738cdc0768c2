"""Largest shares of models: held by a count of the decisions, not only by the plan."""

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, Limits, Model, WiseRouter

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
