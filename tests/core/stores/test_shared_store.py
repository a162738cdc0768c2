"""Leases, windows and forks of shared stores, on SQLite with a fake clock."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import threading
import time
import weakref
from contextlib import closing
from dataclasses import replace

import pytest

from support.store_worker import record
from wiserouter import Budget, Contexts, Model, Price, WiseRouter, open_store
from wiserouter.budgets.changes import BudgetChange
from wiserouter.budgets.pauses import BudgetPaused
from wiserouter.errors import BudgetExhausted, InvalidInput, StoreUnavailable, UnknownDecision
from wiserouter.stores.engines.events import Find, Open, Restore
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.memory import MemoryStore
from wiserouter.stores.shared import SharedStore
from wiserouter.stores.shared.daily_sums import DAY_S
from wiserouter.stores.shared.estimate_sync import EstimateSync
from wiserouter.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock(1_000.0)


def hold(store, name):
    store.reserve(record(store, "s", name, 1.0, 1.0))
    return name


def call(store, name, held_usd=0.25, cost_usd=0.25, scope="s"):
    store.reserve(record(store, scope, name, held_usd, 0.5 * held_usd))
    store.settle(name, cost_usd)


def test_a_decision_is_found_by_one_of_several_names_in_one_exchange(opened, monkeypatch):
    finds = []
    exchange = SQLiteEngine.exchange

    def counted(engine, events, *reading):
        finds.extend([n] if (n := sum(isinstance(event, Find) for event in events)) else [])
        return exchange(engine, events, *reading)

    store, other = opened(), opened()
    store.open("s", Budget(1.0, 10))
    call(store, "a call")
    store.alias(("its alias",), "a call")
    monkeypatch.setattr(SQLiteEngine, "exchange", counted)
    assert other.find("no", "its alias", "none").decision.id == "a call"
    with pytest.raises(UnknownDecision, match="'no' is unknown"):
        other.find("no", "nor this", "none")
    assert finds == [3, 3]


def test_workers_on_leases_spend_all_and_never_more(opened):
    stores = [opened(lease_share=0.1, flush_s=3_600.0) for _ in range(3)]  # nothing is sent by the clock
    for store in stores:
        store.open("s", Budget(20.0, 1_000, limit="hard"))
    made, refused = 0, 0
    while refused < 30:
        for store in stores:
            try:
                call(store, f"call {made}")
                made += 1
            except BudgetExhausted:
                refused += 1
        if made % 7 == 0:
            for store in stores:
                store.refresh()
    for store in stores:
        store.refresh()
    ledger = stores[0].ledger("s")
    assert ledger.spent_usd == 0.25 * made
    assert 19.0 < ledger.spent_usd <= 20.0
    before = sum(store.health().exchanges for store in stores)
    assert before < made  # most calls needed no exchange


@pytest.mark.parametrize("limit", ["hard", "expected"])
def test_a_lease_is_given_back_at_the_end_and_that_of_a_killed_worker_is_presumed(opened, clock, limit):
    """Under a hard limit: the worker may have made calls that it did not report. Otherwise it is given back."""
    ending, other = opened(lease_share=0.2), opened()
    dying = opened(lease_share=0.2, refresh_s=1e9, flush_s=1e9)  # its thread is dead as well
    ending.open("s", Budget(10.0, 100, limit=limit))
    for store in (ending, dying):
        store.ledger("s")
        store.refresh()
        store.refresh()
    other.open("s", Budget(10.0, 100, limit=limit))
    assert other.ledger("s").leased_usd > 3.0
    ending.close()
    other.refresh()
    leased_usd = other.ledger("s").leased_usd
    assert 0.0 < leased_usd <= 2.0
    clock.advance(30.0 + 60.0 + 1.0)
    other.refresh()
    ledger, presumed_usd = other.ledger("s"), leased_usd if limit == "hard" else 0.0
    assert (ledger.leased_usd, ledger.presumed_usd, ledger.spent_usd) == (0.0, presumed_usd, presumed_usd)
    assert ledger.left_usd == 10.0 - presumed_usd
    if limit == "hard":
        with pytest.raises(BudgetExhausted):
            other.reserve(record(other, "s", "too expensive", 10.0, 5.0))
        other.reserve(record(other, "s", "all", 10.0 - presumed_usd, 5.0))
        with pytest.raises(BudgetExhausted):
            call(dying, "late", 3.0)  # its lease has ended and the budget is used up


def test_a_worker_that_was_suspended_has_its_lease_back(opened, clock):
    """What it used of the lease meanwhile counts once."""
    store, other = opened(lease_share=0.2, refresh_s=1e9, flush_s=1e9), opened()
    store.open("s", Budget(10.0, 100, limit="hard"))
    store.refresh()
    store.refresh()
    assert store._worker.leases.left_usd("s") == 2.0
    store.reserve(record(store, "s", "before", 0.5, 0.25))  # not reported yet
    clock.advance(30.0 + 60.0 + 1.0)
    other.open("s", Budget(10.0, 100, limit="hard"))
    assert other.ledger("s").presumed_usd == 2.0
    store.settle("before", 0.25)
    store.refresh()
    other.refresh()
    ledger = other.ledger("s")
    assert (ledger.spent_usd, ledger.reserved_usd, ledger.presumed_usd) == (0.25, 0.0, 0.0)
    assert 1.0 < ledger.leased_usd <= 2.0


def test_a_worker_without_traffic_gives_its_lease_back(opened, clock):
    store, other = opened(lease_share=0.2), opened()
    store.open("s", Budget(10.0, 100, limit="hard"))
    call(store, "a")
    store.refresh()
    other.open("s", Budget(10.0, 100, limit="hard"))
    assert other.ledger("s").leased_usd > 1.0
    clock.advance(601.0)
    store.refresh()
    other.ledger("s")
    other.refresh()
    ledger = other.ledger("s")
    assert (ledger.leased_usd, ledger.presumed_usd, ledger.left_usd) == (0.0, 0.0, 9.75)
    call(store, "b")
    store.refresh()
    other.refresh()
    assert (other.ledger("s").spent_usd, other.ledger("s").leased_usd > 1.0) == (0.5, True)


def test_leases_move_to_the_next_window(opened, clock):
    store, other = opened(lease_share=0.2), opened()
    store.open("s", Budget(10.0, every="1h", limit="hard"))
    for n in range(6):
        call(store, f"first {n}")
    clock.advance(3_600.0)
    for n in range(6):
        call(store, f"second {n}")
    store.refresh()
    ledger = store.ledger("s")
    assert (ledger.spent_usd, ledger.charged) == (1.5, 6)
    other.refresh()
    other.open("s", Budget(10.0, every="1h", limit="hard"))
    assert other.ledger("s").spent_usd == 1.5


def test_a_lease_is_not_used_in_a_window_that_another_worker_has_opened(opened, clock):
    clock.advance(3_600.0 - clock() % 3_600.0 + 3_590.0)  # the lease may be used for longer than the window runs
    leasing, other = opened(refresh_s=1e6, flush_s=1e6, lease_share=0.5), opened(refresh_s=1e6, flush_s=1e6)
    for one in (leasing, other):
        one.open("team", Budget(10.0, every="1h", limit="hard"))
        one.open("s", Budget(100.0, every="1d", limit="hard"), parent="team")
    call(leasing, "the first")
    leasing.refresh()
    clock.advance(20.0)
    for n in range(10):
        call(other, f"call {n}", 1.0, 1.0)
    with pytest.raises(BudgetExhausted, match="10 spent"):
        call(leasing, "one more", 1.0, 1.0)


def test_a_window_has_the_amount_that_was_last_given_whichever_worker_opens_it(opened, clock):
    store, other = (opened(refresh_s=1e6, flush_s=1e6) for _ in range(2))  # nothing is read by the clock
    for one in (store, other):
        one.open("s", Budget(100.0, every="1h", limit="hard"))
    store.change("s", BudgetChange(amount_usd=1.0))
    clock.advance(3_600.0)
    for n in range(4):
        call(other, f"call {n}")
    with pytest.raises(BudgetExhausted, match="the budget of 1 USD every 1h is used up"):
        call(other, "one more")
    store.refresh()
    assert (store.ledger("s").budget.amount_usd, store.ledger("s").spent_usd) == (1.0, 1.0)


def test_a_window_that_has_ended_is_forgotten_with_its_calls(clock, tmp_path):
    path = tmp_path / "budget.db"
    engine = SQLiteEngine(path, clock, reservation_ttl_s=60.0, decision_ttl_s=86_400.0)
    shared = SharedStore(engine, clock=clock, reservation_ttl_s=60.0)
    with closing(shared) as store, closing(sqlite3.connect(path)) as file:
        store.open("s", Budget(10.0, every="6h", limit="hard", rollover=True))
        for n in range(40):
            store.reserve(record(store, "s", f"call {n}", 1.0, 1.0))
            clock.advance(6 * 3_600.0)
            store.settle(f"call {n}", 1.5)  # after its window
        assert file.execute("SELECT count(*) FROM windows").fetchone()[0] <= 7
        with pytest.raises(UnknownDecision):
            SharedStore(engine, clock=clock).settle("call 30", 1.0)
        store.settle(hold(store, "late"), 2.0)
        assert store.ledger("s").spent_usd == 2.0
        assert store.ledger("s").carried_usd == 10.0


def test_an_amount_that_is_given_after_a_window_adds_nothing_to_what_that_window_leaves(opened, clock):
    hourly = Budget(5.0, every="1h", limit="hard", rollover=True)
    for change, scope in ((lambda store: store.amend("s", amount_usd=20.0, horizon=None), "s"), (None, "t")):
        store = opened(refresh_s=1e6, flush_s=1e6)
        store.open(scope, hourly)
        call(store, f"call in {scope}", 2.0, 2.0, scope)
        clock.advance(3_600.0)
        if change is None:  # a worker that starts with another configuration
            opened().open(scope, replace(hourly, amount_usd=20.0))
        else:
            change(store)
        store.refresh()
        assert (store.ledger(scope).budget.amount_usd, store.ledger(scope).carried_usd) == (20.0, 3.0)


def test_an_increase_outlasts_other_amounts_of_the_scope_and_ends_with_its_own(opened):
    store = opened()
    store.open("s", Budget(5.0, every="1d", within=Budget(20.0, every="1w")))
    store.change("s", BudgetChange(add_usd=4.0, windows=2, every="1w"))
    store.amend("s", amount_usd=6.0, horizon=None, every="1d")
    store.amend("s", amount_usd=None, horizon=70, every="1w")
    day, week = store.ledger("s").each
    assert (day.budget.amount_usd, week.budget.amount_usd, len(week.increases)) == (6.0, 24.0, 1)
    store.amend("s", amount_usd=20.0, horizon=None, every="1w")
    assert (store.ledger("s").each[1].budget.amount_usd, store.ledger("s").each[1].increases) == (20.0, ())


class AskedAgain(SQLiteEngine):
    """An engine whose first answers are lost: its client asks again, as redis-py does when a connection breaks."""

    def exchange(self, *given):
        super().exchange(*given)
        return super().exchange(*given)


def test_an_increase_whose_first_answer_was_lost_counts_once(tmp_path):
    with closing(SharedStore(AskedAgain(tmp_path / "budget.db"))) as store:
        store.open("s", Budget(10.0, 100, limit="hard"))
        answered = store.change("s", BudgetChange(add_usd=5.0))
        assert (answered.before["amount_usd"], answered.after["amount_usd"]) == (10.0, 15.0)
        assert not answered.replayed
        assert store.ledger("s").budget.amount_usd == 15.0


class SlowerToOpen(SQLiteEngine):
    """An engine at which another worker opens each account first."""

    def exchange(self, events, *rest):
        for opening in [event for event in events if isinstance(event, Open)]:
            faster = SharedStore(SQLiteEngine(self.path))
            faster.open(opening.scope, Budget(20.0, 100, limit="hard"))
            faster.close()
        return super().exchange(events, *rest)


def test_of_two_workers_that_open_a_budget_at_once_the_slower_one_joins_it(tmp_path):
    with closing(SharedStore(SlowerToOpen(tmp_path / "budget.db"))) as store:
        store.open("s", Budget(10.0, 100, limit="hard"))
        assert store.ledger("s").budget.amount_usd == 10.0
        with pytest.raises(InvalidInput, match="the budget that runs for scope 'other' is"):
            store.open("other", Budget(10.0, 100))


class JoinedMeanwhile(SQLiteEngine):
    """An engine during whose exchanges a peer joins the store."""

    join = staticmethod(lambda: None)

    def exchange(self, *given):
        reply = super().exchange(*given)
        self.join()
        return reply


def test_a_peer_that_joins_during_an_exchange_reads_what_was_learned_on_all_days(clock, opened, tmp_path):
    former, later = (EstimateSync(Contexts.single()) for _ in range(2))
    for sync in (former, later):
        sync.set_models(["a"])
    store = opened()
    store.join(former)
    store.refresh()
    former.add_cost(0, 0, 0.5)
    store.refresh()
    clock.advance(10 * DAY_S)
    engine = JoinedMeanwhile(tmp_path / "budget.db", clock)
    with closing(SharedStore(engine, clock=clock, refresh_s=1e6)) as other:
        other.refresh()
        engine.join = lambda: other.join(later)
        other.refresh()
        other.refresh()
        assert [one.sums.cost.sum() for one in later.remote_observations()] == [0.5]


def test_a_peer_that_is_dropped_while_the_store_is_away_is_forgotten_at_once(opened, monkeypatch):
    def away(*_):
        raise StoreUnavailable("away", store="this one")

    store, peer = opened(), EstimateSync(Contexts.single())
    peer.set_models(["a"])
    store.join(peer)
    with monkeypatch.context() as fault, pytest.raises(StoreUnavailable):
        fault.setattr(SQLiteEngine, "exchange", away)
        store.refresh()
    dropped = weakref.ref(peer)
    del peer
    gc.collect()
    assert dropped() is None


def test_an_account_that_was_not_used_for_a_while_is_read_before_it_is_used_again(opened, clock):
    store, other = (opened(refresh_s=1e6, flush_s=1e6) for _ in range(2))
    for one in (store, other):
        one.open("s", Budget(10.0, 1_000))
    store.change("s", BudgetChange(paused=True))
    clock.advance(600.0)
    with pytest.raises(BudgetPaused):
        other.snapshot("s")


def test_an_account_that_must_be_read_first_is_waited_for(clock, tmp_path):
    class Far(SQLiteEngine):
        near = False

    store = SharedStore(Far(tmp_path / "far.db", clock), clock=clock, refresh_s=1e6, flush_s=1e6)
    store.open("s", Budget(10.0, every="1h"))
    store.snapshot("s")
    assert not store.waits("s")
    clock.advance(600.0)
    assert store.waits("s")  # others may have paused it
    store.snapshot("s")
    clock.advance(3_600.0 - 1_000.0)
    assert store.waits("s")  # a window has ended
    store.snapshot("s")
    assert not store.waits("s")
    store.close()


def test_a_decision_that_is_no_longer_at_hand_is_waited_for(clock, tmp_path):
    class Far(SQLiteEngine):
        near = False  # like a server on a network

    store = SharedStore(Far(tmp_path / "far.db", clock), clock=clock, max_decisions=2)
    store.open("s", Budget(10.0, 100))
    for name in ("first", "second", "third"):
        store.reserve(record(store, "s", name, 0.25, 0.25))
    assert not store.waits("s")
    assert [store.waits("s", name) for name in ("first", "second", "third")] == [True, False, False]
    assert store.find("first").decision.id == "first"
    store.close()


def test_a_worker_whose_lease_is_used_up_is_waited_for(clock, tmp_path):
    class Far(SQLiteEngine):
        near = False

    store = SharedStore(Far(tmp_path / "far.db", clock), clock=clock, lease_share=0.1, refresh_s=1e6, flush_s=1e6)
    store.open("s", Budget(10.0, 100, limit="hard"))
    store.refresh()
    assert not store.waits("s")
    store.reserve(record(store, "s", "all", store._worker.leases.left_usd("s"), 0.25))
    assert store.waits("s")
    store.close()


def test_a_worker_that_joins_has_the_forecast_of_the_others(opened, clock):
    day = Budget(10.0, every="1d")
    clock.advance(15 * 3_600.0)  # no request was refused since midnight: the budget has just begun
    first, alone = opened(), MemoryStore(clock=clock)
    for store in (first, alone):
        store.open("s", day)
    for n in range(12):
        for store in (first, alone):
            call(store, f"{n}")
        clock.advance(20.0)
        if n % 4 == 3:  # between two notes, and on the first one
            first.refresh()
            joining = opened()
            joining.open("s", day)
            expected = [store.ledger("s").horizon_left for store in (first, joining, alone)]
            assert expected == pytest.approx([expected[0]] * 3, rel=0.02)


def test_a_forked_worker_has_leases_of_its_own(opened, monkeypatch):
    store = opened(lease_share=0.2)
    store.open("s", Budget(10.0, 100, limit="hard"))
    call(store, "a")
    store.refresh()
    leases = store._worker.leases
    assert leases.left_usd("s") > 0.0
    mine = leases.id("s")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert leases.left_usd("s") == 0.0
    assert leases.id("s") != mine


def test_a_worker_follows_the_change_of_another_one_within_a_second(opened, clock):
    one, other = opened(), opened()
    for store in (one, other):
        store.open("s", Budget(10.0, 100, limit="hard"))
    other.refresh()
    sleeps_s = other._worker.client.send_due()
    one.change("s", BudgetChange(amount_usd=5.0))
    clock.advance(1.0)
    other._worker.client.send_due()  # as its thread does
    assert sleeps_s <= 1.0
    assert other.ledger("s").left_usd == 5.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_is_forked_while_its_parent_sends_can_go_on(opened, monkeypatch):
    store, begun, exchange = opened(refresh_s=1e6, flush_s=1e6), threading.Event(), SQLiteEngine.exchange
    store.open("s", Budget(10.0, 100, limit="hard"))

    def slow(*given):
        begun.set()
        time.sleep(0.1)
        return exchange(*given)

    monkeypatch.setattr(SQLiteEngine, "exchange", slow)
    sending = threading.Thread(target=store.refresh)
    sending.start()
    assert begun.wait(30.0)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends a child that waits for a thread of its parent
        status = 1
        try:
            store.reserve(record(store, "s", "a call of the child", 0.25, 0.125))
            status = 0
        finally:
            os._exit(status)
    sending.join(30.0)
    assert os.waitpid(child, 0)[1] == 0
    store.refresh()
    assert store.ledger("s").in_flight == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_call_that_the_parent_is_asking_for_is_not_reserved_by_a_process_forked_meanwhile(opened):
    store, refused = opened(refresh_s=1e6, flush_s=1e6), []
    store.open("s", Budget(1.0, 100, limit="hard"))
    store.reserve(record(store, "s", "another call", 0.75, 0.75))

    def asks():
        with pytest.raises(BudgetExhausted) as error:
            store.reserve(record(store, "s", "a call of the parent", 0.5, 0.5))
        refused.append(error)

    asking, told, tell = threading.Thread(target=asks), *os.pipe()
    with store._worker.client._busy:  # as while another thread exchanges
        asking.start()
        while not store._worker.client.waiting:
            time.sleep(0.001)
        child = os.fork()
    if child == 0:
        signal.alarm(30)
        status = 1
        try:
            os.read(told, 1)
            store.spend("s", 0.25)
            status = 0
        finally:
            os._exit(status)
    asking.join(30.0)
    store.settle("another call", 0.0)
    os.write(tell, b"-")
    assert os.waitpid(child, 0)[1] == 0
    store.refresh()
    assert refused
    assert (store.ledger("s").spent_usd, store.ledger("s").reserved_usd) == (0.25, 0.0)


def test_a_worker_that_starts_late_knows_the_traffic_of_the_window(opened, clock):
    early = opened()
    early.open("s", Budget(10.0, every="1d"))
    for n in range(60):
        clock.advance(60.0)
        call(early, f"call {n}", 0.01, 0.01)
    clock.advance(61.0)
    early.refresh()
    late = opened()
    late.open("s", Budget(10.0, every="1d"))
    assert late.ledger("s").horizon == pytest.approx(early.ledger("s").horizon, rel=0.05)


def erase(path):
    """Delete all rows, as an engine does that comes back empty."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            file.execute(f"DELETE FROM {table}")


def test_what_every_worker_saw_is_restored_whoever_notices_the_loss_first(opened, clock, tmp_path):
    budget = Budget(10.0, every="1h", limit="hard")
    idle, active, late = opened(), opened(), opened()
    for store in (idle, active):
        store.open("s", budget)
    call(idle, "in a former window")
    clock.advance(3_600.0)
    for n in range(12):
        clock.advance(0.01)  # no two workers see a state at the same time
        call(active, f"{n}")
    clock.advance(0.01)
    active.reserve(record(active, "s", "in flight", 1.0, 0.5))
    erase(tmp_path / "budget.db")
    idle.ledger("s")
    idle.refresh()
    with pytest.raises(StoreUnavailable, match="hard limits stay closed for 5 s"):
        call(idle, "too early", held_usd=0.5)
    active.refresh()
    for store in (idle, active):
        store.refresh()
        ledger = store.ledger("s")
        assert (ledger.spent_usd, ledger.charged, ledger.in_flight) == (3.0, 12, 1)
        assert ledger.left_usd == 6.0
    clock.advance(5.1)
    active.settle("in flight", 0.75)
    call(idle, "later")
    late.open("s", budget)
    assert late.ledger("s").spent_usd == 4.0
    assert late.ledger("s").leased_usd == 0.0


@pytest.mark.parametrize("settled_first", [False, True])
def test_a_call_in_flight_across_the_end_of_a_window_counts_in_its_other_budgets_after_a_loss(
    opened, clock, tmp_path, settled_first
):
    hourly, whole = Budget(10.0, 1_000, every="1h", limit="hard"), Budget(10.0, 1_000, limit="hard")
    store, other = opened(), opened()
    for one in (store, other):
        one.open("s", whole)
        one.open("team", hourly, parent="s")
    clock.advance(2_590.0)
    store.reserve(record(store, "team", "across", 1.0, 0.5))
    clock.advance(20.0)
    call(store, "in the next hour", scope="team")
    assert other.ledger("team").each[0].spent_usd == 0.25
    erase(tmp_path / "budget.db")
    clock.advance(0.01)
    other.refresh()
    if settled_first:
        store.settle("across", 0.5)
    for one in (store, other):
        one.refresh()
    if not settled_first:
        assert other.ledger("s").reserved_usd == 1.0
        store.settle("across", 0.5)
    other.refresh()
    assert [one.spent_usd for one in other.ledger("team").each] == [0.25, 0.75]
    assert [one.reserved_usd + one.leased_usd for one in other.ledger("team").each] == [0.0, 0.0]


@pytest.mark.parametrize("parent", ["s", None])
@pytest.mark.parametrize("limit", ["hard", "expected"])
def test_a_budget_that_another_worker_knows_is_not_opened_empty_after_a_loss(opened, clock, tmp_path, limit, parent):
    group, team = Budget(10.0, every="1h"), Budget(1.0, every="1h", limit=limit)
    first, second = opened(), opened()
    for store in (first, second):
        store.open("s", group)
    first.open("team", team, parent=parent)
    call(first, "before", 0.75, 0.75, scope="team")
    first.refresh()
    erase(tmp_path / "budget.db")
    with pytest.raises(StoreUnavailable, match="no other budget is opened for 5 s while the workers restore it"):
        second.open("team", team, parent=parent)
    for store in (first, second):
        store.refresh()
    second.open("team", team, parent=parent)
    assert second.ledger("team").each[0].spent_usd == 0.75
    with pytest.raises(StoreUnavailable):
        second.open("new", team, parent=parent)
    clock.advance(5.1)
    second.open("new", team, parent=parent)


def test_a_loss_that_is_noticed_in_one_scope_after_the_other_counts_nothing_twice(opened, clock, tmp_path):
    budget, scopes = Budget(20.0, 1_000, limit="hard"), ("team", "user", "group")
    first, second = opened(), opened()
    both = [(store, scope) for store in (first, second) for scope in scopes]
    for store, scope in both:
        store.open("s", budget)
        store.open(scope, budget, parent="s")
        call(store, f"{id(store)} {scope}", 1.0, 0.375, scope=scope)
    for store in (first, second):
        store.refresh()
    erase(tmp_path / "budget.db")
    for store, scope in both:
        clock.advance(0.01)
        store._worker.refresh_account(scope)  # reads it and those that enclose it
        store.spend(scope, 0.125, billed=True)
    for store in (first, second, first):
        store.refresh()
    for store in (first, second):
        spent_usd = [store.ledger(scope).each[0].spent_usd for scope in (*scopes, "s")]
        assert spent_usd == [1.0, 1.0, 1.0, 3.0]
        assert store.ledger("s").leased_usd == 0.0


def test_a_second_loss_is_noticed_by_the_worker_that_has_restored_the_first(opened, clock, tmp_path):
    budget = Budget(20.0, 1_000, limit="hard")
    first, second = opened(), opened()
    for store in (first, second):
        store.open("s", budget)
    for restoring, other, n in ((first, second, 1), (second, first, 2)):
        clock.advance(5.1)
        call(other, f"seen by both {n}", 1.0, 1.0)
        restoring.refresh()
        clock.advance(0.01)
        call(first, f"seen by the first {n}", 1.0, 1.0)
        erase(tmp_path / "budget.db")
        for store in (restoring, other, restoring):
            clock.advance(0.01)
            store.refresh()
    assert [store.ledger("s").spent_usd for store in (first, second)] == [4.0, 4.0]


def test_what_a_worker_of_an_earlier_version_has_restored_is_added_to(opened, clock, tmp_path):
    store = opened()
    store.open("s", Budget(10.0, 1_000))
    seen = store._worker.replica.remembered("s")
    clock.advance(1.0)
    store.spend("s", 3.0)
    erase(tmp_path / "budget.db")
    restore = Restore("s", 1, seen.terms, seen.windows, "a name without a time", seen.as_of_s, "lost|s", 0.0, 60.0, 5.0)
    store._worker.client._engine.exchange([restore])
    for _ in range(2):
        store.refresh()
    assert store.ledger("s").spent_usd == 3.0


def refreshed(*routers):
    for router in (*routers, *routers):
        router._store.refresh()


def test_what_workers_have_learned_outlives_a_loss_of_the_store(tmp_path):
    url = f"sqlite:///{tmp_path / 'budget.db'}?refresh_s=1000"
    routers = [WiseRouter([Model("small", Price(1e-6, 1e-6))], store=url, watch=None) for _ in range(2)]

    def learn(n, router, reward):
        for _ in range(n):
            decision = router.decide(context=0, input_tokens=10)
            router.charge(decision, 0.01)
            router.reward(decision, reward)

    for router in routers:
        router.start(Budget(10.0, 1_000))
    learn(4, routers[0], 0.25)
    learn(2, routers[1], 0.5)
    refreshed(*routers)
    erase(tmp_path / "budget.db")
    for n in (1, 2):  # with what was not sent yet, and with what is learned later
        learn(1, routers[0], 0.75)
        learn(1, routers[1], 0.75)
        refreshed(*routers)
        for router in routers:
            router.status()
            assert (router.estimates.labels[0, 0], router.estimates.calls[0, 0]) == (6 + 2 * n, 6 + 2 * n)
            assert router.estimates.reward[0, 0] == pytest.approx(4 * 0.25 + 2 * 0.5 + 2 * n * 0.75)
    for router in routers:
        router.close()


def away(store, step):
    """Let the engine fail during a step."""
    exchange, store._worker.client._engine.exchange = store._worker.client._engine.exchange, refusing
    try:
        step()
    finally:
        store._worker.client._engine.exchange = exchange


def refusing(*_):
    raise StoreUnavailable("it is away", store="store")


@pytest.mark.parametrize("limit", ["hard", "expected"])
def test_a_call_that_its_worker_claims_after_a_loss_is_set_apart_in_no_budget(opened, tmp_path, limit):
    budget, workers = Budget(10.0, 1_000, limit=limit), (opened(), opened())
    for store in workers:
        for scope, parent in (("s", None), ("team", "s"), ("user", "team")):
            store.open(scope, budget, parent=parent)
        store.reserve(record(store, "user", f"in flight {id(store)}", 1.0, 0.5))
        store.reserve(record(store, "user", f"settled {id(store)}", 2.0, 0.5))
    for store in workers:
        store.refresh()
    erase(tmp_path / "budget.db")
    for store in workers:
        away(store, lambda store=store: store.settle(f"settled {id(store)}", 0.0))
    for _ in range(3):
        for store in workers:
            store.refresh()
    for store in workers:
        ledgers = [store.ledger(scope).each[0] for scope in ("s", "team", "user")]
        assert [(one.leased_usd, one.reserved_usd, one.in_flight) for one in ledgers] == [(0.0, 2.0, 2)] * 3
        assert [(one.decided, one.charged) for one in ledgers] == [(4, 2)] * 3


def test_a_former_window_is_not_restored_in_place_of_the_present_one(opened, clock, tmp_path):
    budget = Budget(10.0, every="1h", limit="hard")
    idle, active = opened(), opened()
    for store in (idle, active):
        store.open("s", budget)
    call(idle, "in the former window", 4.0, 4.0)
    clock.advance(3_600.0)
    call(active, "in the present one", 3.0, 3.0)
    erase(tmp_path / "budget.db")
    for store in (idle, active, idle, active):
        clock.advance(0.01)
        store.refresh()
    clock.advance(5.1)
    for store in (idle, active):
        assert store.ledger("s").left_usd == 7.0


def test_a_cost_that_is_sent_after_another_worker_has_restored_a_former_window_is_counted(opened, clock, tmp_path):
    idle, active = opened(), opened()
    for store in (idle, active):
        store.open("s", Budget(10.0, every="1h"))
    clock.advance(3_600.0)
    active.spend("s", 3.0)
    erase(tmp_path / "budget.db")
    away(active, lambda: active.spend("s", 0.5))
    for store in (idle, active, idle, active):
        clock.advance(1.1)
        store.refresh()
    for store in (idle, active):
        assert store.ledger("s").spent_usd == 3.5


@pytest.mark.parametrize("first", ["with a lease", "without"])
def test_what_was_leased_before_a_loss_is_set_apart_in_no_budget(opened, clock, tmp_path, first):
    leasing, other = opened(lease_share=0.2), opened()
    for store in (leasing, other):
        for scope, parent in (("s", None), ("team", "s")):
            store.open(scope, Budget(10.0, 100, limit="hard"), parent=parent)
    clock.advance(0.01)
    leasing.refresh()
    leasing._worker.client._wake.set()  # nothing is sent in the background from now on
    call(leasing, "unsent", 0.25, 0.125, scope="team")
    erase(tmp_path / "budget.db")
    for store in (leasing, other, leasing) if first == "with a lease" else (other, leasing):
        clock.advance(0.01)
        store.refresh()
    leasing.close()
    clock.advance(5.1)
    for scope in ("s", "team"):
        other.refresh()
        ledger = other.ledger(scope).each[0]
        assert (ledger.spent_usd, ledger.in_flight, ledger.leased_usd) == (0.125, 0, pytest.approx(0.0))


@pytest.mark.parametrize("every", [None, "1h"])
@pytest.mark.parametrize("restarts", [0, 2])
def test_a_worker_that_starts_after_a_loss_grants_no_budget_again(opened, clock, tmp_path, every, restarts):
    budget = Budget(10.0, 1_000, every=every, limit="hard")
    first, second = opened(), opened()
    first.open("s", budget)
    for _ in range(restarts):
        first.open("s", budget, restart=True)
    second.open("s", budget)
    for n in range(8):
        call(first, f"first {n}", 1.0, 0.5)
    call(second, "second", 1.0, 1.0)
    for store in (first, second):
        store.refresh()
        store.reserve(record(store, "s", f"in flight {id(store)}", 0.5, 0.25))
    erase(tmp_path / "budget.db")
    clock.advance(0.1)
    newcomer = opened()
    newcomer.open("s", budget)
    newcomer.reserve(record(newcomer, "s", "granted again", 0.5, 0.5))
    call(newcomer, "again", 1.0, 0.25)
    newcomer.settle("granted again", 0.5)  # what it gets before the others notice
    for _ in range(3):
        for store in (first, newcomer, second):
            clock.advance(0.01)
            store.refresh()
    spent_usd = 8 * 0.5 + 1.0 + 0.25 + 0.5
    for store in (first, second, newcomer):
        ledger = store.ledger("s")
        assert (ledger.spent_usd, ledger.charged, ledger.in_flight) == (spent_usd, 11, 2)
        assert ledger.left_usd == 10.0 - spent_usd - 2 * 0.5
    with pytest.raises(StoreUnavailable, match="hard limits stay closed"):
        call(newcomer, "too early", 0.5, 0.5)
    clock.advance(5.1)
    for store in (first, second):
        store.settle(f"in flight {id(store)}", 0.25)
    late = opened()
    late.open("s", budget)
    assert (late.ledger("s").spent_usd, late.ledger("s").charged) == (spent_usd + 0.5, 13)
    assert late.ledger("s").left_usd == 10.0 - spent_usd - 0.5
    with pytest.raises(BudgetExhausted):
        call(newcomer, "too much", 4.0, 4.0)


def test_leases_and_unsent_charges_survive_a_loss_without_counting_twice(opened, clock, tmp_path):
    store, other = opened(lease_share=0.2), opened(lease_share=0.1)
    store.open("s", Budget(10.0, 100, limit="hard"))
    other.open("s", Budget(10.0, 100, limit="hard"))
    for each in (store, other):
        each.refresh()
        assert each._worker.leases.left_usd("s") > 0.5
    call(store, "sent")
    store.refresh()
    store._worker.client._wake.set()  # nothing is sent in the background from now on
    call(store, "unsent")
    store.reserve(record(store, "s", "in flight", 0.25, 0.125))
    erase(tmp_path / "budget.db")
    for _ in range(3):
        for each in (store, other):
            each.refresh()
    clock.advance(5.1)
    for _ in range(2):
        for each in (store, other):
            each.refresh()
    ledger = other.ledger("s")
    leased_usd = sum(each._worker.leases.left_usd("s") for each in (store, other))
    assert (ledger.spent_usd, ledger.charged, ledger.in_flight, ledger.reserved_usd) == (0.5, 2, 1, 0.25)
    assert ledger.leased_usd == pytest.approx(leased_usd)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("postgres://host", "store must be a URL that starts with memory://, sqlite:// or redis://"),
        ("sqlite:budget.db", "got 'sqlite:budget.db': for that file say sqlite:///budget.db$"),
        ("redis:host:6379", "got 'redis:host:6379': for that server say redis://host:6379$"),
        ("redis:/host", "got 'redis:/host': for that server say redis://host$"),
        ("", "got ''$"),
        ("memory://?colour=red", "a store in memory has no settings, got 'colour=red'"),
        ("sqlite:///{}?colour=red", "a setting of a store must be one of .*, got 'colour'"),
        ("sqlite:///{}?refresh_s=soon", "refresh_s must be a number, got 'soon'"),
        ("sqlite:///{}?refresh_s=0", "refresh_s must be a finite number of seconds, more than 0, got '0'"),
        ("sqlite:///{}?flush_s=-1", "flush_s must be a finite number of seconds, more than 0, got '-1'"),
        ("sqlite:///{}?timeout_s=nan", "timeout_s must be a finite number of seconds, more than 0, got 'nan'"),
        ("sqlite:///{}?synchronous=off", "synchronous must be 'normal' or 'full', got 'off'"),
        ("sqlite:///{}?lease_share=0.9", r"lease_share must lie in \(0, 0.5\], got 0.9"),
        ("sqlite:///{}?on_store_error=open", "on_store_error must be 'closed' or 'local', got 'open'"),
        ("redis://host/0?colour=red", "must be known here or to redis-py, got 'colour'"),
        ("redis://host/0?protocol=9", "must be known here or to redis-py, got protocol must be either 2 or 3"),
        ("redis://host/0?credential_provider=mine", "redis-py, got credential_provider, which no text can be"),
        ("redis+cluster://host/0?retry_on_error=mine", "redis-py, got retry_on_error, which no text can be"),
        ("rediss://host/0?ssl_cert_reqs=some", "known here or to redis-py, got Invalid SSL .* Flag: some"),
    ],
)
def test_a_wrong_url_names_the_valid_ones(tmp_path, url, rule):
    with pytest.raises(InvalidInput, match=rule):
        open_store(url.format(tmp_path / "budget.db"))


def test_a_replica_of_any_age_may_be_too_old():
    open_store("redis://host/0?on_store_error=closed&max_staleness_s=0").close()


@pytest.mark.parametrize("login", [f"me:{sign}secret" for sign in ("", "a/", "a?", "a#", "a@", "[")])
@pytest.mark.parametrize("scheme", ["mysql://", "redis//:", "Redis://"])
def test_a_password_is_in_no_message(scheme, login):
    with pytest.raises(InvalidInput) as refused:
        open_store(f"{scheme}{login}@host/0")
    assert "secret" not in f"{refused.value} {vars(refused.value)}"
