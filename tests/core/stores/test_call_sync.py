"""Workers share what they learn of the calls of conversations: each gets that of the others, once and in any order."""

import os
import random

import numpy as np
import pytest

from support.engine_model import ModelEngine
from wiserouter import Contexts, Conversations, Model, Price, Usage, WiseRouter
from wiserouter.conversations.call_estimates import CallEstimates
from wiserouter.conversations.conversation import Conversation
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.shared import call_sync
from wiserouter.stores.shared.call_sync import EVERY_S, CallSync
from wiserouter.stores.shared.daily_sums import DAY_S
from wiserouter.stores.shared.estimate_sync import EstimateSync

TWO = Contexts(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.5, 0.5]))
PRICE = Price(3e-6, 1.5e-5, cache_read=3e-7)
NOON_S = 20_000.5 * DAY_S


class Worker:
    """One worker: its estimates, its sync and its clock."""

    def __init__(self, engine, *names):
        self.engine, self.names, self.now_s = engine, names, NOON_S
        self.estimates = CallEstimates([Model(name, PRICE) for name in names], 2)
        self.sync = CallSync(TWO, self.estimates)
        self.sync.set_models(names)

    def learn(self, seed, calls=5):
        draw = random.Random(seed)
        model = draw.randrange(len(self.names))
        state = Conversation("a", "default", "run")
        for n in range(1, calls + 1):
            prompt = draw.randrange(1000, 9000)
            usage = Usage(prompt, draw.randrange(10, 900), cache_read_tokens=draw.randrange(prompt // 2))
            self.estimates.learn(state, draw.randrange(2), model, usage, float(n))
            self.estimates.calls_left.made(model, n)
            state = Conversation("a", "default", "run", prompt_tokens=prompt).warmed(
                self.names[model], prompt, float(n)
            )
        self.estimates.end(model, calls)

    def exchange(self, engine=None):
        self.now_s += EVERY_S
        events = self.sync.outgoing(self.now_s)
        self.sync.incoming(self.engine.exchange(events, ReadRequest((), self.sync.wanted(self.now_s))))
        if self.sync.has_news:
            self.sync.merge()


def assert_equal(one, other):
    theirs = other.estimates.sums()
    for name, sums in one.estimates.sums().items():
        np.testing.assert_allclose(sums, theirs[name], rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("seed", range(5))
def test_all_workers_know_what_any_of_them_has_seen_however_the_exchanges_fall(seed):
    draw, engine = random.Random(seed), ModelEngine()
    workers, alone = [Worker(engine, "a", "b") for _ in range(3)], Worker(engine, "a", "b")
    for step in range(30):
        one = draw.choice(workers)
        if draw.random() < 0.6:
            one.learn((seed, step).__hash__())
            alone.learn((seed, step).__hash__())
        else:
            one.exchange()
    for _ in range(2):
        for one in workers:
            one.exchange()
    for one in workers:
        assert_equal(one, alone)


def test_a_worker_that_starts_later_reads_what_was_seen_before():
    engine = ModelEngine()
    first = Worker(engine, "a", "b")
    first.learn(1)
    first.exchange()
    later = Worker(engine, "b", "a")
    later.exchange()
    for name, sums in first.estimates.sums().items():
        np.testing.assert_allclose(later.estimates.sums()[name][::-1], sums, rtol=1e-9, err_msg=name)


def test_an_exchange_that_was_not_confirmed_is_sent_again_and_counts_once():
    engine = ModelEngine()
    one, other = Worker(engine, "a"), Worker(engine, "a")
    one.learn(1)
    engine.exchange(one.sync.outgoing(one.now_s + 1.0), ReadRequest((), ()))  # the reply is lost
    one.now_s += 1.0
    one.learn(2)
    for _ in range(2):
        one.exchange()
    other.exchange()
    assert_equal(one, other)


def test_a_model_that_joins_one_worker_is_kept_until_the_other_knows_it():
    engine = ModelEngine()
    one, other = Worker(engine, "a", "b"), Worker(engine, "a")
    one.learn(0)
    one.learn(3)
    one.exchange()
    other.exchange()
    np.testing.assert_allclose(other.estimates.sums()["hits.firsts"], one.estimates.sums()["hits.firsts"][:1])
    other.estimates.follow([Model("a", PRICE), Model("b", PRICE)])
    other.sync.set_models(("a", "b"))
    other.sync.merge()
    assert_equal(one, other)


def test_it_exchanges_once_a_second():
    one = Worker(ModelEngine(), "a")
    one.learn(1)
    assert one.sync.outgoing(NOON_S + 1.0)
    assert one.sync.outgoing(NOON_S + 1.5) == []
    assert one.sync.wanted(NOON_S + 1.5) == []


def test_sums_of_other_names_in_a_reply_are_left_alone():
    engine = ModelEngine()
    calls, means = Worker(engine, "a"), EstimateSync(TWO)
    means.set_models(("a",))
    calls.learn(1)
    means.add_cost(0, 0, 1.0)
    events = [*calls.sync.outgoing(NOON_S + 1.0), *means.outgoing(NOON_S)]
    names = [*calls.sync.wanted(NOON_S + 1.0), *means.wanted(NOON_S)]
    reply = engine.exchange(events, ReadRequest((), names))
    for peer in (calls.sync, means):
        peer.incoming(reply)
    assert not calls.sync.has_news
    assert not means.has_news


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_worker_does_not_send_what_its_parent_has_learned():
    engine = ModelEngine()
    one = Worker(engine, "a")
    one.learn(1)
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        sent = one.sync.outgoing(NOON_S + 1.0)
        os.write(writes, str(len(sent)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reads, 10) == b"0"
    os.close(reads)
    os.close(writes)
    assert one.sync.outgoing(NOON_S + 1.0)


def test_routers_on_one_store_learn_from_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(call_sync, "EVERY_S", 0.0)
    store = f"sqlite:///{tmp_path}/budget.db"
    models = [Model("a", PRICE, max_output_tokens=100), Model("b", PRICE, max_output_tokens=100)]
    routers = [WiseRouter(models, store=store, conversations=Conversations("run"), seed=0) for _ in range(2)]
    learned = routers[0]._calls.estimates
    learned.learn(Conversation("a", "default", "run"), 0, 0, Usage(4000, 50), 1.0)
    for router in routers:
        router._store.refresh()
    routers[1]._calls._follow()
    assert routers[1]._calls.estimates.tokens.first(0) == [4000.0, 4000.0]
    for router in routers:
        router._store.close()
