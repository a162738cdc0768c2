"""Redis engines that are closed at the end of a test."""

import uuid

import pytest


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
