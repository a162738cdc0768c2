"""What metrics cost: a decision that is counted, and a scrape of a thousand scopes."""

import time

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest

from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.operating.metrics import Metrics

MODELS = [Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))]
ROUNDS, CALLS, SCOPES = 20, 500, 1_000


def decide_us(router: WiseRouter) -> float:
    times = []
    for _ in range(CALLS):
        start = time.perf_counter_ns()
        decision = router.decide("q", context=0)
        times.append(time.perf_counter_ns() - start)
        router.release(decision)
    return float(np.percentile(times, 10)) / 1e3


def test_a_decision_that_is_counted():
    routers = [WiseRouter(MODELS, seed=0) for _ in range(2)]
    for router in routers:
        router.start(Budget(1_000.0, 10_000_000))
    Metrics(CollectorRegistry()).watch(routers[1])
    plain, counted = np.array([[decide_us(router) for router in routers] for _ in range(ROUNDS)]).min(axis=0)
    print(f"\ndecide {plain:.1f} us, with metrics {counted:.1f} us: +{counted - plain:.2f} us, target <= 1 us", end="")
    assert counted - plain <= 1.0


def test_a_scrape_of_a_thousand_scopes():
    router, registry = WiseRouter(MODELS, seed=0), CollectorRegistry()
    scopes = [f"team-{at}" for at in range(SCOPES)]
    for scope in scopes:
        router.start(Budget(1.0, 100), scope=scope)
    Metrics(registry).watch(router, scopes=lambda: scopes)
    best_s = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        text = generate_latest(registry)
        best_s = min(best_s, time.perf_counter() - start)
    size = len(text) / 2**20
    print(f"\na scrape of {SCOPES:,} scopes: {best_s * 1e3:.0f} ms, {size:.1f} MiB, target <= 100 ms", end="")
    assert best_s <= 0.1
