"""Workers add their observations to shared sums: each gets those of the others, once and in any order."""

import os
import random

import numpy as np
import pytest

from support.engine_model import ModelEngine
from wiserouter import Contexts
from wiserouter.learning.estimates import FIELDS
from wiserouter.pricing.prices import Usage
from wiserouter.stores.engines.base import ReadRequest, Reply
from wiserouter.stores.shared.daily_sums import DAY_S, MAX_AGE_DAYS
from wiserouter.stores.shared.estimate_sync import EstimateSync

TWO = Contexts(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.5, 0.5]))
NOON_S = 20_000.5 * DAY_S


def worker(*models, contexts=TWO):
    sync = EstimateSync(contexts)
    sync.set_models(models)
    return sync


def exchange(sync, engine, now_s=NOON_S):
    """Send and read once, as a store does."""
    events = sync.outgoing(now_s)
    sync.incoming(engine.exchange(events, ReadRequest((), sync.wanted(now_s))))


def received(sync):
    """Return the sums from other workers, as one dict of arrays of shape (n_contexts, n_models)."""
    found = sync.remote_observations()
    return {field: sum(getattr(one.sums, field) for one in found) for field in FIELDS} if found else {}


@pytest.fixture
def engine():
    return ModelEngine()


@pytest.fixture
def pair(engine):
    workers = worker("a", "b"), worker("a", "b")
    for one in workers:
        exchange(one, engine)
    return workers


def test_a_worker_reads_the_additions_of_another(engine, pair):
    one, other = pair
    one.add_invoked(0, 1)
    one.add_invoked(0, 1)
    one.take_back(0, 1)
    one.add_cost(0, 1, 0.5, Usage(10, 20))
    one.add_cost(0, 1, 1.5)
    one.add_reward(1, 0, 0.5, delay_s=60.0)
    one.add_reward(1, 0, 0.8, replacing=0.5, delay_s=90.0)
    exchange(one, engine)
    exchange(other, engine)
    assert (one.has_news, other.has_news) == (False, True)
    expected = {field: np.zeros((2, 2)) for field in FIELDS}
    for field, value in {
        "invoked": 1.0,
        "met": 1.0,
        "calls": 2.0,
        "cost": 2.0,
        "cost_sq": 0.25 + 2.25,
        "metered": 1.0,
        "input_tokens": 10.0,
        "output_tokens": 20.0,
    }.items():
        expected[field][0, 1] = value
    for field, value in {"labels": 1.0, "reward": 0.8, "reward_sq": 0.64, "scored": 1.0, "delay_s": 60.0}.items():
        expected[field][1, 0] = value
    (found,) = other.remote_observations()
    for field in FIELDS:
        np.testing.assert_allclose(getattr(found.sums, field), expected[field], rtol=1e-12, err_msg=field)
    assert (found.age_s, found.sums.n_invoked) == (0.0, 1)
    assert (found.sums.observed, found.sums.n_observations) == ([2, 1], 3)
    assert not other.has_news
    assert other.remote_observations() == []


def test_two_workers_add_to_the_same_cell(engine, pair):
    one, other = pair
    one.add_cost(0, 0, 1.0)
    other.add_cost(0, 0, 4.0)
    for _ in range(2):
        for each in pair:
            exchange(each, engine)
    assert received(one)["cost"][0, 0] == 4.0
    assert received(other)["cost"][0, 0] == 1.0
    one.add_cost(0, 0, 2.0)
    for _ in range(3):
        for each in pair:
            exchange(each, engine)
    assert received(one) == {}
    assert received(other)["cost"][0, 0] == 2.0


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_exchanges_does_not_matter(seed):
    engine, rng = ModelEngine(), random.Random(seed)
    workers = [worker("a", "b") for _ in range(3)]
    own = [np.zeros((2, 2)) for _ in workers]
    for step in range(40):
        k = rng.randrange(3)
        context, model, cost_usd = rng.randrange(2), rng.randrange(2), float(rng.randrange(1, 9))
        workers[k].add_cost(context, model, cost_usd)
        own[k][context, model] += cost_usd
        k = rng.randrange(3)
        exchange(workers[k], engine, NOON_S + step)
    for _ in range(2):
        for one in workers:
            exchange(one, engine, NOON_S + 40.0)
    for one, added in zip(workers, own, strict=True):
        np.testing.assert_array_equal(received(one)["cost"], sum(own) - added)


def test_an_addition_whose_reply_was_lost_counts_once(engine, pair):
    one, other = pair
    one.add_cost(0, 0, 1.0)
    sent = one.outgoing(NOON_S)
    engine.exchange(sent)  # the reply does not arrive
    one.add_cost(0, 0, 2.0)
    assert one.outgoing(NOON_S + DAY_S) == sent
    exchange(one, engine, NOON_S + DAY_S)  # the first addition again, of the day before
    exchange(one, engine, NOON_S + DAY_S)
    exchange(other, engine, NOON_S + DAY_S)
    assert received(other)["cost"][0, 0] == 3.0
    assert received(one) == {}


def test_a_forked_worker_sends_nothing_of_its_parent(engine, pair, monkeypatch):
    parent, other = pair
    parent.add_cost(0, 0, 1.0)
    (first,) = parent.outgoing(NOON_S)
    parent.add_cost(0, 1, 1.0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert parent.outgoing(NOON_S) == []  # in the child, the state of the parent
    parent.add_cost(1, 1, 8.0)
    (learn,) = parent.outgoing(NOON_S)
    assert learn.worker != first.worker
    assert learn.deltas == {"calls|1|b": 1.0, "cost|1|b": 8.0, "cost_sq|1|b": 64.0}
    exchange(parent, engine)
    exchange(other, engine)
    np.testing.assert_array_equal(received(other)["cost"], [[0.0, 0.0], [0.0, 8.0]])


def test_a_model_that_a_worker_does_not_know_waits_until_it_does(engine):
    one, other = worker("a", "b|2"), worker("a")
    for each in (one, other):
        exchange(each, engine)
    one.add_cost(0, 0, 1.0)
    one.add_cost(0, 1, 4.0)
    exchange(one, engine)
    exchange(other, engine)
    assert received(other)["cost"].tolist() == [[1.0], [0.0]]
    assert other.has_news
    assert received(other) == {}
    other.set_models(["b|2", "a"])
    assert received(other)["cost"].tolist() == [[4.0, 0.0], [0.0, 0.0]]
    assert not other.has_news


def test_workers_with_other_contexts_share_nothing(engine):
    one, other = worker("a"), worker("a", contexts=Contexts.single())
    for each in (one, other):
        exchange(each, engine)
    one.add_cost(0, 0, 1.0)
    exchange(one, engine)
    exchange(other, engine)
    assert received(other) == {}


def test_a_worker_that_starts_reads_the_sums_of_ninety_days_by_age(engine):
    old, morning_s = worker("a", "b"), NOON_S - DAY_S / 4
    for days, cost_usd in ((MAX_AGE_DAYS, 1.0), (10, 2.0), (1, 4.0), (0, 8.0)):
        old.add_cost(0, 0, cost_usd)
        exchange(old, engine, morning_s - days * DAY_S)
    new = worker("a", "b")
    exchange(new, engine, morning_s)
    found = [(one.age_s / DAY_S, one.sums.cost[0, 0]) for one in new.remote_observations()]
    assert found == [(9.75, 2.0), (0.0, 4.0), (0.0, 8.0)]  # measured from the middle of a day; yesterday is recent
    assert len(new.wanted(morning_s)) == 2


def test_rounding_of_a_sum_is_no_observation():
    sync = worker("a")
    day = sync.wanted(NOON_S)[0]
    for total in (1.0, 1.0 + 1e-15):
        sync.incoming(Reply(NOON_S, [], {}, {day: {"cost|0|a": total}}, {}))
    assert received(sync)["cost"][0, 0] == 1.0
