"""What savings cost: a charge that is counted, and a report over a month of a million calls from each store."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from support.redis_servers import MISSING, redis_server, serving
from wiserouter import Budget, Contexts, Model, Price, Usage, WiseRouter, open_store
from wiserouter.operating.savings import savings
from wiserouter.stores.day_buckets import DAY_S

MODELS = [Model(f"model-{k}", Price(k * 1e-6, k * 4e-6, cache_read=k * 1e-7)) for k in range(1, 5)]
N_CONTEXTS, DAYS, CALLS, ROUNDS = 16, 30, 1_000_000, 7
USAGES = [Usage(500 + 10 * at, 100 + at, cache_read_tokens=100) for at in range(100)]


def routed(url: str) -> WiseRouter:
    contexts = Contexts(np.eye(N_CONTEXTS), np.full(N_CONTEXTS, 1.0 / N_CONTEXTS))
    router = WiseRouter(MODELS, contexts, store=open_store(url), seed=0, growing=None)
    router.start(Budget(1e6, 10_000_000))
    return router


def count_a_month(router: WiseRouter) -> float:
    """Count a million calls of 30 days, and return the time of one in microseconds."""
    contexts, now, spent_ns = router.contexts, router.now(), 0
    scopes = ["default", "team-a", "team-b"]
    for day in range(DAYS):
        decided_at = now - day * DAY_S
        records = [
            SimpleNamespace(decision=SimpleNamespace(decided_at=decided_at, scope=scope), model=k)
            for k in range(len(MODELS))
            for scope in scopes
        ]
        start = time.perf_counter_ns()
        for at in range(CALLS // DAYS):
            usage = USAGES[at % 100]
            router._days.charged(records[at % 12], contexts, at % N_CONTEXTS, 0.001, usage, True)
        spent_ns += time.perf_counter_ns() - start
        router.refresh()
    return spent_ns / (CALLS // DAYS * DAYS) / 1e3


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request, tmp_path):
    if request.param == "memory":
        yield "memory://"
    elif request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'budget.db'}"
    elif redis_server() is None:
        pytest.skip(MISSING)
    else:
        with serving() as server:
            yield server.url


def test_a_month_of_a_million_calls(url):
    router = routed(url)
    counted_us = count_a_month(router)
    took_s = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        report = savings(router, "30d", before="model-4")
        took_s.append(time.perf_counter() - start)
    of_team = savings(router, "30d", scope="team-a")
    assert report.actual.calls == CALLS // DAYS * DAYS
    assert 0 < of_team.actual.calls < report.actual.calls
    router.close()
    print(
        f"\n{url.partition(':')[0]}: {np.median(took_s) * 1e3:.1f} ms for a report, target <= 50 ms; "
        f"{counted_us:.2f} us to count a call",
        end="",
    )
    assert np.median(took_s) <= 0.05
