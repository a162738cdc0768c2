"""A Redis server that stops, pauses, forgets or refuses: a hard budget is not exceeded."""

import time

import pytest

from support.redis_faults import DURATIONS_S, FAULTS, slow_but, stopped
from support.redis_servers import MISSING, redis_server
from support.traffic import settled
from wiserouter import Budget

pytestmark = pytest.mark.skipif(redis_server() is None, reason=MISSING)

HARD = Budget(60.0, 1_000, limit="hard")


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
