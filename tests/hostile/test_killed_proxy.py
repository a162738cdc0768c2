"""A proxy that is killed with calls in flight, first one worker, then all of it: the bills stay within the budget.

Groups with a hard limit on SQLite and on Redis, and one with an expected limit, served by one proxy with two workers.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from support.billing_stub import Behaviour, billing_stub
from support.providers import deployment
from support.proxies import running_proxy, write
from support.redis_servers import MISSING, redis_server, wait_until
from support.redis_servers import serving as serving_redis

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(redis_server() is None, reason=MISSING),
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the workers of the proxy in /proc"),
]

HARD = ("on_file", "on_redis")
BUDGET_USD = 0.1  # about 120 calls: some are in flight when the proxy is killed
TTL_S = 4.0
OUTPUT_TOKENS = 400
TWO_WORKERS = ("--num_workers", "2", "--timeout_worker_healthcheck", "120")


def config_of(groups, url):
    rows = [
        deployment("small", name, url=url, api_key=f"sk-of-{name}", info={"id": f"{name}-small"}) for name in groups
    ]
    return {
        "model_list": rows,
        "router_settings": {"num_retries": 0, "allowed_fails": 10_000},
        "litellm_settings": {"callbacks": ["wiserouter_litellm.callback"]},
        "callback_settings": {"wiserouter": {"groups": groups}},
        "general_settings": {"master_key": "os.environ/LITELLM_MASTER_KEY", "custom_auth": "support.proxy_auth.auth"},
    }


class Clients:
    """Threads that ask each group, several at a time, until they are stopped."""

    def __init__(self, url, groups, each=5):
        self.statuses = []
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(each * len(groups))
        self._done = [self._pool.submit(self._ask, url, group) for group in groups for _ in range(each)]

    def stop(self):
        self._stopping.set()
        for each in self._done:
            each.result(60.0)
        self._pool.shutdown()

    def _ask(self, url, group):
        while not self._stopping.is_set():
            self.statuses.append(ask(url, group))
            if self.statuses[-1] != 200:
                time.sleep(0.1)


def ask(url, group):
    body = {"model": group, "messages": [{"role": "user", "content": "hi"}], "max_tokens": OUTPUT_TOKENS}
    try:
        return httpx.post(
            f"{url}/v1/chat/completions", json=body, headers={"Authorization": "Bearer sk-user-a"}, timeout=20.0
        ).status_code
    except httpx.TransportError:
        return 0  # it was killed


def status(url, key, group):
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.get(f"{url}/wiserouter/status", headers=headers, timeout=30.0).json()["groups"][group]


def bills_of(stub, group):
    return [call for call in stub.calls if call.headers.get("authorization") == f"Bearer sk-of-{group}"]


def ledger_usd(stub, group):
    return sum(call.cost_usd for call in bills_of(stub, group))


def workers_of(pid):
    """Return the processes that a proxy has started, except for the one that tracks their resources."""
    children = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
                command = (each / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == pid and b"resource_tracker" not in command:
                children.append(int(each.name))
    return children


def spend_out(url, groups, stub):
    """Ask each group until its budget has refused it for longer than calls of killed workers can be in flight."""
    with ThreadPoolExecutor(len(groups)) as pool:
        list(pool.map(lambda group: _spend_out(url, group), groups))
    time.sleep(0.5)


def _spend_out(url, group):
    refused_since_s = None
    while refused_since_s is None or time.monotonic() - refused_since_s < 2.0 * TTL_S:
        answered = ask(url, group)
        refused_since_s = None if answered == 200 else refused_since_s or time.monotonic()
        if answered != 200:
            time.sleep(0.2)


def test_the_provider_bills_no_more_than_the_budget(tmp_path):
    terms = {"requests": 1_000, "reservation_ttl_s": TTL_S, "seed": 0}
    with billing_stub() as stub, serving_redis("--appendonly", "yes") as redis:
        stub.behaviour = Behaviour(delay_s=0.4)
        groups = {
            "on_file": {**terms, "budget_usd": BUDGET_USD, "limit": "hard", "store": "sqlite:///hard.db"},
            "on_redis": {**terms, "budget_usd": BUDGET_USD, "limit": "hard", "store": redis.url},
            "expected": {**terms, "budget_usd": 10.0, "store": "sqlite:///expected.db"},
        }
        path = write(config_of(groups, stub.url), tmp_path)
        with running_proxy(path, tmp_path / "first.log", *TWO_WORKERS, boot_s=300.0) as (url, _, pid):
            wait_until(lambda: len(workers_of(pid)) >= 2, "there are no two workers", 60.0)
            clients = Clients(url, groups)
            wait_until(lambda: all(len(bills_of(stub, group)) > 10 for group in groups), "no calls", 60.0)
            os.kill(workers_of(pid)[0], signal.SIGKILL)
            time.sleep(1.0)
            os.killpg(pid, signal.SIGKILL)
            clients.stop()
        assert clients.statuses.count(200) > 20
        assert clients.statuses.count(0) > 3  # were in flight
        time.sleep(1.0)  # the provider finishes what it was sent
        billed_before = {group: len(bills_of(stub, group)) for group in groups}
        assert all(ledger_usd(stub, group) < BUDGET_USD for group in HARD)
        with running_proxy(path, tmp_path / "second.log", boot_s=300.0) as (url, key, _):
            spend_out(url, HARD, stub)
            expected = status(url, key, "expected")
            found = {group: status(url, key, group) for group in HARD}
        for group, seen in found.items():
            ledger = ledger_usd(stub, group)
            print(f"{group}: billed {ledger:.4f} of {BUDGET_USD} USD, spent {seen['spent_usd']:.4f}, ", end="")
            print(f"presumed {seen['presumed_usd']:.4f} for {seen['presumed']} calls")
            assert 0.5 * BUDGET_USD < ledger <= BUDGET_USD
            assert ledger <= seen["spent_usd"] + 1e-9
            assert seen["spent_usd"] <= BUDGET_USD * (1.0 + 1e-9)
            assert seen["spent_usd"] - seen["presumed_usd"] <= ledger + 1e-9
            assert seen["faults"].get("uncounted_calls", 0) == 0
        assert sum(seen["presumed"] for seen in found.values()) > 0
        assert expected["in_flight"] == 0
        assert expected["charged"] + expected["presumed"] >= billed_before["expected"]
