"""Every store passes the contract of stores, each on its real engine."""

from __future__ import annotations

import time
from functools import partial

import pytest

from support.redis_servers import MISSING, redis_server
from wiserouter import MemoryStore, open_store
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore
from wiserouter.testing import STORE_CHECKS, FakeClock, Shelf, check_store

NEEDS_REDIS = pytest.mark.skipif(redis_server() is None, reason=MISSING)


@pytest.fixture
def clock():
    return FakeClock(1_000.0)


@pytest.fixture
def closing():
    """Keep stores, and close them at the end."""
    stores = []

    def keep(store):
        stores.append(store)
        return store

    yield keep
    for store in stores:
        store.close()


@pytest.fixture
def memory(clock):
    stores = {}

    def opened(**ttl_s):
        key = str(sorted(ttl_s.items()))
        return stores.setdefault(key, MemoryStore(clock, **ttl_s))

    return Shelf(opened, clock.advance)


@pytest.fixture
def sqlite(clock, tmp_path, closing):
    def opened(**ttl_s):
        engine = SQLiteEngine(tmp_path / "budget.db", clock, **ttl_s)
        return closing(SharedStore(engine, clock=clock, reservation_ttl_s=ttl_s.get("reservation_ttl_s", 900.0)))

    return Shelf(opened, clock.advance)


@pytest.fixture
def redis(server, closing):
    return _shelf(server.url, closing)


@pytest.fixture
def redis_cluster(nodes, closing):
    return _shelf(f"redis+cluster://127.0.0.1:{nodes[0].port}", closing)


def _shelf(url, closing):
    return Shelf(lambda **ttl_s: closing(open_store(url, **ttl_s)), time.sleep)


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "place",
    ["memory", "sqlite", pytest.param("redis", marks=NEEDS_REDIS), pytest.param("redis_cluster", marks=NEEDS_REDIS)],
)
def test_every_store_keeps_the_contract(place, check, request):
    check(request.getfixturevalue(place))


def test_check_store_runs_all_checks_and_names_the_one_that_fails(memory):
    check_store(memory)

    class Generous(MemoryStore):
        def settle(self, *args, **kwargs):
            record = super().settle(*args, **kwargs)
            self.spend(record.decision.scope, 1.0)
            return record

    with pytest.raises(AssertionError) as failed:
        check_store(Shelf(partial(Generous, FakeClock()), lambda _: None))
    assert any("while follows_a_call" in note for note in failed.value.__notes__)
