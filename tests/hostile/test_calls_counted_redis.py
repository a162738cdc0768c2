"""A Redis server that stops, pauses, forgets or refuses: every call is counted, and leases go on."""

import time

import pytest

from support.redis_faults import DURATIONS_S, FAULTS, full, paused, slow_but, stopped
from support.redis_servers import MISSING, redis_server, wait_until
from support.traffic import settled
from wiserouter import Budget, open_store
from wiserouter.errors import StoreUnavailable

pytestmark = pytest.mark.skipif(redis_server() is None, reason=MISSING)

HARD = Budget(60.0, 1_000, limit="hard")
EXPECTED = Budget(600.0, 1_000)


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
    for router in both:
        settled(router, lambda router=router: router._store._worker.leases.left_usd("default") > 0.0)
    traffic = send(*both, call_s=0.1)
    time.sleep(0.5)
    before = traffic.sent
    with fault(server):
        time.sleep(1.5)
        wait_until(lambda: traffic.sent > before + 5, "no calls on the leases", 30.0)
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
