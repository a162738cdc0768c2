"""Processes that end do not take the write-ahead log of an SQLite file from those that go on."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from support.store_worker import record
from wiserouter import Budget, open_store

HARD = Budget(10.0, 100, limit="hard")
OPENS_AND_ENDS = "import sys, wiserouter; store = wiserouter.open_store(sys.argv[1]); store.refresh(); store.close()"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


@pytest.fixture
def opened(path):
    """Open stores on the file, which are closed at the end."""
    stores = []

    def opener():
        stores.append(open_store(f"sqlite:///{path}", reservation_ttl_s=60.0))
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


def another_process_opens_and_ends(path):
    subprocess.run([sys.executable, "-c", OPENS_AND_ENDS, f"sqlite:///{path}"], check=True, timeout=60)


def charge(store, name, cost_usd):
    store.reserve(record(store, "s", name, cost_usd, cost_usd))
    store.settle(name, cost_usd)


def spent_usd(path):
    """Return the amount spent as every other process reads it."""
    with closing(sqlite3.connect(path)) as other:
        (usd,) = other.execute("SELECT spent_usd FROM windows").fetchone()
    return usd


def test_two_stores_of_one_process_keep_the_log_as_one_does(path, opened):
    first, _ = opened(), opened()
    first.open("s", HARD)
    another_process_opens_and_ends(path)
    charge(first, "a", 4.0)
    assert spent_usd(path) == 4.0


def test_two_stores_keep_the_log_of_a_file_that_was_vacuumed(path, opened):
    first, second = opened(), opened()
    first.open("s", HARD)
    for n in range(200):
        charge(first, f"call {n}", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        first.refresh()
        other.execute("DELETE FROM decisions")
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    first.refresh()
    second.refresh()
    another_process_opens_and_ends(path)
    charge(second, "a", 4.0)
    assert spent_usd(path) == pytest.approx(6.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_keeps_the_log_when_its_parent_ends(path, opened):
    store, (closed, tell) = opened(), os.pipe()
    store.open("s", HARD)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            charge(store, "a", 1.0)
            os.read(closed, 1)
            charge(store, "b", 3.0)
            status = 0 if spent_usd(path) == 4.0 else 2
        finally:
            os._exit(status)
    another_process_opens_and_ends(path)
    store.close()
    os.write(tell, b"!")
    assert os.waitpid(child, 0)[1] == 0
    assert spent_usd(path) == 4.0
