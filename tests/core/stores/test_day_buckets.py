"""The sums of days in shared stores: workers add up, and each call counts once, also where answers were lost."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from support.redis_servers import MISSING, redis_server
from wiserouter import Budget, Contexts, Model, Price, Usage, WiseRouter, open_store
from wiserouter.errors import AlreadySettled, StoreUnavailable
from wiserouter.operating.savings import savings
from wiserouter.stores.day_buckets import DAY_S
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.events import Learn
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore
from wiserouter.testing import FakeClock

MODELS = [Model("small", Price(1e-6, 4e-6, cache_read=1e-7)), Model("large", Price(3e-6, 1.5e-5))]
NEEDS_REDIS = pytest.mark.skipif(redis_server() is None, reason=MISSING)


@pytest.fixture
def workers(request, tmp_path):
    """Return two routers on one store, as two workers have them."""
    url = f"sqlite:///{tmp_path / 'budget.db'}"
    if request.param == "redis":
        url = f"{request.getfixturevalue('server').url}?name={uuid.uuid4().hex}"
    routers = [worker(open_store(url)) for _ in range(2)]
    yield routers
    for one in routers:
        one.close()


def worker(store) -> WiseRouter:
    router = WiseRouter(MODELS, Contexts(np.eye(2), [0.5, 0.5]), store=store, seed=0, growing=None)
    router.start(Budget(1_000.0, 1_000_000))
    router.start(Budget(1_000.0, 1_000_000), scope="team")
    return router


@pytest.mark.parametrize("workers", ["sqlite", pytest.param("redis", marks=NEEDS_REDIS)], indirect=True)
def test_workers_add_up_and_each_call_counts_once(workers):
    first, second = workers
    n = 20
    for at in range(n):
        one = workers[at % 2]
        decision = one.decide(context=at % 2, eligible=["small"], scope=["default", "team"][at % 2])
        usage = Usage(1_000, 100, cache_read_tokens=500)
        one.charge(decision, usage=usage)
        with pytest.raises(AlreadySettled):
            one.charge(decision, usage=usage)
        one.reward(decision, 0.5)
    presumed = first.decide(context=0, eligible=["small"])
    first.presume(presumed)
    first.refresh()
    second.charge(presumed.id, usage=Usage(1_000, 100, cache_read_tokens=500))
    for one in workers:
        one.refresh()
    found = [savings(one, "2d") for one in workers]
    assert found[0].as_dict()["days"] == found[1].as_dict()["days"]
    each_usd = 500 * 1e-6 + 500 * 1e-7 + 100 * 4e-6
    for report in found:
        assert (report.actual.calls, report.actual.scores) == (n + 1, n)
        assert report.actual.cost_usd == pytest.approx((n + 1) * each_usd, abs=1e-12)
        assert report.models["small"].saved_usd == pytest.approx(0.0, abs=1e-15)
        assert report.models["large"].cost_usd == pytest.approx((n + 1) * (1_000 * 3e-6 + 100 * 1.5e-5), abs=1e-12)
        assert report.coverage.in_other_contexts == 0
    ledgers = sum(first.status(scope).spent_usd for scope in ("default", "team"))
    assert found[0].actual.cost_usd == pytest.approx(ledgers, abs=1e-9)
    assert savings(first, "2d", scope="team").actual.calls == n // 2
    assert savings(second, "2d", scope="other").actual.calls == 0


def test_a_file_forgets_the_days_that_are_too_old(tmp_path):
    today = 20_500
    engine = SQLiteEngine(tmp_path / "budget.db", FakeClock((today + 0.5) * DAY_S))
    days = {name: f"savings@{today - age}" for name, age in (("old", 401), ("kept", 400), ("today", 0))}
    for sequence, name in enumerate([*days.values(), f"{days['old']}@team", f"savings@{today - 9_000}", "other@1"]):
        engine.exchange([Learn(name, "w", sequence, {"calls|m": 1.0})])
    engine.exchange([Learn(days["today"], "another", 1, {"calls|m": 1.0}, days_kept=400)])
    names = [*days.values(), f"{days['old']}@team", f"savings@{today - 9_000}", "other@1"]
    found = engine.exchange([], ReadRequest(sums=names)).sums
    assert [len(found[name]) for name in names] == [0, 1, 1, 0, 0, 1]
    engine.close()


@NEEDS_REDIS
def test_a_server_forgets_days_in_time(server, make):
    from redis import Redis  # only where redis-py is installed

    engine, name = make(server.url, name="days"), "savings@20500"
    engine.exchange([Learn(name, "w", 1, {"calls|m": 1.0}, days_kept=2), Learn("kept", "w", 1, {"a": 1.0})])
    engine.exchange([Learn(name, "w", 2, {"calls|m": 1.0}, days_kept=2)])
    client = Redis(port=server.port)
    left_s = {key.rpartition(b":")[2].decode(): client.pttl(key) / 1e3 for key in client.keys("*days*:sums:*")}
    client.close()
    assert left_s == {name: pytest.approx(2 * DAY_S, abs=60.0), "kept": -0.001}


class Failing(SQLiteEngine):
    """An engine that loses its answers, and applies what it was sent all the same, while `fails` is set."""

    fails = False

    def exchange(self, events, reading=None, within_s=None):
        reply = super().exchange(events, reading, within_s) if reading else super().exchange(events)
        if self.fails:
            raise StoreUnavailable("the answer was lost", store="test")
        return reply


def test_additions_whose_answer_was_lost_count_once(tmp_path):
    engine = Failing(tmp_path / "budget.db")
    router = worker(SharedStore(engine, refresh_s=1e6))
    router.charge(router.decide(context=0, eligible=["small"]), usage=Usage(1_000, 100))
    engine.fails = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            savings(router, "2d")
    engine.fails = False
    assert savings(router, "2d").actual.calls == 1
    router.close()


def test_calls_and_scores_of_several_threads_count_once():
    router, n = worker(open_store("memory://")), 100

    def serve(_):
        for at in range(n):
            decision = router.decide(context=at % 2, eligible=["small"])
            router.charge(decision, usage=Usage(1_000, 100))
            router.reward(decision, 0.5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(serve, range(4)))
    report = savings(router, "2d")
    assert (report.actual.calls, report.actual.scores) == (4 * n, 4 * n)
    assert report.actual.cost_usd == pytest.approx(router.status().spent_usd)
