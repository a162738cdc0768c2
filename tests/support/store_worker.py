"""A worker process on a shared store: `python store_worker.py URL SCOPE JOB ...` prints JSON at the end."""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from dataclasses import replace

from wiserouter.budgets.run_caps import RunCap
from wiserouter.errors import BudgetExhausted
from wiserouter.stores import Record, open_store
from wiserouter.stores.base import Store
from wiserouter.types import Decision


def record(store: Store, scope: str, name: str, held_usd: float, expected_usd: float) -> Record:
    decision = Decision(name, "m", 0, 1.0, 0.0, 0.0, expected_usd, 0.5, held_usd, scope, store.now())
    return Record(decision, model=0, debit="actual")


def run_caps() -> tuple[RunCap, ...]:
    """Return the hard cap of the run that all calls belong to, where `RUN_USD` is set."""
    amount_usd = os.environ.get("RUN_USD")
    return () if amount_usd is None else (RunCap("run", float(amount_usd), hard=True, ttl_s=900.0),)


def crowd(store: Store, scope: str, calls: int, seed: int) -> dict[str, float]:
    """Make many calls, of which one in ten fails, and where `SCORES` is set score the others."""
    rng, costs, granted, refused, released = random.Random(seed), [], 0, 0, 0
    caps = run_caps()
    for call in range(calls):
        held_usd = rng.uniform(0.5, 1.5)
        one = replace(record(store, scope, f"{seed}-{call}", held_usd, 0.5 * held_usd), caps=caps)
        try:
            store.reserve(one)
        except BudgetExhausted:
            refused += 1
            continue
        granted += 1
        if rng.random() < 0.1:
            store.release(one.decision.id)
            released += 1
        else:
            costs.append(rng.uniform(0.1, 1.0) * held_usd)
            store.settle(one.decision.id, costs[-1])
            if "SCORES" in os.environ:
                store.reward(one.decision.id, 1.0)
    return {
        "granted": granted,
        "refused": refused,
        "released": released,
        "charged": len(costs),
        "spent_usd": math.fsum(costs),
        "failures": store.health().failures,
    }


def pace(store: Store, scope: str, calls: int, seed: int) -> dict[str, float]:
    """Print "ready", wait for a line, and make calls as fast as possible until the engine has all of them."""
    store.ledger(scope)
    print("ready", flush=True)
    sys.stdin.readline()
    waits_s = []
    for call in range(calls):
        one = record(store, scope, f"{seed}-{call}", 0.002, 0.001)
        began_s = time.perf_counter()
        store.reserve(one)
        waits_s.append(time.perf_counter() - began_s)
        store.settle(one.decision.id, 0.001)
    store.refresh()
    waits_s.sort()
    return {"calls": calls, "p50_ms": 1e3 * waits_s[calls // 2], "p99_ms": 1e3 * waits_s[calls * 99 // 100]}


def hang(store: Store, scope: str) -> None:
    """Reserve a dollar, print "held", and wait to be killed."""
    store.reserve(record(store, scope, "abandoned", 1.0, 0.5))
    store.refresh()
    print("held", flush=True)
    time.sleep(60.0)


def serve(store: Store, scope: str, seed: int) -> None:
    """Print the cost of each call when the provider bills it, before the charge, until killed or refused."""
    call, caps = 0, run_caps()
    while True:
        one = replace(record(store, scope, f"{seed}-{call}", 0.25, 0.125), caps=caps)
        try:
            store.reserve(one)
        except BudgetExhausted:
            print("refused", flush=True)
            time.sleep(60.0)
        print(0.25, flush=True)
        store.settle(one.decision.id, 0.25)
        call += 1


def spend(store: Store, scope: str, seed: int) -> None:
    """Print the number of each settled charge, until killed."""
    call = 0
    while True:
        one = record(store, scope, f"{seed}-{call}", 1.0, 0.5)
        store.reserve(one)
        store.settle(one.decision.id, 0.25)
        print(call, flush=True)
        call += 1


if __name__ == "__main__":
    url, scope, job, *rest = sys.argv[1:]
    store = open_store(url, reservation_ttl_s=float(os.environ.get("RESERVATION_TTL_S", "900")))
    if job == "hang":
        hang(store, scope)
    elif job in ("serve", "spend"):
        {"serve": serve, "spend": spend}[job](store, scope, int(rest[0]))
    else:
        found = {"crowd": crowd, "pace": pace}[job](store, scope, int(rest[0]), int(rest[1]))
        store.close()
        print(json.dumps(found))
