"""A Redis server that stops, pauses, forgets or refuses: the budget holds, and every call is counted."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import contextmanager

import pytest

from support.redis_servers import MISSING, redis_server, serving
from support.traffic import router_on, settled
from wiserouter import Budget, open_store
from wiserouter.errors import StoreUnavailable

pytestmark = pytest.mark.skipif(redis_server() is None, reason=MISSING)

HARD = Budget(60.0, 1_000, limit="hard")
EXPECTED = Budget(600.0, 1_000)


@contextmanager
def stopped(server):
    server.stop()
    yield
    server.start()


@contextmanager
def restarted_without_data(server):
    server.kill()
    for kept in server.folder.glob("appendonly*"):
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    yield
    server.start()


@contextmanager
def paused(server):
    os.kill(server.pid, signal.SIGSTOP)
    yield
    os.kill(server.pid, signal.SIGCONT)


@contextmanager
def emptied(server):
    server.empty()
    yield


@contextmanager
def emptied_twice(server):
    server.empty()
    yield
    server.empty()


@contextmanager
def full(server):
    server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    server.ask("CONFIG", "SET", "maxmemory", "1")
    yield
    server.ask("CONFIG", "SET", "maxmemory", "0")


@contextmanager
def read_only(server):
    server.ask("REPLICAOF", "127.0.0.1", "1")
    yield
    server.ask("REPLICAOF", "NO", "ONE")


@contextmanager
def other_password(server):
    server.ask("CONFIG", "SET", "requirepass", "another")
    server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    yield
    server.ask_all(("AUTH", "another"), ("CONFIG", "SET", "requirepass", ""))


FAULTS = [stopped, restarted_without_data, paused, emptied, emptied_twice, full, read_only, other_password]
DURATIONS_S = [1.5, pytest.param(6.0, marks=pytest.mark.slow), pytest.param(10.0, marks=pytest.mark.slow)]


def slow_but(plain, *faults):
    """Return faults as parameters of a test: all are slow but the plain one."""
    return [fault if fault is plain else pytest.param(fault, marks=pytest.mark.slow) for fault in faults]


@pytest.fixture(scope="module")
def server():
    """A server whose content survives a restart."""
    with serving("--appendonly", "yes", "--appendfsync", "always") as one:
        yield one


@pytest.fixture
def routers(server):
    """Open routers on the server, which are closed at the end."""
    server.empty()
    opened = []

    def opener(budget, n=2, settings="timeout_s=0.5"):
        opened.extend(router_on(f"{server.url}?{settings}", budget, seed=seed) for seed in range(n))
        return opened[-n:]

    yield opener
    for router in opened:
        router.close()


@pytest.mark.parametrize("fault_s", DURATIONS_S)
@pytest.mark.parametrize("fault", slow_but(stopped, *FAULTS))
def test_a_hard_budget_is_not_exceeded(server, routers, ledger, send, fault, fault_s):
    both = routers(HARD)
    traffic = send(*both)
    time.sleep(1.0)
    with fault(server):
        time.sleep(fault_s)
    for router in both:
        settled(router)
    traffic.drain()
    for router in both:
        settled(router)
    assert traffic.sent > 20
    assert ledger.total_usd <= HARD.amount_usd
    for router in both:
        status = router.status()
        assert status.spent_usd + status.reserved_usd + status.leased_usd >= ledger.total_usd - 1e-9
        assert status.spent_usd + status.reserved_usd + status.leased_usd <= HARD.amount_usd + 1e-9
    assert ledger.total_usd > 0.5 * HARD.amount_usd  # the money is not locked away either


@pytest.mark.parametrize("fault_s", DURATIONS_S)
@pytest.mark.parametrize("fault", slow_but(paused, *FAULTS))
def test_every_call_under_an_expected_limit_is_counted(server, routers, ledger, send, fault, fault_s):
    both = routers(EXPECTED)
    traffic = send(*both)
    time.sleep(0.7)
    with fault(server):
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
    assert traffic.closed == 0  # nothing was refused meanwhile


@pytest.mark.parametrize("fault", slow_but(full, stopped, paused, full))
def test_a_hard_budget_continues_on_its_leases(server, routers, ledger, send, fault):
    both = routers(HARD, settings="timeout_s=0.5&on_store_error=local&local_share=0.2")
    time.sleep(1.2)  # a lease is taken with the first refresh
    traffic = send(*both, call_s=0.1)
    time.sleep(0.5)
    before = traffic.sent
    with fault(server):
        time.sleep(1.5)
    assert traffic.sent > before + 5
    for router in both:
        settled(router)
    traffic.drain()
    assert ledger.total_usd <= HARD.amount_usd


def test_a_closed_store_decides_nothing_under_an_expected_limit_either(server, routers, ledger, send):
    (router,) = routers(EXPECTED, n=1, settings="timeout_s=0.3&on_store_error=closed&max_staleness_s=0.1")
    with paused(server):
        time.sleep(1.5)
        with pytest.raises(StoreUnavailable, match="on_store_error is 'closed'"):
            router.decide(context=0)


def test_a_worker_that_starts_after_the_loss_finds_what_the_others_know(server, routers, ledger, send):
    (router,) = routers(HARD, n=1)
    traffic = send(router, call_s=0.1)
    time.sleep(1.0)
    traffic.stop()
    settled(router)
    spent_usd = router.status().spent_usd
    assert spent_usd == pytest.approx(ledger.total_usd)
    server.empty()
    settled(router)
    late = open_store(server.url)
    assert late.ledger("default").spent_usd == pytest.approx(spent_usd)
    late.close()
