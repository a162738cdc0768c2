"""Calls that one process serves with several threads, on the interpreter that runs this: `uv run poe bench`.

A call is a decision and its charge. The threads share one router, or have one each. The routers are made without a
log, so that numpy is all that is needed, also by an interpreter without a lock of its own, such as python3.13t:

    PYTHONPATH=core:tests python3.13t -m pytest --noconftest -c /dev/null -s tests/benchmarks/test_thread_speed.py

`PYTHON_GIL=1` before it gives the same interpreter its lock back. Rates are by the clock, and need a machine that does
nothing else; the processor time of a call shows what the threads cost one another.
"""

import json
import sys
import time
from threading import Barrier, Thread

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, Model, Offline, Optimistic, WiseRouter
from wiserouter.prompts.encoders.tfidf import TfidfEncoder

N_CONTEXTS, N_MODELS, N_WORDS, DIM = 16, 10, 20_000, 64
CALLS, ROUNDS = 8_000, 4
SETTINGS = {"1 thread": (1, 1), "2 threads": (1, 2), "8 threads": (1, 8), "2 threads, a router each": (2, 2)}
"""Numbers of routers and of threads."""


def has_lock():
    """Return True if this interpreter runs one thread at a time."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def encoder():
    """Return an encoder as a fit makes it, with random components."""
    rng = np.random.default_rng(1)
    words = json.dumps([f"w{i}" for i in range(N_WORDS)]).encode()
    arrays = {
        "vocabulary": np.frombuffer(words, dtype=np.uint8),
        "idf": rng.uniform(1.0, 9.0, N_WORDS),
        "components": rng.normal(size=(N_WORDS, DIM)).astype(np.float32),
    }
    return TfidfEncoder.restore({}, arrays)


def queries_of(kind, rng):
    """Return the arguments of 512 decisions: texts of 30 words, or embeddings."""
    if kind == "texts":
        return [{"text": " ".join(f"w{i}" for i in rng.integers(N_WORDS, size=30))} for _ in range(512)]
    return [{"embedding": row} for row in rng.normal(size=(512, DIM)).astype(np.float32)]


def router_of(policy):
    rng = np.random.default_rng(0)
    shape = (N_CONTEXTS, N_MODELS)
    reward, cost_usd = rng.random(shape), rng.random(shape) * 0.01 + 1e-4
    estimates = Estimates(*shape)
    for _ in range(8):
        estimates.add_table(np.arange(N_CONTEXTS), reward, cost_usd)
    contexts = Contexts(rng.normal(size=(N_CONTEXTS, DIM)), rng.dirichlet(np.full(N_CONTEXTS, 5.0)))
    models = [Model(f"m{k}") for k in range(N_MODELS)]
    router = WiseRouter(models, contexts, encoder=encoder(), policy=policy, estimates=estimates, seed=0)
    router.start(Budget(3_000.0, 10_000_000))
    return router


def serve(router, queries, calls, ready):
    ready.wait()
    for t in range(calls):
        query = queries[t % 512]
        decision = router.decide(**query)
        router.charge(decision, cost_usd=decision.expected_cost_usd)


def served(routers, queries, n_threads):
    """Return calls per second by the clock, and the processor time of a call in microseconds."""
    ready = Barrier(n_threads + 1)
    shares = [(routers[i % len(routers)], queries, CALLS // n_threads, ready) for i in range(n_threads)]
    threads = [Thread(target=serve, args=share) for share in shares]
    for thread in threads:
        thread.start()
    began, began_processor = time.perf_counter(), time.process_time()
    ready.wait()
    for thread in threads:
        thread.join()
    return CALLS / (time.perf_counter() - began), (time.process_time() - began_processor) / CALLS * 1e6


@pytest.mark.parametrize("kind", ["texts", "embeddings"])
@pytest.mark.parametrize("policy", [Offline, Optimistic])
def test_calls_of_several_threads(policy, kind):
    routers, queries = [router_of(policy()) for _ in range(2)], queries_of(kind, np.random.default_rng(2))
    rounds = [[served(routers[:n], queries, threads) for n, threads in SETTINGS.values()] for _ in range(ROUNDS)]
    lock = "with" if has_lock() else "without"
    print(f"\n{policy.__name__}, {kind}, Python {sys.version.split()[0]} {lock} an interpreter lock", end="")
    for i, name in enumerate(SETTINGS):
        rates, us = zip(*(one[i] for one in rounds), strict=True)
        growth = max(rates) / max(one[0][0] for one in rounds)
        print(f"\n  {name:<25} {max(rates):>7,.0f} calls per second, {growth:.2f}x, {min(us):>4.0f} us each", end="")
    status = [router.status() for router in routers]
    assert sum(one.horizon - one.horizon_left for one in status) == CALLS * len(SETTINGS) * ROUNDS
    assert [one.reserved_usd for one in status] == [0.0, 0.0]
