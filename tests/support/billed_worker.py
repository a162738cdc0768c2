"""A worker process that sends calls to a provider: `python billed_worker.py URL LIMIT AMOUNT LEDGER [options]`.

Each call is decided, billed by the provider in the file LEDGER, in flight for a while, and charged. It prints "ready"
when its budget runs, begins when it reads a line, prints "hanging" when every thread has sent its `--calls` and one
more that does not end, "full" when the store refuses for lack of space, and "done" when the budget refuses.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.traffic import ProviderLedger, router_on
from wiserouter import Budget, WiseRouter, open_store
from wiserouter.errors import BudgetError, StoreError


def send(
    router: WiseRouter, ledger: ProviderLedger, rng: random.Random, call_s: float, n_calls: int, hang: threading.Barrier
) -> None:
    """Send calls one after the other until the budget refuses, and then one that does not end."""
    while True:
        try:
            decision = router.decide(context=0)
        except BudgetError:
            return
        except StoreError:
            time.sleep(0.05)
            continue
        cost_usd = rng.uniform(0.2, 1.0)
        ledger.bill(cost_usd)
        if n_calls == 0:
            hang.wait()
            threading.Event().wait()
        n_calls -= 1
        time.sleep(call_s)
        router.charge(decision, cost_usd)


def send_on_a_full_disk(router: WiseRouter, ledger: ProviderLedger, limit_bytes: int) -> None:
    """Send with tiny calls until no file may grow further, a few more, and then without that limit."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, most))
    more = 10
    for _ in range(20_000):
        try:
            decision = router.decide(context=0)
            ledger.bill(0.001)
            router.charge(decision, 0.001)
        except StoreError:
            more -= 1
        if not router._store.health().reachable:
            more -= 1
        if more <= 0:
            print("full", flush=True)
            break
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    for _ in range(200):
        try:
            router._store.refresh()
            return
        except StoreError:
            time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("limit", choices=["hard", "expected"])
    parser.add_argument("amount_usd", type=float)
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--call-s", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reservation-ttl-s", type=float, default=900.0)
    parser.add_argument("--file-limit", type=int)
    given = parser.parse_args()
    ledger = ProviderLedger(given.ledger)
    store = open_store(given.url, reservation_ttl_s=given.reservation_ttl_s)
    router = router_on(store, Budget(given.amount_usd, 1_000_000, limit=given.limit), seed=given.seed)
    print("ready", flush=True)
    sys.stdin.readline()
    if given.file_limit is not None:
        send_on_a_full_disk(router, ledger, given.file_limit)
    else:
        hang = threading.Barrier(given.threads, action=lambda: print("hanging", flush=True))
        settings = given.call_s, given.calls, hang
        threads = [
            threading.Thread(target=send, args=(router, ledger, random.Random(f"{given.seed}-{n}"), *settings))
            for n in range(given.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    router.close()
    print("done", flush=True)


if __name__ == "__main__":
    main()
