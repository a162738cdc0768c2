"""Uses of resources that the workers of one store learn from each other, also after a restart."""

import numpy as np
import pytest

from support.groups import fitted
from wiserouter import Budget, Contexts, Limit, Limits, Model, Offline, WiseRouter, open_store
from wiserouter.budgets.limits import Measure
from wiserouter.learning.resource_estimates import ResourceEstimates
from wiserouter.stores.shared import call_sync

LATENCY = Measure("latency_s")
LIMITS = Limits({"latency_s": Limit(mean=2.0)})


@pytest.fixture
def workers(tmp_path, monkeypatch):
    monkeypatch.setattr(call_sync, "EVERY_S", 0.0)
    opened = []

    def worker(limits=LIMITS):
        models = [Model(name, resources={"latency_s": 1.0}) for name in ("small", "large")]
        store = open_store(f"sqlite:///{tmp_path / 'shared.db'}")
        one = WiseRouter(models, Contexts.single(), estimates=fitted().estimates, policy=Offline(), store=store, seed=0)
        opened.append(one)
        one.start(Budget(100.0, 10_000))
        if limits is not None:
            one.set_limits(limits)
        return one

    yield worker
    for one in opened:
        one.close()


def serve(one, n, latency_s=5.0):
    for _ in range(n):
        decision = one.decide("hi")
        one.charge(decision, 0.01, resources={"latency_s": latency_s})
    one.refresh()


def learned(one):
    """Return what is known of the uses once the present plan is solved again."""
    one.refresh()
    scopes = one._decider.limits
    scopes.means(LIMITS)
    return scopes._uses[LATENCY].means()[0]


def test_a_worker_learns_what_another_one_has_seen(workers):
    first, second = workers(), workers()
    serve(first, 60)
    assert learned(second) == pytest.approx(learned(first), rel=0.01)
    assert learned(second).max() > 4.0
    serve(second, 60)
    assert learned(first) == pytest.approx(learned(second), rel=0.01)  # nothing counts twice


def test_a_worker_that_starts_later_knows_what_was_learned(workers):
    first = workers()
    serve(first, 60)
    before = learned(first)
    first.close()
    assert learned(workers()) == pytest.approx(before, rel=0.01)


def test_meters_are_those_of_all_workers(workers):
    first, second = workers(), workers()
    serve(first, 10)
    serve(second, 5, latency_s=2.0)
    first.refresh()
    shown = [one.status().limits[0] for one in (first, second)]
    assert [(one.calls, one.used) for one in shown] == [(15, 60.0)] * 2


def test_a_worker_without_limits_shares_nothing(workers):
    first, second = workers(None), workers()
    serve(first, 10)
    assert learned(second) == pytest.approx([1.0, 1.0])


def test_models_that_are_added_take_part(workers):
    first, second = workers(), workers()
    serve(first, 20)
    for one in (first, second):
        one.add_model(Model("new", resources={"latency_s": 1.0}))
    decision = first.decide("hi", eligible=["new"])
    first.charge(decision, 0.01, resources={"latency_s": 9.0})
    first.refresh()
    assert learned(second)[2] == pytest.approx(learned(first)[2])
    assert learned(second)[2] > 1.0


def test_many_calls_at_once_count_as_many_one_by_one():
    rng = np.random.default_rng(0)
    uses = rng.exponential(2.0, 300)
    each, together = ResourceEstimates(1, [None]), ResourceEstimates(1, [None])
    for use in uses:
        each.add(0, 0, use)
    together.add_many(0, 0, len(uses), uses.sum(), (uses**2).sum())
    assert together.means() == pytest.approx(each.means(), rel=0.01)
    together.add_many(0, 0, 1e7, 1e7, 1e7)  # more than are remembered
    assert together.means()[0, 0] == pytest.approx(1.0, abs=0.5)
    assert np.isfinite(together.means()).all()
