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
from wiserouter.budgets.run_caps import RunCap

pytestmark = pytest.mark.slow

WORKER = Path(__file__).parents[2] / "support" / "store_worker.py"
PROCESSES = 8
CALLS = int(os.environ.get("WISEROUTER_CALLS", "1000"))  # 5,000 with `uv run poe stores`
AMOUNT_USD = 2.4 * CALLS


@pytest.fixture
def sqlite(tmp_path):
    return f"sqlite:///{tmp_path / 'budget.db'}?timeout_s=60"


@pytest.fixture
def redis(server, tmp_path):
    return f"{server.url}?name={tmp_path.name}"


@pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("redis", marks=pytest.mark.skipif(redis_server() is None, reason=MISSING))]
)
def test_eight_processes_share_a_hard_budget(place, request):
    url = request.getfixturevalue(place)
    store = open_store(url)
    store.open("s", Budget(AMOUNT_USD, 1_000_000, limit="hard"))
    total = in_processes(url, PROCESSES, CALLS)
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


def test_eight_processes_that_write_without_a_pause_each_have_their_turn(tmp_path):
    url = f"sqlite:///{tmp_path / 'budget.db'}"
    store = open_store(url)
    store.open("s", Budget(1e6, 1_000_000))
    total = in_processes(url, PROCESSES, CALLS // 2, SCORES="yes")
    store.refresh()
    assert total["failures"] == 0
    assert store.ledger("s").charged == total["charged"]
    assert store.ledger("s").spent_usd == pytest.approx(total["spent_usd"], rel=0, abs=1e-9)
    store.close()


@pytest.mark.parametrize("limit", ["expected", "hard"])
@pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("redis", marks=pytest.mark.skipif(redis_server() is None, reason=MISSING))]
)
def test_two_processes_race_for_the_rest_of_a_run(place, limit, request):
    url, run_usd, calls = request.getfixturevalue(place), 150.0, 300
    store = open_store(url)
    store.open("s", Budget(1e6, 1_000_000, limit=limit))
    total = in_processes(url, 2, calls, RUN_USD=str(run_usd))
    store.refresh()
    cap = store.snapshot("s", (RunCap("run", run_usd, hard=True, ttl_s=900.0),)).account.caps[0]
    assert total["granted"] + total["refused"] == 2 * calls
    assert total["refused"] > 0
    assert cap.spent_usd == pytest.approx(total["spent_usd"], rel=0, abs=1e-9)
    assert run_usd - 1.5 < cap.spent_usd <= run_usd * (1.0 + 1e-12)
    assert (cap.charged, cap.in_flight) == (total["charged"], 0)
    assert store.ledger("s").spent_usd == pytest.approx(total["spent_usd"], rel=0, abs=1e-9)
    store.close()


def in_processes(url, processes, calls, **environment):
    """Return the sums of what so many processes report."""
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), url, "s", "crowd", str(calls), str(seed)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        for seed in range(processes)
    ]
    try:
        found = [json.loads(worker.communicate(timeout=300.0)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(10.0)
    return {name: math.fsum([one[name] for one in found]) for name in found[0]}
