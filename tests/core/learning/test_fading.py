"""What is taken back late is what is left of it: sums are then as if it had never been there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, Contexts, Estimates, MemoryStore, Model, Optimistic, Price, Watch, WiseRouter
from wiserouter.learning.fading import MOST_CHANGES, Fading
from wiserouter.learning.optimistic_estimates import OptimisticEstimates

MODELS = (Model("small", Price(1e-6, 1e-6)), Model("large", Price(5e-6, 5e-6)))


class Clock:
    now_s = 1_700_000_000.0

    def __call__(self):
        return self.now_s


def served(clock, watch):
    contexts = Contexts(np.eye(2), [0.5, 0.5])
    router = WiseRouter(MODELS, contexts, policy=Optimistic(), store=MemoryStore(clock), watch=watch, seed=0)
    router.start(Budget(10.0, horizon=100_000))
    return router


def watched():
    estimates, watch = Estimates(2, 1), Watch(half_life_s=3_000.0, fade_every_s=1_000.0, bucket_requests=10**9)
    watch.follow(estimates, 0.0)
    return watch, estimates


def call(router, context):
    decision = router.decide(context=context)
    router.charge(decision, cost_usd=1e-4)
    router.reward(decision, 0.8)
    return decision


@pytest.mark.parametrize("half_life_s", [None, 3_600.0])
def test_calls_of_an_outage_are_released_after_old_ones_have_faded(half_life_s):
    clock = Clock()
    router = served(clock, Watch(half_life_s=half_life_s))
    lost = []
    for i in range(3_000):
        if i % 3 == 0:
            lost.append(router.decide(context=1))
            router.presume(lost[-1])
        call(router, 0 if i % 10 else 1)
        clock.now_s += 0.01
    for _ in range(2_000):
        call(router, 0)
        clock.now_s += 10.0
    before = router.estimates.met.copy()
    for decision in lost:
        router.release(decision)
    taken = (before - router.estimates.met).sum(axis=1)
    assert taken[0] == 0.0
    assert taken[1] == pytest.approx(before[1].sum() * 1_000 / 1_300, rel=0.01)
    call(router, 1)
    assert router.status().charged == 5_001


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(1.0, 7_200.0), st.integers(0, 1)), min_size=1, max_size=60))
def test_a_release_leaves_no_trace_of_its_decision(calls):
    with_lost, without = watched(), watched()
    now_s, lost = 0.0, []
    for after_s, context in calls:
        now_s += after_s
        for watch, estimates in (with_lost, without):
            watch.check_drift(now_s)
            for sums in (estimates, watch.bucket):
                sums.add_invoked(context, 0, 2 if watch is with_lost[0] else 1)
        lost.append((now_s, context))
    watch = with_lost[0]
    for decided_s, context in lost:
        for sums in watch.sums_since(decided_s):
            sums.take_back(context, 0, watch.left_of(decided_s, context, 0))
    for field in ("met", "invoked"):
        np.testing.assert_allclose(*(getattr(sums, field) for _, sums in (with_lost, without)), atol=1e-12)
        np.testing.assert_allclose(*(getattr(watch.bucket, field) for watch, _ in (with_lost, without)), atol=1e-12)


def test_a_score_that_is_replaced_late_counts_for_what_is_left_of_it():
    clock = Clock()
    router = served(clock, Watch(half_life_s=3_600.0))
    decisions = [call(router, 0) for _ in range(10)]
    for _ in range(24):
        clock.now_s += 3_600.0
        call(router, 1)
    labels = router.estimates.labels.copy()
    for decision in decisions:
        router.reward(decision, 0.0)
    np.testing.assert_allclose(router.estimates.labels, labels)
    assert (router.estimates.reward >= 0.0).all()
    assert router.estimates.reward[0].sum() == pytest.approx(0.0, abs=1e-12)
    assert router.estimates.reward[1].sum() == pytest.approx(0.8 * labels[1].sum())


def test_a_saved_router_comes_back_with_the_same_sums_after_late_releases_and_scores(tmp_path):
    clock = Clock()
    router = served(clock, Watch(half_life_s=3_600.0))
    lost = [router.decide(context=1) for _ in range(30)]
    for decision in lost:
        router.reward(call(router, 1), 0.1)
        router.presume(decision)
    clock.now_s += 86_400.0
    call(router, 0)
    for decision in lost:
        router.release(decision)
    router.save(tmp_path / "router.wise")
    loaded = WiseRouter.load(tmp_path / "router.wise").estimates
    for name, array in router.estimates.arrays().items():
        np.testing.assert_array_equal(loaded.arrays()[name], array, err_msg=name)


def test_many_changes_are_kept_as_few():
    fading = Fading()
    for t in range(1, 10 * MOST_CHANGES):
        fading.forget(float(t), {"met": np.full((1, 1), 0.99)})
    assert fading.left_of(0.0, 0, 0).met == pytest.approx(0.99 ** (10 * MOST_CHANGES - 1))
    assert fading.left_of(1e6, 0, 0).met == 1.0
    fading.reshape(2, 3)
    assert fading.left_of(0.0, 1, 0).met == pytest.approx(0.99 ** (10 * MOST_CHANGES - 1))
    assert fading.left_of(0.0, 1, 2).met == 1.0


@pytest.mark.parametrize("back_s", [60.0, 60 * 86_400.0])
def test_no_time_passes_while_a_clock_goes_back(back_s):
    clock = Clock()
    router = served(clock, Watch(half_life_s=3_600.0))
    for i in range(700):
        if i == 100:
            clock.now_s -= back_s
        call(router, 0)
    assert router.estimates.calls.sum() == pytest.approx(700.0)


def test_contexts_are_equally_frequent_where_every_query_was_taken_back():
    optimistic = OptimisticEstimates(Estimates(2, 2), MODELS, 1.0)
    optimistic.refresh(100, 1.0)
    assert optimistic.freq.tolist() == [0.5, 0.5]
