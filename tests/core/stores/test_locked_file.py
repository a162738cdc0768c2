"""An SQLite file that another process keeps locked: what waits for it, how long, and that no event loop does."""

import asyncio
import sqlite3
import threading
import time
from contextlib import closing, contextmanager

import pytest

from support.store_worker import record
from wiserouter import Budget, Contexts, Model, WiseRouter, open_store
from wiserouter.errors import StoreUnavailable
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import exchange

BRIEF_S, TIMEOUT_S = 0.1, 0.6
EXPECTED, HARD = Budget(10.0, 100), Budget(10.0, 100, limit="hard")


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    monkeypatch.setattr(exchange, "BRIEF_S", BRIEF_S)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'budget.db'}?timeout_s={TIMEOUT_S}&refresh_s=1000"


@pytest.fixture
def locked(tmp_path):
    @contextmanager
    def held():
        with closing(sqlite3.connect(tmp_path / "budget.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")

    return held


def time_of(step, *arguments):
    started_s = time.perf_counter()
    try:
        step(*arguments)
    except StoreUnavailable as error:
        return time.perf_counter() - started_s, error
    return time.perf_counter() - started_s, None


@pytest.fixture
def waits_s(monkeypatch):
    """Return the longest time that each exchange of this thread may wait for the file; None for that of the URL."""
    caller, exchange, found = threading.get_ident(), SQLiteEngine.exchange, []

    def recorded(engine, *given):  # stores that other tests have left open may leave some out
        if threading.get_ident() == caller:
            found.append(given[2])
        return exchange(engine, *given)

    monkeypatch.setattr(SQLiteEngine, "exchange", recorded)
    return found


def test_the_first_call_of_expected_limits_waits_briefly_and_the_next_not_at_all(url, locked, waits_s):
    store = open_store(url)
    store.open("s", EXPECTED)
    store.reserve(record(store, "s", "before", 0.5, 0.5))
    waits_s.clear()
    with locked():
        first_s, error = time_of(store.reserve, record(store, "s", "first", 0.5, 0.5))
        assert (error, first_s >= BRIEF_S, waits_s) == (None, True, [BRIEF_S])
        store.reserve(record(store, "s", "next", 0.5, 0.5))
        assert waits_s == [BRIEF_S]
    store.refresh()
    assert store.ledger("s").in_flight == 3
    store.close()


def test_a_file_that_another_process_is_creating_is_waited_for(tmp_path):
    path = tmp_path / "budget.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        created = threading.Timer(BRIEF_S, other.execute, ("COMMIT",))
        created.start()
        open_store(f"sqlite:///{path}").close()
        created.join()


def test_one_that_has_waited_for_long_asks_as_often_as_one_that_has_just_begun(tmp_path, monkeypatch):
    store = open_store(f"sqlite:///{tmp_path / 'budget.db'}?timeout_s=20&refresh_s=1000")
    store.open("s", EXPECTED)
    caller, naps_s, sleep = threading.get_ident(), [], time.sleep
    with closing(sqlite3.connect(tmp_path / "budget.db", isolation_level=None)) as other:

        def nap(time_s):
            if threading.get_ident() != caller:  # the store's own thread
                return sleep(time_s)
            naps_s.append(time_s)
            return other.execute("ROLLBACK") if len(naps_s) == 50 else None

        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(exchange, "BRIEF_S", 20.0)
        monkeypatch.setattr(time, "sleep", nap)
        store.reserve(record(store, "s", "call", 0.5, 0.5))
    monkeypatch.undo()
    assert len(naps_s) == 50
    assert max(naps_s) <= 0.02
    assert store.health().failures == 0
    store.close()


def test_a_hard_limit_waits_for_its_whole_time_and_so_do_expected_ones_beside_it(url, locked):
    store = open_store(url)
    store.open("s", EXPECTED)
    store.open("t", HARD)
    for scope in ("t", "s"):
        with locked():
            waited_s, error = time_of(store.reserve, record(store, scope, f"call of {scope}", 0.5, 0.5))
        assert waited_s >= TIMEOUT_S
        assert (error is None) == (scope == "s")
        assert error is None or "another process writes" in str(error)
        store.refresh()
    store.close()


async def test_the_event_loop_goes_on(url, locked, monkeypatch):
    router = WiseRouter([Model("a", max_cost_usd=0.1)], Contexts.single(), store=url)
    router.start(EXPECTED)
    beats = []

    async def beat():
        while True:
            beats.append(time.perf_counter())
            await asyncio.sleep(0.005)

    def waits_for_beats(*arguments):  # in vain, where the loop waits for it
        entered.append(arguments)
        until, ends_s = len(beats) + 5, time.monotonic() + 30.0
        while len(beats) < until and time.monotonic() < ends_s:
            time.sleep(0.001)
        waited.append(len(beats) >= until)
        return exchange_of_engine(*arguments)

    entered, waited, exchange_of_engine = [], [], SQLiteEngine.exchange
    beating = asyncio.create_task(beat())
    monkeypatch.setattr(SQLiteEngine, "exchange", waits_for_beats)
    with locked():
        decision = await router.adecide("hello")
        await router.acharge(decision, 0.01)
    monkeypatch.undo()
    while len(waited) < len(entered):  # the store's own thread may be at it
        await asyncio.sleep(0.005)
    beating.cancel()
    assert waited
    assert all(waited)
    assert router.status().charged == 1
    router.close()
