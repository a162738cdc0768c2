"""An SQLite file that is locked, deleted, moved, truncated or full: the budget holds, and every call is counted."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.traffic import router_on, settled
from wiserouter import Budget, open_store
from wiserouter.errors import StoreDamaged, StoreUnavailable
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore

BILLED_WORKER = Path(__file__).parents[1] / "support" / "billed_worker.py"
HARD = Budget(60.0, 1_000, limit="hard")
EXPECTED = Budget(600.0, 1_000)


@contextmanager
def locked(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def deleted(path):
    path.unlink()
    yield


@contextmanager
def deleted_with_its_log(path):
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()
    yield


@contextmanager
def without_its_log(path):
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()
    yield


@contextmanager
def moved(path):
    path.rename(path.with_name("elsewhere.db"))
    yield


@contextmanager
def truncated(path):
    os.truncate(path, 0)
    yield


@contextmanager
def cut_in_half(path):
    os.truncate(path, path.stat().st_size // 2)
    yield


@contextmanager
def folder_read_only(path):
    path.unlink()
    path.parent.chmod(0o500)
    yield
    path.parent.chmod(0o700)


FAULTS = [locked, deleted, deleted_with_its_log, without_its_log, moved, truncated, cut_in_half]
WITHOUT_REFRESH = "timeout_s=0.3&refresh_s=1000"
"""The settings of a store that meets a fault in what the test asks of it, not in its own thread before."""
DURATIONS_S = [1.5, pytest.param(10.0, marks=pytest.mark.slow)]


def slow(*values):
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    return folder / "budget.db"


@pytest.fixture
def routers(path):
    """Open routers on the file, which are closed at the end."""
    opened = []

    def opener(budget, n=2, settings="timeout_s=0.3"):
        opened.extend(router_on(f"sqlite:///{path}?{settings}", budget, seed=seed) for seed in range(n))
        return opened[-n:]

    yield opener
    for router in opened:
        router.close()


@pytest.mark.parametrize("fault_s", DURATIONS_S)
@pytest.mark.parametrize("fault", [locked, *slow(*FAULTS[1:])])
def test_a_hard_budget_is_not_exceeded(path, routers, ledger, send, fault, fault_s):
    both = routers(HARD)
    traffic = send(*both)
    time.sleep(1.0)
    with fault(path):
        time.sleep(fault_s)
    for router in both:
        settled(router)
    traffic.drain()
    for router in both:
        settled(router)
    assert traffic.sent > 20
    assert 0.5 * HARD.amount_usd < ledger.total_usd <= HARD.amount_usd
    for router in both:
        status = router.status()
        counted_usd = status.spent_usd + status.reserved_usd + status.leased_usd
        assert ledger.total_usd - 1e-9 <= counted_usd <= HARD.amount_usd + 1e-9
    after = open_store(f"sqlite:///{path}")  # what the next start finds
    ledger_after = after.ledger("default")
    assert ledger_after.spent_usd + ledger_after.reserved_usd + ledger_after.leased_usd >= ledger.total_usd - 1e-9
    after.close()


@pytest.mark.parametrize("fault_s", DURATIONS_S)
@pytest.mark.parametrize("fault", [deleted, *slow(FAULTS[0], *FAULTS[2:])])
def test_every_call_under_an_expected_limit_is_counted(path, routers, ledger, send, fault, fault_s):
    both = routers(EXPECTED)
    traffic = send(*both)
    time.sleep(0.7)
    with fault(path):
        time.sleep(fault_s)
    time.sleep(0.7)
    traffic.stop()
    for router in both:
        settled(router)
    for router in both:
        settled(router)
        status = router.status()
        assert (status.charged, status.in_flight) == (traffic.sent, 0)
        assert status.spent_usd == pytest.approx(ledger.total_usd, rel=0, abs=1e-9)
    assert traffic.closed == 0


def test_thirty_calls_on_a_locked_file_are_all_told_later(path, routers, ledger, send):
    (router,) = routers(EXPECTED, n=1)
    with locked(path):
        for _ in range(30):
            decision = router.decide(context=0)
            ledger.bill(0.5)
            router.charge(decision, 0.5)
            router.alias(f"alias of {decision.id}", decision)
        router.spend(0.25)
        assert router.status().charged == 30
        assert not router._store.health().reachable
    settled(router)
    fresh = open_store(f"sqlite:///{path}")
    account = fresh.ledger("default")
    assert (account.charged, account.spent_usd) == (30, ledger.total_usd + 0.25)
    assert fresh.find(f"alias of {decision.id}").decision.id == decision.id
    fresh.close()


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (deleted, "was deleted while in use, and is written again from the open file"),
        (without_its_log, r"has lost its log \(-wal\) while in use, and is written again from the open file"),
        (truncated, "was truncated while in use: it is now budget.db.damaged-"),
    ],
)
def test_what_happened_to_the_file_is_said_in_one_line(path, routers, caplog, fault, line):
    caplog.set_level(logging.WARNING, "wiserouter")
    (router,) = routers(HARD, n=1, settings=WITHOUT_REFRESH)
    router.charge(router.decide(context=0), 0.5)
    with fault(path), pytest.raises(StoreUnavailable, match=line):
        router._store.refresh()
    settled(router)
    said = [one.message for one in caplog.records if re.search(line, one.message)]
    assert len(said) == 1
    assert "\n" not in said[0]
    assert router.status().spent_usd == 0.5
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_without_its_log_stays_in_place_until_it_is_written_again(path, routers, monkeypatch):
    (router,) = routers(HARD, n=1)
    router.charge(router.decide(context=0), 0.5)
    unlinked, unlink = [], Path.unlink

    def unlink_and_note(self, **options):
        unlinked.append(self)
        unlink(self, **options)

    monkeypatch.setattr(Path, "unlink", unlink_and_note)
    with without_its_log(path):
        settled(router)
    assert path.with_name("budget.db-wal") in unlinked
    assert path not in unlinked  # a process that is killed then would leave no file
    assert router.status().spent_usd == 0.5


def test_a_process_that_ends_finds_no_log_to_delete_but_its_own(path, routers):
    one, other = routers(HARD)
    for router in (one, other):
        router.charge(router.decide(context=0), 0.5)
    with without_its_log(path):
        settled(one)
    one.charge(one.decide(context=0), 0.5)
    other.close()
    one.charge(one.decide(context=0), 0.5)
    fresh = open_store(f"sqlite:///{path}")
    assert fresh.ledger("default").spent_usd == 2.0
    fresh.close()


def test_a_log_that_was_cut_is_named_with_its_remedy(path, routers):
    one, other = routers(HARD)
    for router in (one, other) * 5:
        router.charge(router.decide(context=0), 0.5)
    os.truncate(path.with_name("budget.db-wal"), 0)
    remedy = "its log was cut: stop all workers, delete budget.db-wal and budget.db-shm"
    with pytest.raises(StoreUnavailable, match=remedy):
        one._store.refresh()


def test_a_file_that_takes_its_place_is_refused(path, routers, tmp_path):
    (router,) = routers(HARD, n=1, settings=WITHOUT_REFRESH)
    copy = shutil.copy(path, tmp_path / "copy.db")
    router.charge(router.decide(context=0), 0.5)
    path.unlink()
    shutil.copy(copy, path)  # an old copy would forget what was spent since
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="another file has taken its place while it was in use"):
            router._store.refresh()


def test_a_file_that_was_vacuumed_is_the_same(path, routers):
    (router,) = routers(HARD, n=1)
    for _ in range(200):
        router.charge(router.decide(context=0), 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        router._store.refresh()
        other.execute("DELETE FROM tokens")
        other.execute("DELETE FROM decisions")
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    settled(router)
    assert router.status().spent_usd == pytest.approx(2.0)
    assert [one.name for one in path.parent.iterdir() if "damaged" in one.name] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_deleted_file_in_a_folder_that_cannot_be_written_is_restored_later(path, routers, ledger, send):
    (router,) = routers(EXPECTED, n=1)
    with folder_read_only(path):
        for _ in range(5):
            ledger.bill(0.5)
            router.charge(router.decide(context=0), 0.5)
        assert not path.exists()
    settled(router)
    fresh = open_store(f"sqlite:///{path}")
    assert fresh.ledger("default").spent_usd == ledger.total_usd
    fresh.close()


@pytest.mark.parametrize("limit", ["hard", "expected"])
def test_a_disk_that_fills_up_in_a_worker_loses_no_call(path, ledger, limit):
    """The worker's files may not grow beyond 200 kB until it lifts that limit."""
    command = [sys.executable, str(BILLED_WORKER), f"sqlite:///{path}?timeout_s=0.3", limit, "60", str(ledger.path)]
    done = subprocess.run(
        [*command, "--file-limit", "200000"], input="go\n", capture_output=True, text=True, timeout=60, check=True
    )
    assert "full" in done.stdout
    fresh = open_store(f"sqlite:///{path}")
    account = fresh.ledger("default")
    assert account.spent_usd == pytest.approx(ledger.total_usd)
    assert account.charged == len(ledger.costs_usd)
    if limit == "hard":
        assert ledger.total_usd <= 60.0
    fresh.close()


class JumpingClock:
    """A clock that can be set forward and back."""

    def __init__(self):
        self.jump_s = 0.0

    def __call__(self):
        return time.time() + self.jump_s


@pytest.mark.parametrize("jumps_s", [(9 * 86_400.0, -86_400.0), *slow((3_600.0, -3_600.0), (-7_200.0, 7_200.0))])
@pytest.mark.parametrize("limit", ["hard", "expected"])
def test_a_clock_that_jumps_forgets_no_call(path, ledger, send, limit, jumps_s):
    clock = JumpingClock()
    budget = Budget(60.0, 1_000, limit=limit)
    stores = [SharedStore(SQLiteEngine(path, clock), name="sqlite") for _ in range(2)]
    routers = [router_on(store, budget, seed=seed) for seed, store in enumerate(stores)]
    traffic = send(*routers)
    for jump_s in jumps_s:
        time.sleep(0.5)
        clock.jump_s = jump_s
    time.sleep(0.5)
    if limit == "hard":
        traffic.drain()
        assert ledger.total_usd <= budget.amount_usd
    else:
        traffic.stop()
    for router in routers:
        settled(router)
    status = routers[0].status()
    assert status.spent_usd == pytest.approx(ledger.total_usd)
    assert status.in_flight == 0
    for router in routers:
        router.close()
