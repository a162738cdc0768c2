"""A store that goes back to an older state, such as a snapshot, while its workers run: what they know is restored."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager, nullcontext

import numpy as np
import pytest

from support.redis_servers import MISSING, redis_server, serving, wait_until
from support.store_worker import record
from wiserouter import Budget, open_store
from wiserouter.errors import BudgetExhausted, StoreUnavailable
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore
from wiserouter.stores.shared.estimate_sync import EstimateSync
from wiserouter.testing import FakeClock

NEEDS_REDIS = pytest.mark.skipif(redis_server() is None, reason=MISSING)


class Ticking(FakeClock):
    """A clock that shows no time twice, as that of a server."""

    def __call__(self) -> float:
        self.advance(1e-5)
        return super().__call__()


@pytest.fixture
def clock():
    return Ticking(1_000.0)


@pytest.fixture
def snapshot(tmp_path):
    """Return a copy of the present state; calling `restore` on it takes the store back."""

    @contextmanager
    def taken():
        with closing(sqlite3.connect(":memory:")) as copy, closing(sqlite3.connect(tmp_path / "budget.db")) as file:
            file.backup(copy)
            yield
            copy.backup(file)

    return taken


def call(store, name, held_usd=0.5, cost_usd=0.25, scope="s"):
    store.reserve(record(store, scope, name, held_usd, 0.5 * held_usd))
    store.settle(name, cost_usd)


def empty(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            file.execute(f"DELETE FROM {table}")


def rounds(clock, *stores):
    for _ in range(2):
        for store in stores:
            clock.advance(0.01)
            store.refresh()


@pytest.mark.parametrize("every", [None, "1h"])
@pytest.mark.parametrize("first", [0, 1])
def test_what_was_spent_since_a_snapshot_is_restored_once(opened, clock, snapshot, every, first):
    outer, inner = Budget(20.0, 1_000, every=every, limit="hard"), Budget(10.0, 1_000, every=every, limit="hard")
    both = opened(), opened()
    for store in both:
        store.open("all", outer)
        store.open("s", inner, parent="all")
    call(both[0], "before")
    both[0].reserve(record(both[0], "s", "settled since", 1.0, 0.5))
    both[1].reserve(record(both[1], "s", "in flight", 1.0, 0.5))
    with snapshot():
        both[0].settle("settled since", 0.75)
        for n in range(8):
            call(both[n % 2], f"since {n}")
        both[0].reserve(record(both[0], "s", "begun since", 1.0, 0.5))
        rounds(clock, *both)
    clock.advance(0.01)
    with pytest.raises(StoreUnavailable, match="hard limits stay closed for 5 s"):
        call(both[first], "too early")
    rounds(clock, *both)
    late = opened()
    late.open("all", outer)
    late.open("s", inner, parent="all")
    for store in (*both, late):
        for ledger in store.ledger("s").each:
            assert (ledger.spent_usd, ledger.charged, ledger.in_flight, ledger.reserved_usd) == (3.0, 10, 2, 2.0)
            assert ledger.leased_usd == 0.0
    clock.advance(5.1)
    both[1].settle("in flight", 0.5)
    both[0].settle("begun since", 0.5)
    call(late, "later", cost_usd=0.5)
    with pytest.raises(BudgetExhausted):
        call(late, "too much", held_usd=5.6)
    for ledger in late.ledger("s").each:
        assert (ledger.spent_usd, ledger.charged, ledger.in_flight) == (4.5, 13, 0)


def test_a_worker_that_has_seen_nothing_since_the_snapshot_follows(opened, clock, snapshot):
    busy, quiet = opened(), opened()
    for store in (busy, quiet):
        store.open("s", Budget(10.0, 1_000, limit="hard"))
    quiet.reserve(record(quiet, "s", "in flight", 1.0, 0.5))
    with snapshot():
        call(busy, "since", cost_usd=0.5)
    clock.advance(0.01)
    busy.refresh()
    quiet.settle("in flight", 0.75)
    for store in (busy, quiet):
        store.refresh()
        ledger = store.ledger("s")
        assert (ledger.spent_usd, ledger.charged, ledger.in_flight, ledger.leased_usd) == (1.25, 2, 0, 0.0)


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_budget_that_was_begun_again_is_restored_as_such(opened, clock, snapshot, tmp_path, is_empty):
    budget = Budget(10.0, 1_000, limit="hard")
    first, second = opened(), opened()
    for store in (first, second):
        store.open("s", budget)
    call(second, "before", cost_usd=0.5)
    with snapshot():
        first.open("s", budget, restart=True)
        call(first, "since")
        first.reserve(record(first, "s", "in flight", 1.0, 0.5))
    if is_empty:
        empty(tmp_path / "budget.db")
    clock.advance(0.01)
    rounds(clock, second, first)  # the one that knows the former budget comes first
    for store in (first, second):
        ledger = store.ledger("s")
        assert (ledger.spent_usd, ledger.charged, ledger.reserved_usd, ledger.leased_usd) == (0.25, 1, 1.0, 0.0)
    clock.advance(5.1)
    first.settle("in flight", 0.5)
    call(second, "later")
    first.refresh()
    assert first.ledger("s").spent_usd == 1.0


def test_a_store_may_go_back_again(opened, clock, snapshot):
    stores = opened(), opened()
    for store in stores:
        store.open("s", Budget(10.0, 1_000, limit="hard"))
    with snapshot():
        for n in range(3):
            call(stores[n % 2], f"{n}")
            rounds(clock, *stores)
            with snapshot():
                call(stores[0], f"{n} since")
            rounds(clock, *stores)
            clock.advance(5.1)
    rounds(clock, *stores)
    for store in stores:
        assert (store.ledger("s").spent_usd, store.ledger("s").charged) == (1.5, 6)


def test_what_was_learned_before_a_snapshot_is_learned_once(opened, clock, snapshot):
    stores, sums = (opened(), opened()), []
    for store in stores:
        store.open("s", Budget(10.0, 1_000))
        sums.append(EstimateSync.named("sums", 1))
        sums[-1].set_models(["m"])
        store.join(sums[-1])

    def learn(worker):
        sums[worker].add_cost(0, 0, 1.0)
        rounds(clock, *stores)

    for _ in range(3):
        learn(0)
    with snapshot():
        learn(0)
    rounds(clock, *stores)
    learn(0)
    assert sum(float(one.sums.calls.sum()) for one in sums[1].remote_observations()) == 5.0


@pytest.mark.parametrize("back_s", [0.0, 5.0, 30 * 86_400.0])
@pytest.mark.parametrize("goes_back", [False, True])
def test_a_clock_that_is_set_back_is_no_older_state_and_hides_none(opened, clock, snapshot, back_s, goes_back):
    clock.advance(90 * 86_400.0)
    stores = opened(), opened()
    for n, store in enumerate(stores):
        store.open("s", Budget(10.0, 1_000, limit="hard"))
        call(store, f"before {n}")
    call(stores[1], "unseen by the first")
    clock.advance(-back_s)
    with losing_a_reply(stores[0]), pytest.raises(StoreUnavailable):
        stores[0].refresh()
    rounds(clock, *stores)
    with snapshot() if goes_back else nullcontext():
        for n, store in enumerate(stores):
            call(store, f"{n}")
        rounds(clock, *stores)
    rounds(clock, *stores)
    for store in stores:
        assert (store.ledger("s").spent_usd, store.ledger("s").charged) == (1.25, 5)
    if not goes_back:
        call(stores[0], "open")


@pytest.mark.parametrize("behind_s", [0.0, 5.0])
def test_what_another_worker_has_restored_stays_where_the_clock_of_an_empty_store_is_behind(
    opened, clock, tmp_path, behind_s
):
    first, second = opened(), opened()
    for store in (first, second):
        store.open("s", Budget(10.0, 1_000, limit="hard"))
    call(first, "seen by the first")
    empty(tmp_path / "budget.db")
    clock.advance(-behind_s)
    rounds(clock, first)
    rounds(clock, second, first)
    for store in (first, second):
        assert (store.ledger("s").spent_usd, store.ledger("s").charged) == (0.25, 1)


def test_a_worker_that_was_away_for_long_is_no_sign_of_an_older_state(opened, clock):
    sleeper, busy = opened(), opened()
    for store in (sleeper, busy):
        store.open("s", Budget(10.0, 1_000, limit="hard"))
    sleeper.refresh()
    for day in range(8):
        clock.advance(86_400.0)
        call(busy, f"{day}")
    call(sleeper, "again")
    assert (sleeper.ledger("s").spent_usd, sleeper.ledger("s").charged) == (2.25, 9)


@contextmanager
def losing_a_reply(store):
    """Let the next exchange be applied, and its reply be lost."""
    engine = store._worker.client._engine
    exchange = engine.exchange

    def lost(*request):
        exchange(*request)
        raise StoreUnavailable("the reply was lost", store="store")

    engine.exchange = lost
    yield
    engine.exchange = exchange


@NEEDS_REDIS
def test_a_redis_that_starts_from_a_snapshot_refills_no_budget():
    with serving() as server:
        budget = Budget(10.0, 1_000, limit="hard")
        first, second = (open_store(f"{server.url}?refresh_s=0.1") for _ in range(2))
        for store in (first, second):
            store.open("s", budget)
        call(first, "before")
        first.reserve(record(first, "s", "in flight", 1.0, 0.5))
        server.ask("SAVE")
        for n in range(6):
            call(second, f"since {n}", 1.0, 0.75)
        first.settle("in flight", 0.25)
        second.refresh()
        server.kill()
        server.start()
        for store in (first, second):
            wait_until(lambda store=store: _spent_usd(store) == 5.0, "what was spent is not restored", 20.0)
        wait_until(lambda: _admits(first), "the limit stays closed", 20.0)
        for store in (first, second):
            store.refresh()
            ledger = store.ledger("s")
            assert (ledger.spent_usd, ledger.charged, ledger.in_flight, ledger.leased_usd) == (5.25, 9, 0, 0.0)
            store.close()


@NEEDS_REDIS
def test_what_others_spend_before_the_first_worker_notices_is_counted_too():
    with serving() as server:
        budget = Budget(10.0, 1_000, limit="hard")
        old = open_store(f"{server.url}?refresh_s=1000")
        old.open("s", budget)
        call(old, "before")
        server.ask("SAVE")
        call(old, "since", 1.0, 0.75)
        server.kill()
        server.start()
        new = open_store(f"{server.url}?refresh_s=1000")
        new.open("s", budget)
        call(new, "meanwhile", 1.0, 0.25)
        new.reserve(record(new, "s", "unknown outcome", 0.25, 0.125))
        new.presume("unknown outcome")
        new.reserve(record(new, "s", "in flight", 1.0, 0.5))
        assert new.ledger("s").spent_usd == 0.75
        wait_until(lambda: _spent_usd(old) == 1.5, "what was spent is not restored", 20.0)
        new.settle("in flight", 0.25)
        for store in (old, new):
            store.refresh()
            ledger = store.ledger("s")
            assert (ledger.spent_usd, ledger.charged, ledger.presumed, ledger.in_flight) == (1.75, 4, 1, 0)
            assert ledger.leased_usd == 0.0
            store.close()


@NEEDS_REDIS
def test_what_an_earlier_loss_left_to_presume_stays_spent():
    with serving() as server:
        budget = Budget(10.0, 1_000, limit="hard")
        first, second = (open_store(f"{server.url}?refresh_s=0.1", reservation_ttl_s=1.0) for _ in range(2))
        killed = open_store(f"{server.url}?refresh_s=1000", reservation_ttl_s=1.0)
        for store in (first, second, killed):
            store.open("s", budget)
        call(first, "before")
        killed.reserve(record(killed, "s", "of unknown outcome", 1.0, 0.5))
        for store in (first, second):
            store.refresh()
        server.empty()
        for store in (first, second):
            wait_until(lambda store=store: _spent_usd(store) == 1.25, "the lost call is not presumed", 20.0)
        wait_until(lambda: _admits(first), "the limit stays closed", 20.0)
        second.refresh()
        server.ask("SAVE")
        call(first, "since")
        server.kill()
        server.start()
        wait_until(lambda: _admits(first), "the limit stays closed", 20.0)
        for store in (first, second):
            store.refresh()
            ledger = store.ledger("s")
            assert (ledger.spent_usd, ledger.charged, ledger.leased_usd) == (2.0, 4, 0.0)
            store.close()


def _spent_usd(store):
    try:
        store.refresh()
    except StoreUnavailable:
        return None
    return store.ledger("s").spent_usd


def _admits(store):
    try:
        call(store, f"later {store.now()}")
    except StoreUnavailable:
        return False
    return True


def test_the_clock_of_a_program_may_be_that_of_numpy(tmp_path):
    engine = SQLiteEngine(tmp_path / "budget.db", clock=lambda: np.float64(1.8e9))
    with closing(SharedStore(engine, name="numpy")) as store:
        store.open("default", Budget(1.0, 10))
        store.refresh()
        store.refresh()
        assert store.ledger("default").spent_usd == 0.0
