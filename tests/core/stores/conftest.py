"""Stores and Redis engines that are closed at the end of a test."""

import uuid

import pytest

from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore


@pytest.fixture
def opened(clock, tmp_path):
    """Return a function that opens stores on one SQLite file, each as another worker."""
    stores = []

    def opener(**settings):
        engine = SQLiteEngine(tmp_path / "budget.db", clock, reservation_ttl_s=60.0)
        stores.append(SharedStore(engine, clock=clock, reservation_ttl_s=60.0, **settings))
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


@pytest.fixture
def make():
    """Return a function that opens Redis engines, which are closed at the end."""
    from wiserouter.stores.engines.redis import RedisEngine  # only where redis-py is installed

    engines = []

    def open_engine(url, name=None, **options):
        engines.append(RedisEngine(url, name=name or uuid.uuid4().hex, **options))
        return engines[-1]

    yield open_engine
    for engine in engines:
        engine.close()
