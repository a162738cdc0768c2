"""Workers that are killed while they serve: what the provider bills never exceeds a hard budget."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.redis_servers import MISSING, line_to, redis_server, wait_until
from support.store_worker import record
from wiserouter import Budget, open_store
from wiserouter.budgets.run_caps import RunCap
from wiserouter.errors import BudgetExhausted

WORKER = Path(__file__).parents[2] / "support" / "store_worker.py"
NEEDS_REDIS = pytest.mark.skipif(redis_server() is None, reason=MISSING)
AMOUNT_USD, COST_USD, TTL_S = 300.0, 0.25, 2.0
LEASED = "lease_share=0.1&lease_ttl_s=1&refresh_s=0.2"


@pytest.fixture
def sqlite(tmp_path):
    return f"sqlite:///{tmp_path / 'budget.db'}"


@pytest.fixture
def redis(server, tmp_path):
    return f"{server.url}?name={tmp_path.name}"


def billed_until_killed(url, seeds, calls, **environment):
    """Start workers, kill each after so many calls, and return what the provider has billed."""
    environment = {**os.environ, "RESERVATION_TTL_S": str(TTL_S), **environment}
    commands = [[sys.executable, str(WORKER), url, "s", "serve", str(seed)] for seed in seeds]
    workers = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True, env=environment) for one in commands]
    lines = []
    for one in workers:
        for line in one.stdout:
            lines.append(line)
            if line == "refused\n" or len(lines) % calls == 0:
                break
    for one in workers:
        one.kill()
    for one in workers:
        lines += one.stdout.read().splitlines()
        one.wait(10.0)
        one.stdout.close()
    return sum(float(line) for line in lines if not line.startswith("refused"))


def billed_until_refused(store, name, caps=()):
    """Serve from this process until a budget is used up, and return what the provider has billed."""
    calls = 0
    while True:
        try:
            store.reserve(replace(record(store, "s", f"{name} {calls}", COST_USD, 0.5 * COST_USD), caps=caps))
        except BudgetExhausted:
            return COST_USD * calls
        store.settle(f"{name} {calls}", COST_USD)
        calls += 1


@pytest.mark.parametrize("settings", ["", pytest.param(LEASED, marks=pytest.mark.slow)], ids=["", "leased"])
@pytest.mark.parametrize("place", ["sqlite", pytest.param("redis", marks=[NEEDS_REDIS, pytest.mark.slow])])
def test_the_provider_bills_no_more_than_a_hard_budget(place, settings, request):
    url = request.getfixturevalue(place)
    url += ("&" if "?" in url else "?") + settings if settings else ""
    store = open_store(url, reservation_ttl_s=TTL_S)
    store.open("s", Budget(AMOUNT_USD, 100_000, limit="hard"))
    billed_usd = billed_until_killed(url, (1, 2), 150) + billed_until_killed(url, (3, 4), 50)
    billed_usd += billed_until_refused(store, "at once")
    assert 50.0 < billed_usd <= AMOUNT_USD
    wait_until(lambda: _nothing_is_held(store), "calls or leases of killed workers are still held", 20.0)
    billed_usd += billed_until_refused(store, "at the end")
    store.refresh()
    ledger = store.ledger("s")
    print(f"{place} {settings}: billed {billed_usd} USD of {AMOUNT_USD}, presumed {ledger.presumed_usd} USD")
    assert billed_usd <= AMOUNT_USD
    assert ledger.spent_usd - ledger.presumed_usd - 1e-9 <= billed_usd <= ledger.spent_usd + 1e-9
    assert ledger.spent_usd <= AMOUNT_USD * (1.0 + 1e-12)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["", LEASED], ids=["", "leased"])
@pytest.mark.parametrize("place", ["sqlite", pytest.param("redis", marks=NEEDS_REDIS)])
def test_the_provider_bills_no_more_than_the_hard_budget_of_a_run(place, settings, request):
    url, run_usd = request.getfixturevalue(place), 30.0
    url += ("&" if "?" in url else "?") + settings if settings else ""
    store = open_store(url, reservation_ttl_s=TTL_S)
    store.open("s", Budget(1e6, 100_000))
    caps = (RunCap("run", run_usd, hard=True, ttl_s=900.0),)
    billed_usd = billed_until_killed(url, (1, 2), 20, RUN_USD=str(run_usd))
    billed_usd += billed_until_killed(url, (3, 4), 10, RUN_USD=str(run_usd))
    billed_usd += billed_until_refused(store, "at once", caps)
    assert 10.0 < billed_usd <= run_usd
    wait_until(lambda: _nothing_is_in_flight(store, caps), "calls of killed workers are still in flight", 20.0)
    billed_usd += billed_until_refused(store, "at the end", caps)
    cap = store.snapshot("s", caps).account.caps[0]
    print(f"{place} {settings}: billed {billed_usd} USD of a run of {run_usd}, presumed {cap.presumed_usd} USD")
    assert billed_usd <= run_usd
    assert cap.spent_usd - cap.presumed_usd - 1e-9 <= billed_usd <= cap.spent_usd + 1e-9
    assert cap.spent_usd <= run_usd * (1.0 + 1e-12)
    store.close()


def _nothing_is_in_flight(store, caps):
    time.sleep(0.2)
    store.refresh()
    return store.snapshot("s", caps).account.caps[0].in_flight == 0


@NEEDS_REDIS
@pytest.mark.slow
def test_a_worker_is_killed_while_it_serves_on_its_lease_and_the_store_is_away(redis):
    amount_usd, environment = 400.0, {**os.environ, "RESERVATION_TTL_S": str(TTL_S)}
    with line_to(urlsplit(redis).port) as line:
        settings = "on_store_error=local&local_share=0.3&lease_ttl_s=1&refresh_s=0.2&timeout_s=0.3"
        url = f"redis://127.0.0.1:{line.port}/0?{urlsplit(redis).query}&{settings}"
        store = open_store(redis, reservation_ttl_s=TTL_S)
        store.open("s", Budget(amount_usd, 100_000, limit="hard"))
        command = [sys.executable, str(WORKER), url, "s", "serve", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as worker:
            lines = [worker.stdout.readline() for _ in range(5)]
            wait_until(lambda: store.refresh() or store.ledger("s").leased_usd > 0.0, "it takes no lease", 20.0)
            line.pause()
            lines += [worker.stdout.readline() for _ in range(20)]
            worker.kill()
            lines += worker.stdout.read().splitlines()
        line.resume()
        served_usd = sum(float(one) for one in lines if not one.startswith("refused"))
        billed_usd = served_usd + billed_until_refused(store, "at once")
        wait_until(lambda: _nothing_is_held(store), "the lease of the killed worker is still held", 20.0)
        billed_usd += billed_until_refused(store, "at the end")
        store.refresh()
        ledger = store.ledger("s")
        print(f"served {served_usd}, billed {billed_usd} of {amount_usd} USD, presumed {ledger.presumed_usd} USD")
        assert billed_usd <= amount_usd
        assert ledger.spent_usd - ledger.presumed_usd - 1e-9 <= billed_usd <= ledger.spent_usd + 1e-9
        assert ledger.presumed_usd > 0.0
        store.close()


def _nothing_is_held(store):
    time.sleep(0.2)
    store.ledger("s")
    store.refresh()
    ledger = store.ledger("s")
    own_usd = store._worker.leases.left_usd("s")
    return ledger.in_flight == 0 and ledger.leased_usd <= own_usd + 1e-9
