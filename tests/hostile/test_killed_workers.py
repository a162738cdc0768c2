"""Workers killed with several calls in flight: the bills stay within a hard budget, and no call is forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.redis_servers import MISSING, redis_server, serving, wait_until
from support.traffic import WORST_USD, ProviderLedger
from wiserouter import open_store
from wiserouter.errors import StoreUnavailable

WORKER = Path(__file__).parents[1] / "support" / "billed_worker.py"
NEEDS_REDIS = pytest.mark.skipif(redis_server() is None, reason=MISSING)
SLOW_SQLITE = pytest.param("sqlite", marks=pytest.mark.slow)
SLOW_REDIS = pytest.param("redis", marks=[NEEDS_REDIS, pytest.mark.slow])
AMOUNT_USD, TTL_S, THREADS = 120.0, 2.0, 6


@pytest.fixture(scope="module")
def server():
    with serving("--appendonly", "yes") as one:
        yield one


@pytest.fixture
def sqlite(tmp_path):
    return f"sqlite:///{tmp_path / 'budget.db'}"


@pytest.fixture
def redis(server, tmp_path):
    return f"{server.url}?name={tmp_path.name}"


@pytest.fixture
def ledger(tmp_path):
    return ProviderLedger(tmp_path / "provider")


@contextmanager
def working(url, limit, amount_usd, ledger, *seeds, first=()):
    """Worker processes with calls in flight, which begin together and are killed at the end; `first`: more options."""
    options = ["--threads", THREADS, "--call-s", 0.3, "--reservation-ttl-s", TTL_S]
    command = [sys.executable, WORKER, url, limit, amount_usd, ledger.path, *options, "--seed"]
    with ExitStack() as stack:
        more = [first, *[()] * (len(seeds) - 1)]
        commands = [[*command, seed, *words] for seed, words in zip(seeds, more, strict=True)]
        workers = [stack.enter_context(started([str(word) for word in words])) for words in commands]
        for each in workers:
            assert each.stdout.readline() == "ready\n"
        for each in workers:
            each.stdin.write("go\n")
            each.stdin.flush()
        yield workers


@contextmanager
def started(command):
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        yield worker
        worker.kill()


def account_of(store):
    try:
        store.refresh()
    except StoreUnavailable:
        return None
    return store.ledger("default")


def all_settled(url):
    """Return the account once nothing is in flight any more."""
    store = open_store(url, reservation_ttl_s=TTL_S)
    store.ledger("default")
    accounts = []

    def is_settled():
        time.sleep(0.1)
        accounts.append(account_of(store))
        return accounts[-1] is not None and accounts[-1].in_flight == 0

    wait_until(is_settled, "calls are still in flight", 20.0)
    store.close()
    return accounts[-1]


def decided(url):
    store = open_store(url, reservation_ttl_s=TTL_S)
    account = account_of(store)
    store.close()
    return account.decided


def at_least(ledger, calls):
    return lambda: time.sleep(0.02) or len(ledger.costs_usd) >= calls


LEASED = pytest.param("lease_share=0.1&lease_ttl_s=1&refresh_s=0.2", marks=pytest.mark.slow)


@pytest.mark.parametrize("settings", ["", LEASED], ids=["", "leased"])
@pytest.mark.parametrize("place", [SLOW_SQLITE, SLOW_REDIS])
def test_one_of_two_is_killed_and_another_takes_over(place, settings, request, ledger):
    url = request.getfixturevalue(place)
    url += ("&" if "?" in url else "?") + settings if settings else ""
    with working(url, "hard", AMOUNT_USD, ledger, 1, 2) as (first, second):
        wait_until(at_least(ledger, 20), "no calls", 20.0)
        first.kill()
        assert second.wait(60.0) == 0  # until the budget refuses
    assert ledger.total_usd <= AMOUNT_USD
    time.sleep(TTL_S + 1.5)
    with working(url, "hard", AMOUNT_USD, ledger, 3) as (third,):
        assert third.wait(60.0) == 0
    account = all_settled(url)
    assert 0.5 * AMOUNT_USD < ledger.total_usd <= AMOUNT_USD
    assert account.presumed >= 1
    assert account.spent_usd - account.presumed_usd <= ledger.total_usd <= account.spent_usd + 1e-9
    assert account.spent_usd <= AMOUNT_USD * (1.0 + 1e-12)


@pytest.mark.parametrize("place", ["sqlite", SLOW_REDIS])
def test_every_reserved_call_of_a_killed_worker_is_counted_under_an_expected_limit(place, request, ledger):
    url = request.getfixturevalue(place)
    far = ["--calls", 6] if place == "redis" else []  # on Redis, the calls of the last flush_s were not sent yet
    with working(url, "expected", 10_000.0, ledger, 1, first=far) as (worker,):
        wait_until(at_least(ledger, 40), "no calls", 20.0)
        if far:
            assert worker.stdout.readline() == "hanging\n"
            wait_until(lambda: decided(url) == len(ledger.costs_usd), "a call was not sent", 20.0)
    account = all_settled(url)
    billed = len(ledger.costs_usd)
    assert billed <= account.charged + account.presumed <= billed + THREADS
    assert account.presumed >= 1


CUT = pytest.param(lambda path: os.truncate(path, 0), id="cut", marks=pytest.mark.slow)


@pytest.mark.parametrize("fault", [pytest.param(Path.unlink, id="deleted"), CUT])
def test_two_processes_go_on_with_one_file_after_theirs_was_lost(tmp_path, ledger, fault):
    path = tmp_path / "budget.db"
    with working(f"sqlite:///{path}?timeout_s=2", "hard", AMOUNT_USD, ledger, 1, 2) as both:
        wait_until(at_least(ledger, 20), "no calls", 20.0)
        fault(path)
        assert [each.wait(90.0) for each in both] == [0, 0]
    account = all_settled(f"sqlite:///{path}")
    assert 0.7 * AMOUNT_USD < ledger.total_usd <= AMOUNT_USD
    assert account.spent_usd == pytest.approx(ledger.total_usd)
    assert account.charged == len(ledger.costs_usd)


@pytest.mark.slow
@NEEDS_REDIS
def test_a_worker_and_the_data_are_lost_at_once(ledger):
    """The other worker cannot name the calls in flight of the killed one, which it has seen, and presumes them."""
    with serving() as server:
        with working(server.url, "hard", AMOUNT_USD, ledger, 1, 2, first=["--calls", 2]) as (first, second):
            assert first.stdout.readline() == "hanging\n"
            more = THREADS + 1  # than can be in flight: the other worker has read since
            wait_until(at_least(ledger, len(ledger.costs_usd) + more), "no calls", 20.0)
            first.kill()
            first.wait(10.0)
            server.empty()
            assert second.wait(90.0) == 0
        time.sleep(TTL_S + 1.5)
        account = all_settled(server.url)
        assert 0.5 * AMOUNT_USD < ledger.total_usd <= AMOUNT_USD
        assert account.spent_usd + account.leased_usd >= ledger.total_usd - 1e-9
        assert account.presumed_usd >= THREADS * WORST_USD - 1e-9
