"""Every engine does the same: the checks of `engines.CONTRACT`."""

import gc
import re
import sqlite3
import time
import uuid
from collections.abc import Mapping

import pytest

from support.engine_checks import CONTRACT
from support.engine_model import ModelEngine
from support.engines import Place
from wiserouter.stores.engines.redis import RedisEngine
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.engines.sqlite_texts import TextCursor
from wiserouter.testing import FakeClock


@pytest.fixture
def redis_url(server):
    return server.url


@pytest.fixture
def cluster_url(nodes):
    return f"redis+cluster://127.0.0.1:{nodes[1].port}"


def redis_place(url):
    engines, name = [], uuid.uuid4().hex

    def open_engine(**ttl_s):
        engines.append(RedisEngine(url, name=name, **ttl_s))
        return engines[-1]

    def advance(seconds):  # the server's clock is this machine's
        end = time.time() + seconds
        while (left_s := end - time.time()) > 0:
            time.sleep(left_s + 0.001)

    yield Place(open_engine, advance, short_s=0.1)
    for engine in engines:
        engine.close()


def model_place():
    engine = ModelEngine()

    def open_engine(reservation_ttl_s=900.0, decision_ttl_s=7 * 86_400.0, max_conversations=100_000):
        engine.ttl_s, engine.decision_ttl_s = reservation_ttl_s, decision_ttl_s
        engine.max_conversations = max_conversations
        return engine

    def advance(seconds):
        engine.now_s += seconds

    yield Place(open_engine, advance, short_s=60.0)


def sqlite_place(path):
    clock, engines = FakeClock(1_000.0), []

    def open_engine(**ttl_s):
        engines.append(SQLiteEngine(path, clock, **ttl_s))
        return engines[-1]

    yield Place(open_engine, clock.advance, short_s=60.0)
    for engine in engines:
        engine.close()


@pytest.fixture
def plainly_bound(monkeypatch):
    """Refuse names and numbers of placeholders with values in a row; Python 3.12.0 to 3.12.3 warn of both."""
    execute = TextCursor.execute

    def checked(cursor, statement, values=()):
        assert isinstance(values, Mapping) or not re.search(r"[?:@$]\w", statement), statement
        return execute(cursor, statement, values)

    monkeypatch.setattr(TextCursor, "execute", checked)


@pytest.fixture(params=["model", "sqlite", "redis", "cluster"])
def place(request, tmp_path, plainly_bound):
    if request.param == "model":
        yield from model_place()
    elif request.param == "sqlite":
        yield from sqlite_place(tmp_path / "budget.db")
    else:
        yield from redis_place(request.getfixturevalue(f"{request.param}_url"))


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__.removeprefix("check_"))
def test_engine(check, place):
    check(place)


def test_an_sqlite_engine_that_nobody_holds_any_more_closes_its_file(tmp_path):
    engine = SQLiteEngine(tmp_path / "budget.db")
    connection = engine._connection
    engine.exchange([])
    del engine
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
