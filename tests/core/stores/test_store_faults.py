"""Faults of shared stores: killed workers and servers, cut and slow connections, wrong clocks, full disks."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from support.redis_servers import MISSING, line_to, redis_server, serving, wait_until
from support.store_worker import record
from wiserouter import Budget, Model, Price, Usage, WiseRouter, open_store
from wiserouter.errors import BudgetExhausted, StoreDamaged, StoreUnavailable
from wiserouter.stores.engines.redis import RedisEngine
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore

WORKER = Path(__file__).parents[2] / "support" / "store_worker.py"
NEEDS_REDIS = pytest.mark.skipif(redis_server() is None, reason=MISSING)
PLACES = ["sqlite", pytest.param("redis", marks=NEEDS_REDIS)]
HARD = Budget(10.0, 1_000, limit="hard")


@pytest.fixture
def sqlite(tmp_path):
    return f"sqlite:///{tmp_path / 'budget.db'}"


@pytest.fixture
def server(server):
    server.empty()
    return server


@pytest.fixture
def redis(server):
    return server.url


@pytest.fixture
def opened():
    """Open stores that are closed at the end."""
    stores = []

    def opener(url, **settings):
        stores.append(open_store(url, **settings) if isinstance(url, str) else url)
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


def worker(url, job, *rest):
    return subprocess.Popen([sys.executable, str(WORKER), url, "s", job, *rest], stdout=subprocess.PIPE, text=True)


def hold(store, name, held_usd=1.0):
    store.reserve(record(store, "s", name, held_usd, 0.5 * held_usd))


@pytest.mark.parametrize("place", PLACES)
def test_the_call_of_a_killed_worker_is_presumed(place, request, opened):
    store = opened(request.getfixturevalue(place), reservation_ttl_s=1.0)
    store.open("s", HARD)
    with worker(request.getfixturevalue(place), "hang") as killed:
        assert killed.stdout.readline() == "held\n"
        killed.kill()
        killed.wait(10.0)
    store.refresh()
    assert store.ledger("s").left_usd == 9.0
    # the worker's own time to live is that of its store: 900 s; a store with a shorter one waits no longer than that
    hold(store, "mine")
    store.refresh()
    assert store.ledger("s").left_usd == 8.0
    wait_until(lambda: store.refresh() or store.ledger("s").presumed == 1, "the call is not presumed", 10.0)
    ledger = store.ledger("s")
    assert (ledger.left_usd, ledger.spent_usd, ledger.reserved_usd, ledger.presumed_usd) == (8.0, 1.0, 1.0, 1.0)
    store.release("mine")
    store.refresh()
    assert store.ledger("s").left_usd == 9.0


def test_a_kill_at_any_point_loses_no_settled_charge(sqlite, opened):
    store = opened(sqlite)
    store.open("s", Budget(1_000.0, 10_000, limit="hard"))
    reported = 0
    for seed in range(4):
        with worker(sqlite, "spend", str(seed)) as killed:
            for _ in range(20 + 7 * seed):
                killed.stdout.readline()
            killed.kill()
            rest = killed.stdout.read().splitlines()
            killed.wait(10.0)
        reported += 20 + 7 * seed + len(rest)
        store.refresh()
        charged = store.ledger("s").charged
        assert reported <= charged <= reported + seed + 1  # one more may be settled but not reported
        assert store.ledger("s").spent_usd == pytest.approx(0.25 * charged)
        assert store.ledger("s").left_usd == pytest.approx(1_000.0 - 0.25 * charged - store.ledger("s").reserved_usd)
        assert store.ledger("s").in_flight <= seed + 1


@NEEDS_REDIS
def test_a_redis_that_keeps_its_log_comes_back_as_it_was(opened):
    with serving("--appendonly", "yes", "--appendfsync", "always") as server:
        store, other = opened(server.url), opened(server.url)
        store.open("s", HARD)
        hold(store, "a")
        store.settle("a", 0.5)
        hold(store, "b")
        server.kill()
        with pytest.raises(StoreUnavailable):
            hold(store, "c")
        server.start()
        wait_until(lambda: _answers(store), "the store does not come back", 20.0)
        hold(store, "d")
        other.settle("b", 0.25)
        store.refresh()
        ledger = store.ledger("s")
        assert (ledger.spent_usd, ledger.reserved_usd, ledger.charged, ledger.in_flight) == (0.75, 1.0, 2, 1)


@NEEDS_REDIS
def test_a_redis_without_memory_does_not_refill_the_budget(opened, caplog):
    with serving() as server:
        store = opened(server.url)
        store.open("s", HARD)
        hold(store, "a")
        store.settle("a", 4.0)
        hold(store, "b", held_usd=2.0)
        server.kill()
        server.start()
        wait_until(lambda: _answers(store), "the store does not come back", 20.0)
        assert "has lost the budget of scope 's'" in caplog.text
        with pytest.raises(StoreUnavailable, match="hard limits stay closed for 5 s while the workers restore it"):
            hold(store, "too early")
        wait_until(partial(_holds, store, "later"), "the limit stays closed", 20.0)
        store.release("later")
        ledger = store.ledger("s")
        assert (ledger.spent_usd, ledger.left_usd) == (4.0, 4.0)  # the calls in flight stay reserved
        with pytest.raises(BudgetExhausted):
            hold(store, "c", held_usd=4.5)
        store.settle("b", 1.0)
        store.refresh()
        ledger = store.ledger("s")
        assert (ledger.spent_usd, ledger.left_usd, ledger.charged) == (5.0, 5.0, 2)


@NEEDS_REDIS
def test_a_closed_store_refuses_while_the_line_is_cut_and_loses_no_charge(server, opened, caplog):
    caplog.set_level(logging.WARNING, "wiserouter")
    with line_to(server.port) as line:
        url = f"redis://127.0.0.1:{line.port}/0?timeout_s=0.3&refresh_s=1000"  # a caller is the first to meet the cut
        store, near = opened(url), opened(server.url)
        store.open("s", HARD)
        for name in "ab":
            hold(store, name)
        line.cut()
        for name, why in (("c", "cannot be used"), ("d", "its limit is hard")):
            with pytest.raises(StoreUnavailable, match=why):
                hold(store, name)
        store.settle("a", 0.25)  # sent later
        assert store.health().waiting >= 1
        assert not store.health().reachable
        line.mend()
        wait_until(lambda: _answers(store), "the store does not come back", 20.0)
        near.refresh()
        ledger = near.ledger("s")
        assert (ledger.spent_usd, ledger.charged) == (0.25, 1)
        assert ledger.in_flight == 1
    said = [one.message for one in caplog.records if one.levelno >= logging.WARNING]
    assert sum("nothing is decided under a hard limit, and" in one for one in said) == 1
    assert sum("events were waiting" in one for one in said) == 1


@NEEDS_REDIS
@pytest.mark.parametrize(("amount_usd", "error"), [(10.0, StoreUnavailable), (1.25, BudgetExhausted)])
def test_a_rest_of_a_lease_that_covers_no_call_is_no_end_of_the_budget(server, amount_usd, error):
    with line_to(server.port) as line:
        url = f"redis://127.0.0.1:{line.port}/0?lease_share=0.3&timeout_s=0.3&refresh_s=0.2"
        router = WiseRouter([Model("small", Price(0.0, 1e-3), max_cost_usd=1.0)], store=url, watch=None)
        router.start(Budget(amount_usd, 1_000, limit="hard"))
        router.charge(router.decide(context=0), 0.5)
        router._store.refresh()
        line.cut()
        wait_until(lambda: not router.health().reachable, "the outage is not noticed", 10.0)
        decided = 0
        with pytest.raises(error):
            for _ in range(10):
                router.decide(context=0)
                decided += 1
        assert decided == (2 if amount_usd == 10.0 else 0)
        line.mend()
        router.close()


@NEEDS_REDIS
def test_a_local_store_decides_on_its_lease_for_five_seconds(server, opened):
    with line_to(server.port) as line:
        url = f"redis://127.0.0.1:{line.port}/0?on_store_error=local&local_share=0.2&timeout_s=0.3&refresh_s=0.2"
        store, near = opened(url), opened(server.url)
        store.open("s", Budget(10.0, 1_000, limit="hard"))
        hold(store, "before")
        store.refresh()
        near.refresh()
        assert near.ledger("s").leased_usd == pytest.approx(1.8, rel=0.15)
        leased_usd = near.ledger("s").leased_usd
        line.pause()
        ends_s, granted = time.monotonic() + 5.0, 0
        while time.monotonic() < ends_s:
            try:
                hold(store, f"call {granted}", held_usd=0.25)
                granted += 1
                store.settle(f"call {granted - 1}", 0.25)
            except (StoreUnavailable, BudgetExhausted):
                time.sleep(0.1)
        assert 0 < 0.25 * granted <= leased_usd + 1e-9
        spent_meanwhile = 0
        while True:  # the other worker may spend all but the lease
            try:
                hold(near, f"theirs {spent_meanwhile}", held_usd=0.25)
            except BudgetExhausted:
                break
            near.settle(f"theirs {spent_meanwhile}", 0.25)
            spent_meanwhile += 1
        line.resume()
        store.settle("before", 0.5)
        wait_until(lambda: _answers(store) and not store.health().waiting, "the store does not come back", 20.0)
        near.refresh()
        ledger = near.ledger("s")
        assert ledger.spent_usd == pytest.approx(0.25 * (granted + spent_meanwhile) + 0.5)
        assert ledger.spent_usd <= 10.0
        assert (ledger.charged, ledger.in_flight) == (granted + spent_meanwhile + 1, 0)


@NEEDS_REDIS
def test_callers_that_wait_for_a_slow_store_share_one_exchange(server, opened):
    with line_to(server.port) as line:
        store = opened(f"redis://127.0.0.1:{line.port}/0")
        store.open("s", Budget(100.0, 1_000, limit="hard"))
        line.delay_s = 0.2
        before = store.health().exchanges
        with ThreadPoolExecutor(40) as crowd:
            list(crowd.map(partial(hold, store), [f"call {n}" for n in range(40)]))
        assert store.ledger("s").in_flight == 40
        assert store.health().exchanges - before < 20  # they share exchanges: one by one would be 40


@NEEDS_REDIS
def test_an_expected_limit_does_not_wait_for_a_slow_store(server, opened):
    with line_to(server.port) as line:
        store = opened(f"redis://127.0.0.1:{line.port}/0")
        store.open("s", Budget(1_000.0, 10_000))
        line.delay_s = 0.2
        started_s = time.monotonic()
        for n in range(200):
            hold(store, f"call {n}")
            store.settle(f"call {n}", 0.5)
        elapsed_s = time.monotonic() - started_s
        assert elapsed_s < 200 * line.delay_s  # 400 exchanges would take twice that
        store.refresh()
        assert store.ledger("s").charged == 200


@NEEDS_REDIS
def test_clocks_an_hour_apart_do_no_harm(server, opened):
    def ahead():
        return time.monotonic() + 3_600.0

    store = opened(server.url, reservation_ttl_s=60.0)
    other = opened(SharedStore(RedisEngine(server.url, reservation_ttl_s=60.0), clock=ahead, reservation_ttl_s=60.0))
    for one in (store, other):
        one.open("s", Budget(10.0, every="1h", limit="hard"))
    hold(store, "a")
    hold(other, "b")
    for one in (store, other):
        one.refresh()
    assert abs(store.now() - other.now()) < 5.0
    mine, theirs = store.ledger("s"), other.ledger("s")
    assert (mine.window, mine.in_flight, mine.presumed) == (theirs.window, 2, 0)
    assert (theirs.in_flight, theirs.presumed) == (2, 0)


@pytest.mark.parametrize("place", PLACES)
def test_workers_learn_each_score_and_cost_once(place, request):
    url = request.getfixturevalue(place)
    models = [Model("small", Price(1e-6, 1e-6), max_output_tokens=10)]
    routers = [WiseRouter(models, store=url, watch=None) for _ in range(2)]
    for router in routers:
        router.start(HARD)
    decision = routers[0].decide(context=0, input_tokens=10)
    routers[0]._store.refresh()
    routers[1].reward(decision.id, 0.25)  # before the charge, on another worker
    routers[0].charge(decision, usage=Usage(10, 5))
    for _ in range(2):
        with pytest.raises(Exception, match="was charged before"):
            routers[1].charge(decision.id, 1.0)
    routers[0].reward(decision, 0.75)
    for _ in range(2):
        for router in routers:
            router._store.refresh()
    for router in routers:
        router.decide(context=0, input_tokens=10)  # reads the observations of the other workers
        assert (router.estimates.labels[0, 0], router.estimates.reward[0, 0]) == (1.0, 0.75)
        assert router.estimates.calls[0, 0] == 1.0
        assert router.estimates.cost[0, 0] == pytest.approx(15e-6)
        assert router.status().spent_usd == pytest.approx(15e-6)
    for router in routers:
        router.close()


def test_a_full_disk_loses_nothing(tmp_path, opened):
    engine = SQLiteEngine(tmp_path / "budget.db")
    store = opened(SharedStore(engine, name="sqlite"))
    store.open("s", Budget(1_000.0, 100_000, limit="hard"))
    engine._connection.execute("PRAGMA max_page_count = 40")  # SQLite fails as on a full disk
    settled = 0
    with pytest.raises(StoreUnavailable, match=r"full|its limit is hard"):
        while settled < 10_000:
            hold(store, f"call {settled}")
            store.settle(f"call {settled}", 0.25)
            settled += 1
    assert settled > 0
    engine._connection.execute("PRAGMA max_page_count = 4294967294")
    wait_until(lambda: _answers(store), "the store does not come back", 20.0)
    wait_until(lambda: not store.health().waiting, "events are left", 20.0)
    store.refresh()
    ledger = store.ledger("s")
    assert ledger.charged in (settled, settled + 1)
    assert ledger.spent_usd == pytest.approx(0.25 * ledger.charged)
    assert ledger.in_flight == 0
    assert engine._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("damage", ["text", "middle", "other program", "newer"])
def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path, opened, damage):
    path = tmp_path / "budget.db"
    if damage == "text":
        path.write_text("a diary, not a database\n" * 100)
    else:
        store = open_store(f"sqlite:///{path}")
        store.open("s", HARD)
        store.close()
    if damage == "middle":
        data = bytearray(path.read_bytes())
        data[100:4_000] = bytes(3_900)
        path.write_bytes(bytes(data))
    if damage == "other program":
        path.unlink()
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE diary (day TEXT)")
        other.close()
    if damage == "newer":
        with sqlite3.connect(path) as other:
            other.execute("PRAGMA user_version = 99")
        other.close()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(StoreDamaged, match="it was left unchanged") as refused:
        open_store(f"sqlite:///{path}")
    assert str(path) in refused.value.store
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _holds(store, name):
    try:
        hold(store, name)
    except StoreUnavailable:
        return False
    return True


def _answers(store):
    try:
        store.refresh()
    except StoreUnavailable:
        return False
    return store.health().reachable


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
def test_a_worker_that_starts_leaves_a_deleted_file_to_those_that_have_it_open(tmp_path, opened):
    path = tmp_path / "budget.db"
    store = opened(f"sqlite:///{path}?refresh_s=1000")
    store.open("s", Budget(8.0, 100, limit="hard"))
    store.spend("s", 1.0)
    path.unlink()
    with pytest.raises(StoreUnavailable, match=r"running workers write it again, without any delete the log") as early:
        opened(f"sqlite:///{path}")
    assert not early.value.lasts
    with pytest.raises(StoreUnavailable, match="is written again"):
        store.refresh()
    store.refresh()
    late = opened(f"sqlite:///{path}")
    late.open("s", Budget(8.0, 100, limit="hard"))
    assert (store.ledger("s").spent_usd, late.ledger("s").spent_usd) == (1.0, 1.0)


def test_the_files_of_a_store_are_readable_by_their_owner_only(tmp_path):
    former = os.umask(0o022)
    try:
        engine = SQLiteEngine(tmp_path / "budget.db")
        modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
        assert modes == dict.fromkeys(["budget.db", "budget.db-shm", "budget.db-wal"], 0o600)
        engine.close()
        (tmp_path / "budget.db").chmod(0o640)
        again = SQLiteEngine(tmp_path / "budget.db")
        assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o640}
        again.close()
    finally:
        os.umask(former)


def test_a_backup_of_a_file_in_use_is_restored(tmp_path, opened):
    path, copy = tmp_path / "budget.db", tmp_path / "copy.db"
    store = opened(f"sqlite:///{path}")
    store.open("s", Budget(8.0, 100, limit="hard"))
    store.reserve(record(store, "s", "a", 0.5, 0.5))
    store.settle("a", 0.25)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"VACUUM INTO '{copy}'")
    store.spend("s", 1.0)
    store.close()
    copy.replace(path)
    restored = opened(f"sqlite:///{path}")
    restored.open("s", Budget(8.0, 100, limit="hard"))
    restored.spend("s", 1.0)
    assert restored.ledger("s").spent_usd == 1.25
