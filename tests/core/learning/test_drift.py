"""Changes are detected, all else is kept, and old observations fade with time."""

import numpy as np
import pytest

from wiserouter import Budget, Contexts, MemoryStore, Model, Optimistic, Price, Watch, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import Estimates
from wiserouter.pricing.prices import Usage


def bucket(watch, estimates, rng, skill, n, *, cost=1.0, freq=None):
    """Add `n` observations of a world to the estimates and to the watch's bucket."""
    n_contexts, n_models = skill.shape
    for _ in range(n):
        context, model = int(rng.choice(n_contexts, p=freq)), int(rng.integers(n_models))
        reward, paid = float(rng.random() < skill[context, model]), cost * float(np.exp(rng.normal(0, 0.3)))
        for seen in (estimates, watch.bucket):
            seen.add_invoked(context, model)
            seen.add_cost(context, model, paid)
            seen.add_reward(context, model, reward)


def watched(**settings):
    estimates, watch = Estimates(4, 3), Watch(**settings)
    watch.follow(estimates, 0.0)
    return estimates, watch


SKILL = np.array([[0.9, 0.6, 0.3], [0.8, 0.5, 0.5], [0.4, 0.9, 0.7], [0.6, 0.6, 0.6]])


def test_nothing_is_noticed_while_nothing_changes():
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(20):
        estimates, watch = watched()
        for hour in range(1, 11):
            bucket(watch, estimates, rng, SKILL, 500)
            changes = watch.check_drift(3_600.0 * hour)
            alarms += bool(changes.rewards.any() or changes.costs.any() or changes.frequencies)
    assert alarms <= 2  # of 200 buckets, at .001 each


def test_a_model_that_got_worse_is_noticed_and_the_others_are_kept():
    rng = np.random.default_rng(1)
    estimates, watch = watched()
    bucket(watch, estimates, rng, SKILL, 3_000)
    watch.check_drift(3_600.0)
    before = estimates.copy()
    worse = SKILL.copy()
    worse[:, 0] -= 0.3
    bucket(watch, estimates, rng, worse, 400)
    changes = watch.check_drift(7_200.0)
    assert changes.rewards[:, 0].all()
    assert not changes.rewards[:, 1:].any()
    assert not changes.costs.any()
    assert not changes.frequencies
    assert estimates.labels[:, 0].sum() < 0.2 * before.labels[:, 0].sum()  # the confidence in it is wide
    assert (estimates.labels[:, 1:] > before.labels[:, 1:]).all()
    after = estimates.reward[:, 0].sum() / estimates.labels[:, 0].sum()
    assert abs(after - worse[:, 0].mean()) < abs(after - SKILL[:, 0].mean())
    assert changes.describe(["a", "b", "c"]) == ["the rewards of a have changed in 4 of 4 contexts"]


def test_a_change_in_one_context_leaves_the_others():
    rng = np.random.default_rng(2)
    estimates, watch = watched(bucket_requests=1_200)
    bucket(watch, estimates, rng, SKILL, 6_000)
    watch.check_drift(3_600.0)
    odd = SKILL.copy()
    odd[2, 1] = 0.1
    bucket(watch, estimates, rng, odd, 1_200)
    changes = watch.check_drift(7_200.0)
    assert changes.rewards[2, 1]
    assert not changes.rewards[:, [0, 2]].any()


def test_costs_and_frequencies_are_watched_too():
    rng = np.random.default_rng(3)
    estimates, watch = watched()
    bucket(watch, estimates, rng, SKILL, 2_000)
    watch.check_drift(3_600.0)
    bucket(watch, estimates, rng, SKILL, 500, cost=2.0, freq=[0.7, 0.1, 0.1, 0.1])
    changes = watch.check_drift(7_200.0)
    assert changes.costs.any(axis=0).all()
    assert not changes.rewards.any()
    assert changes.frequencies
    share = estimates.met.sum(axis=1) / estimates.met.sum()
    assert share[0] > 0.45  # between the old .25 and the new .7, nearer to the new


@pytest.mark.parametrize("factor", [0.1, 0.5, 0.97])
def test_fading_keeps_means_and_shrinks_counts(factor):
    rng = np.random.default_rng(4)
    estimates, watch = watched()
    bucket(watch, estimates, rng, SKILL, 500)
    before = estimates.copy()
    estimates.fade(factor)
    assert np.allclose(estimates.means(shrink=False).reward, before.means(shrink=False).reward)
    assert np.allclose(estimates.labels, factor * before.labels)


def test_half_of_the_weight_is_left_after_a_half_life_whatever_the_buckets():
    for steps in (1, 7, 24):
        rng = np.random.default_rng(5)
        estimates, watch = watched(half_life_s=86_400.0, fade_every_s=86_400.0 / steps)
        bucket(watch, estimates, rng, SKILL, 400)
        for step in range(1, steps + 1):
            assert watch.check_drift(86_400.0 / steps * step + 1e-6 * step) is not None
        assert estimates.labels.sum() == pytest.approx(200.0)


def test_a_bucket_lasts_until_it_is_full_whatever_the_time():
    _, watch = watched(bucket_requests=500)
    for _ in range(499):
        watch.bucket.add_invoked(0, 0)
        assert watch.check_drift(1e9) is None
    watch.bucket.add_invoked(0, 0)
    assert watch.check_drift(0.0) is not None
    assert watch.bucket.n_invoked == 0


def test_rewards_are_tested_each_time_that_a_bucket_has_doubled():
    _, watch = watched(bucket_requests=500)
    tested = []
    for n in range(1, 501):
        watch.bucket.add_invoked(0, 0)
        if n >= watch.next_test:
            tested.append(n)
        watch.check_drift(0.0)
    assert tested == [20, 40, 80, 160, 320, 500]


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_breaks_is_noticed_within_a_few_dozen_calls(seed):
    rng = np.random.default_rng(seed)
    estimates, watch = watched()
    while watch.bucket.n_invoked or not estimates.n_invoked:
        bucket(watch, estimates, rng, SKILL, 1)
        watch.check_drift(0.0)
    broken = SKILL * [0.0, 1.0, 1.0]
    n, changes = 0, None
    while changes is None:
        bucket(watch, estimates, rng, broken, 1)
        n, changes = n + 1, watch.check_drift(0.0)
    assert n <= 160  # a third of them calls of this model
    assert changes.rewards[:, 0].all()
    assert not changes.rewards[:, 1:].any()
    assert not changes.costs.any()
    assert not changes.frequencies


def test_rare_dear_calls_do_not_end_a_bucket_early():
    rng = np.random.default_rng(8)
    estimates, watch = watched()
    for _ in range(3_000):
        bucket(watch, estimates, rng, SKILL, 1, cost=float(np.exp(rng.normal(0, 2.0))))
        changes = watch.check_drift(0.0)
        assert changes is None or not changes.rewards.any()


@pytest.mark.parametrize("failures", [1, 2])
def test_a_rare_failure_of_a_model_that_hardly_fails_is_no_change(failures):
    estimates, watch = watched()
    for n in range(520):
        for seen in (estimates, watch.bucket):
            seen.add_invoked(0, 0)
            seen.add_reward(0, 0, float(n < 500 or n >= 500 + failures))
        changes = watch.check_drift(0.0)
        assert changes is None or not changes.rewards.any()


def test_an_hour_of_few_requests_does_not_put_off_a_test():
    _, watch = watched(half_life_s=86_400.0)
    for n in range(20):
        assert watch.next_test == 20
        watch.bucket.add_invoked(0, 0)
        watch.check_drift(3_600.0 * (n + 1) if n < 19 else 0.0)
    assert watch.next_test == 40


def test_a_change_is_noticed_where_traffic_is_thin():
    rng = np.random.default_rng(7)
    estimates, watch = watched()
    worse, noticed = SKILL.copy(), None
    worse[:, 0] -= 0.4
    for hour in range(1, 400):
        bucket(watch, estimates, rng, SKILL if hour <= 200 else worse, 5)  # five requests an hour
        changes = watch.check_drift(3_600.0 * hour)
        if changes is not None and changes.rewards[:, 0].any():
            noticed = hour
            break
    assert 200 < noticed <= 330


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"half_life_s": 0.0}, "half_life_s must be above 0"),
        ({"fade_every_s": -1.0}, "fade_every_s must be a finite number of at least 0"),
        ({"bucket_requests": 0}, "bucket_requests must be a whole number"),
        ({"false_alarms": 1.0}, r"false_alarms must lie in \(0, 1\)"),
    ],
)
def test_bad_settings_are_refused(settings, says):
    with pytest.raises(InvalidInput, match=says):
        Watch(**settings)


def test_a_router_without_feedback_or_with_a_new_price_raises_no_alarm(caplog):
    caplog.set_level("INFO", logger="wiserouter")
    now = [0.0]
    pool = [Model("a", Price(0.0, 1e-5)), Model("b", Price(0.0, 4e-5))]
    router = WiseRouter(
        pool, Contexts([[0.0], [1.0]], [0.5, 0.5]), policy=Optimistic(), store=MemoryStore(lambda: now[0]), seed=0
    )
    router.start(Budget(100.0, 3_000))
    rng = np.random.default_rng(6)
    for t in range(2_000):
        now[0] += 10.0
        if t == 1_000:
            router.update_model(Model("b", Price(0.0, 4e-6)))
        decision = router.decide(context=int(rng.integers(2)))
        router.charge(decision, usage=Usage(0, int(100 * np.exp(rng.normal(0, 0.3)))))
    assert "have changed" not in caplog.text
    assert router.estimates.metered.sum() == 2_000


@pytest.mark.parametrize("cost_usd", [3e-6, 1.05e-4, 0.1, 0.7])
def test_one_and_the_same_cost_never_changes(cost_usd):
    estimates, watch = Estimates(1, 1), Watch(bucket_requests=100)
    watch.follow(estimates, 0.0)
    for _ in range(3_000):
        for seen in (estimates, watch.bucket):
            seen.add_invoked(0, 0)
            seen.add_cost(0, 0, cost_usd)
        watch.check_drift(1.0)
    assert estimates.calls[0, 0] == 3_000
