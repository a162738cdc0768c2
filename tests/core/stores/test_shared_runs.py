"""Runs and conversations in shared stores: on leases, while the store is away, and beside an event loop."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from support.off_loop import store_at
from support.store_worker import record
from wiserouter import Budget, Contexts, Model, Price, WiseRouter
from wiserouter.budgets.run_caps import RunCap
from wiserouter.conversations.conversation import Conversation
from wiserouter.conversations.settings import Conversations
from wiserouter.errors import BudgetExhausted, RunBudgetExhausted, StoreDamaged, StoreUnavailable
from wiserouter.testing import FakeClock

HARD, EXPECTED = RunCap("run", 1.0, True, 900.0), RunCap("run", 1.0, False, 900.0)


@pytest.fixture
def clock():
    return FakeClock(1_000.0)


@pytest.fixture
def opened(tmp_path, clock):
    """Open workers of one store, each with an engine that can be taken away."""
    stores = []

    def open_one(near=False, **settings):
        store, engine = store_at(tmp_path / "b.db", near=near, clock=clock, **settings)
        stores.append(store)
        engine.path = tmp_path / "b.db"
        return store, engine

    yield open_one
    for store in stores:
        store.close()


def in_run(store, name, *caps, held_usd=0.5, expected_usd=0.25):
    return replace(record(store, "s", name, held_usd, expected_usd), caps=caps)


def answers_again(engine, clock, *stores):
    engine.down = False
    clock.advance(2.0)
    for store in stores:
        store.refresh()


@pytest.mark.parametrize("near", [True, False])
def test_an_expected_limit_continues_runs_while_the_store_is_away(opened, clock, near):
    (store, engine), (other, _) = opened(near), opened(near)
    store.open("s", Budget(10.0, 100))
    run = Conversation("run", "s", "run", model="m", rest_usd=0.5)
    assert store.keep_conversation(run, 900.0)
    store.reserve(in_run(store, "first", EXPECTED))
    engine.down = True
    state = store.conversation("run")
    assert state == run._replace(version=1)
    assert store.keep_conversation(state._replace(calls=2, rest_usd=0.25), 900.0)
    assert not store.keep_conversation(state._replace(calls=3), 900.0)
    assert store.conversation("run").calls == 2
    assert store.conversation("unknown") is None
    for name in ("second", "third", "fourth"):
        store.reserve(in_run(store, name, EXPECTED))
        assert store.snapshot("s", (EXPECTED,)).bearable_usd < 1.0
    with pytest.raises(RunBudgetExhausted):
        store.reserve(in_run(store, "fifth", EXPECTED))
    store.settle("second", 0.125)
    answers_again(engine, clock, store, other)
    assert other.conversation("run") == run._replace(version=2, calls=2, rest_usd=0.25)
    seen = other.snapshot("s", (EXPECTED,))
    assert (seen.committed_usd, seen.account.caps[0].spent_usd, seen.account.caps[0].in_flight) == (0.25, 0.125, 3)
    assert (other.ledger("s").spent_usd, other.ledger("s").in_flight) == (0.125, 3)


@pytest.mark.parametrize("settings", [{}, {"lease_share": 0.25}, {"on_store_error": "local"}], ids=str)
def test_a_hard_cap_admits_nothing_while_the_store_is_away(opened, clock, settings):
    store, engine = opened(**settings)
    store.open("s", Budget(10.0, 100, limit="hard" if settings else "expected"))
    store.reserve(in_run(store, "first", HARD))
    store.refresh()
    engine.down = True
    with pytest.raises(StoreUnavailable):
        store.refresh()
    store.reserve(record(store, "s", "no run", 0.125, 0.0625))
    with pytest.raises(StoreUnavailable):
        store.reserve(in_run(store, "second", HARD, held_usd=0.125))
    clock.advance(1.5)
    with pytest.raises(StoreUnavailable):
        store.snapshot("s", (HARD,))
    store.settle("first", 0.25)
    answers_again(engine, clock, store)
    assert store.snapshot("s", (HARD,)).account.caps[0].spent_usd == 0.25
    store.reserve(in_run(store, "second", HARD))


def test_a_closed_store_continues_no_conversation(opened):
    store, engine = opened(on_store_error="closed")
    store.open("s", Budget(10.0, 100))
    chat = Conversation("chat", "s", "conversation")
    assert store.keep_conversation(chat, 900.0)
    engine.down = True
    for step in (
        lambda: store.conversation("chat"),
        lambda: store.keep_conversation(chat._replace(version=1), 900.0),
        lambda: store.end_conversation("chat"),
    ):
        with pytest.raises(StoreUnavailable):
            step()


def test_a_state_that_another_worker_has_kept_meanwhile_stays(opened, clock):
    (store, engine), (other, _) = opened(), opened()
    store.open("s", Budget(10.0, 100))
    chat = Conversation("chat", "s", "conversation")
    assert store.keep_conversation(chat, 900.0)
    engine.down = True
    assert store.keep_conversation(chat._replace(version=1, model="mine"), 900.0)
    assert other.keep_conversation(chat._replace(version=1, model="theirs"), 900.0)
    answers_again(engine, clock, store)
    assert store.conversation("chat").model == "theirs"


def test_a_conversation_that_ends_while_the_store_is_away_is_ended(opened, clock):
    (store, engine), (other, _) = opened(), opened()
    store.open("s", Budget(10.0, 100))
    assert store.keep_conversation(Conversation("run", "s", "run", rest_usd=1.0), 900.0)
    engine.down = True
    store.end_conversation("run")
    assert store.conversation("run") is None
    answers_again(engine, clock, store, other)
    assert (other.conversation("run"), other.snapshot("s").committed_usd if other.ledger("s") else None) == (None, 0.0)


def test_calls_of_runs_are_taken_from_leases_and_no_more_than_their_cap(opened):
    (store, _), (other, _) = opened(lease_share=0.25), opened(lease_share=0.25)
    store.open("s", Budget(10.0, 100, limit="hard"))
    for one in (store, other):
        one.ledger("s")
        one.refresh()
        one.refresh()
    held_usd = [one._worker.leases.left_usd("s") for one in (store, other)]
    store.reserve(in_run(store, "first", HARD))
    other.reserve(in_run(other, "second", HARD))
    after_usd = [one._worker.leases.left_usd("s") for one in (store, other)]
    assert after_usd == pytest.approx([held_usd[0] - 0.5, held_usd[1] - 0.5], abs=0.3)
    for one in (store, other):
        with pytest.raises(RunBudgetExhausted):
            one.reserve(in_run(one, "third", HARD, held_usd=0.125))
        one.refresh()
    granted = 0
    with pytest.raises(BudgetExhausted):
        while True:
            one = (store, other)[granted % 2]
            one.reserve(in_run(one, f"more {granted}", replace_key(granted)))
            granted += 1
    store.refresh()
    assert 1.0 + 0.5 * granted <= 10.0 + 1e-9
    assert store.ledger("s").reserved_usd == pytest.approx(1.0 + 0.5 * granted)


def replace_key(n):
    return RunCap(f"run {n}", 1.0, True, 900.0)


def test_a_state_that_cannot_be_read_is_damage(opened):
    store, engine = opened()
    store.open("s", Budget(10.0, 100))
    assert store.keep_conversation(Conversation("chat", "s", "conversation"), 900.0)
    with sqlite3.connect(engine.path) as file:
        file.execute("UPDATE conversations SET text = '{'")
    file.close()
    with pytest.raises(StoreDamaged, match="conversation that cannot be read"):
        store.conversation("chat")


@pytest.mark.parametrize("near", [True, False])
async def test_runs_never_wait_on_the_event_loop(opened, near):
    store, engine = opened(near)
    models = [Model("small", Price(1e-6, 2e-6)), Model("large", Price(1e-5, 3e-5))]
    runs = Conversations(unit="run", run_budget_usd=1.0)
    router = WiseRouter(models, Contexts.single(), store=store, conversations=runs, seed=0)
    router.start(Budget(10.0, 100))
    engine.seen.clear()
    for _ in range(3):
        decision = await router.adecide(context=0, input_tokens=100, max_output_tokens=10, conversation="run")
        await router.acharge(decision, 0.001)
    failed = await router.adecide(context=0, input_tokens=100, max_output_tokens=10, conversation="run")
    await router.arelease(failed)
    assert engine.seen == []
    router.end("run")
    assert store.snapshot("default").committed_usd == 0.0


@pytest.mark.parametrize("settings", [{}, {"on_store_error": "closed"}], ids=str)
def test_calls_of_conversations_that_are_settled_while_the_store_is_away_are_learned_from(opened, clock, settings):
    store, engine = opened(**settings)
    router = with_conversations(store, "conversation")
    answered, failed = (router.decide("hi", conversation=name, **BOUNDS) for name in ("a", "b"))
    engine.down = True
    router.charge(answered, 2e-5)
    router.release(failed)
    answers_again(engine, clock, store)
    status, learned = router.status(), router.estimates
    assert (status.spent_usd, status.charged, status.released, status.reserved_usd) == (2e-5, 1, 1, 0.0)
    assert (learned.calls.sum(), learned.invoked.sum()) == (1.0, 1.0)


@pytest.mark.parametrize("unit", ["conversation", "run"])
def test_a_call_whose_conversation_cannot_be_kept_holds_nothing(opened, monkeypatch, unit):
    store, _ = opened()
    router = with_conversations(store, unit)

    def goes_away(*_):
        raise StoreUnavailable("the engine cannot be reached", store="test")

    with monkeypatch.context() as patched:
        patched.setattr(store, "keep_conversation", goes_away)
        with pytest.raises(StoreUnavailable):
            router.decide("hi", conversation="a", **BOUNDS)
    status = router.status()
    assert (status.reserved_usd, status.in_flight, status.decided) == (0.0, 0, 0)
    assert router.decide("hi", conversation="a", **BOUNDS).reserved_usd > 0.0


BOUNDS = {"input_tokens": 10, "max_output_tokens": 9}


def with_conversations(store, unit):
    model, settings = Model("small", Price(1e-6, 2e-6)), Conversations(unit=unit)
    router = WiseRouter([model], store=store, conversations=settings, seed=0)
    router.start(Budget(1.0, 100, limit="hard"))
    return router
