"""The spool: what a worker could not send outlives it, and counts once."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.redis_servers import MISSING, redis_server, serving, wait_until
from support.store_worker import record
from wiserouter import Budget, open_store
from wiserouter.stores.engines.events import Alias, Renew, Reserve, Settle, Spend, WindowOpening
from wiserouter.stores.shared.spool import Spool

EVENTS = [
    Reserve("a", ("w", "v"), 1.0, 0.5, False, "record", None),
    Settle("a", "charged", "token", 0.25, 1),
    Spend("token", ("w",), -0.5),
    Alias("other", "a"),
    Renew("s", 0, "w", WindowOpening("v", 1.0, True, False), 2),
]
EXPECTED = Budget(100.0, 1_000)

WORKER = """
import sys, time
from support.store_worker import record
from wiserouter import Budget, open_store
store = open_store(sys.argv[1])
store.open("s", Budget(100.0, 1_000))
print("open", flush=True)
sys.stdin.readline()
for n in range(5):
    store.reserve(record(store, "s", f"call {n}", 0.5, 0.5))
    store.settle(f"call {n}", 0.25)
store.reserve(record(store, "s", "in flight", 0.5, 0.5))
print("done", flush=True)
time.sleep(60.0)
"""


@contextmanager
def locked(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def worker(url):
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


def work_and_die(process, folder):
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"
    wait_until(lambda: unsent(folder), "nothing is spooled", 10.0)
    time.sleep(0.1)
    process.kill()
    process.wait(10.0)


def unsent(folder):
    return [one for one in folder.iterdir() if ".unsent-" in one.name]


def check_taken_over(url):
    store = open_store(url)
    store.ledger("s")
    wait_until(lambda: not store.health().waiting, "events are left", 10.0)
    store.refresh()
    ledger = store.ledger("s")
    assert (ledger.charged, ledger.spent_usd, ledger.in_flight) == (5, 1.25, 1)
    store.close()


def test_events_are_read_as_they_were_written(tmp_path):
    spool, other = Spool(tmp_path / "budget.db"), Spool(tmp_path / "budget.db")
    spool.keep(EVENTS)
    assert other.left_behind() == ([], [])  # its worker runs
    assert unsent(tmp_path)[0].stat().st_mode & 0o777 == 0o600
    spool.close()
    with unsent(tmp_path)[0].open("a") as file:
        file.write('{"kind": "Reserve", "id": "cut sh')
    assert other.left_behind() == (EVENTS, unsent(tmp_path))
    spool.keep(EVENTS[:1])
    spool.clear()
    assert unsent(tmp_path) == []


def test_a_disk_that_is_full_for_a_while_breaks_no_line_and_is_logged_once(tmp_path, monkeypatch, caplog):
    spool, other = Spool(tmp_path / "budget.db"), Spool(tmp_path / "budget.db")
    write, room = os.write, [10_000]

    def limited(file, data):
        written = write(file, data[: room[0]]) if room[0] else 0
        if not written:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", limited)
    spool.keep(EVENTS[:1])
    room[0] = 20
    spool.keep(EVENTS[1:2])
    spool.keep(EVENTS[2:3])
    room[0] = 10_000
    spool.keep(EVENTS[3:])
    spool.close()
    assert other.left_behind()[0] == [EVENTS[0], *EVENTS[3:]]
    assert [one.message.partition(":")[2] for one in caplog.records] == [" [Errno 28] No space left on device"]


def test_a_line_that_is_no_text_is_left_out_and_a_name_is_no_pattern(tmp_path):
    spool, other = Spool(tmp_path / "budget[1].db"), Spool(tmp_path / "budget[1].db")
    spool.keep(EVENTS)
    spool.close()
    with next(tmp_path.iterdir()).open("ab") as file:
        file.write(b"\xff\xfe\n")
    assert other.left_behind()[0] == EVENTS


def test_the_calls_of_a_worker_that_is_killed_while_its_file_is_locked_are_counted(tmp_path):
    url = f"sqlite:///{tmp_path / 'budget.db'}?timeout_s=0.2"
    with worker(url) as process:
        with locked(tmp_path / "budget.db"):
            work_and_die(process, tmp_path)
            assert len(unsent(tmp_path)) == 1
        check_taken_over(url)
        check_taken_over(url)
    assert unsent(tmp_path) == []


@pytest.mark.skipif(redis_server() is None, reason=MISSING)
def test_the_calls_of_a_worker_that_is_killed_while_redis_is_stopped_are_counted(tmp_path):
    with serving("--appendonly", "yes", "--appendfsync", "always") as server:
        url = f"{server.url}?timeout_s=0.3&spool={tmp_path / 'spool'}"
        with worker(url) as process:
            server.kill()
            work_and_die(process, tmp_path)
        server.start()
        check_taken_over(url)
    assert unsent(tmp_path) == []


def test_a_worker_that_closes_while_the_store_is_away_leaves_its_events(tmp_path):
    url = f"sqlite:///{tmp_path / 'budget.db'}?timeout_s=0.2"
    store = open_store(url)
    store.open("s", EXPECTED)
    with locked(tmp_path / "budget.db"):
        store.reserve(record(store, "s", "a", 0.5, 0.5))
        store.settle("a", 0.25)
        store.close()
        assert len(unsent(tmp_path)) == 1
    after = open_store(url)
    assert after.ledger("s").spent_usd == 0.25
    after.close()
    assert unsent(tmp_path) == []


def test_a_worker_that_has_nothing_to_send_closes_without_a_warning(tmp_path, caplog):
    store = open_store(f"sqlite:///{tmp_path / 'budget.db'}?timeout_s=0.2")
    store.open("s", EXPECTED)
    with locked(tmp_path / "budget.db"):
        store.close()
    assert not [one for one in caplog.messages if "could not be sent" in one]


def test_nothing_is_spooled_while_the_store_answers(tmp_path):
    store = open_store(f"sqlite:///{tmp_path / 'budget.db'}")
    store.open("s", EXPECTED)
    store.reserve(record(store, "s", "a", 0.5, 0.5))
    store.settle("a", 0.25)
    assert unsent(tmp_path) == []
    store.close()
