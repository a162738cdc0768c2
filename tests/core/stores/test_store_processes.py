"""Many processes on one hard budget: no grant beyond it, no charge lost or counted twice."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.redis_servers import MISSING, redis_server
from wiserouter import Budget, open_store

pytestmark = pytest.mark.slow

WORKER = Path(__file__).parents[2] / "support" / "store_worker.py"
PROCESSES = 8
CALLS = int(os.environ.get("WISEROUTER_CALLS", "1000"))  # 5,000 with `uv run poe stores`
AMOUNT_USD = 2.4 * CALLS


@pytest.fixture
def sqlite(tmp_path):
    return f"sqlite:///{tmp_path / 'budget.db'}?timeout_s=60"


@pytest.fixture
def redis(server):
    return server.url


@pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("redis", marks=pytest.mark.skipif(redis_server() is None, reason=MISSING))]
)
def test_eight_processes_share_a_hard_budget(place, request):
    url = request.getfixturevalue(place)
    store = open_store(url)
    store.open("s", Budget(AMOUNT_USD, 1_000_000, limit="hard"))
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), url, "s", "crowd", str(CALLS), str(seed)], stdout=subprocess.PIPE, text=True
        )
        for seed in range(PROCESSES)
    ]
    try:
        found = [json.loads(worker.communicate(timeout=300.0)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(10.0)
    total = {name: math.fsum([one[name] for one in found]) for name in found[0]}
    store.refresh()
    ledger = store.ledger("s")
    assert total["granted"] + total["refused"] == PROCESSES * CALLS
    assert total["refused"] > 0
    assert ledger.spent_usd == pytest.approx(total["spent_usd"], rel=0, abs=1e-9)
    assert ledger.spent_usd <= AMOUNT_USD * (1.0 + 1e-12)
    assert (ledger.charged, ledger.released) == (total["charged"], total["released"])
    assert (ledger.decided, ledger.in_flight, ledger.presumed) == (total["charged"], 0, 0)
    assert ledger.reserved_usd == pytest.approx(0.0, abs=1e-9)
    assert AMOUNT_USD - ledger.spent_usd < 1.5  # at most one call of the highest worst case did not fit
    store.close()
