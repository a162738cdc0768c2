"""Stores that were written by an earlier version: they open, and their counts and calls go on."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing

import pytest

from support.engines import (
    RELEASED,
    apply,
    cap_counters,
    charge,
    committed_usd,
    counters,
    hard_cap,
    in_run,
    keep,
    presume,
    release,
    reserve,
    state,
)
from support.redis_servers import MISSING, redis_server
from wiserouter import open_store
from wiserouter.errors import StoreDamaged
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.events import Find, Lease, Score
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.engines.sqlite_schema import SCHEMA_VERSION
from wiserouter.testing import FakeClock

SQLITE_1 = """
CREATE TABLE accounts (scope TEXT PRIMARY KEY, generation INTEGER, terms TEXT, windows TEXT);
CREATE TABLE windows (
    id TEXT PRIMARY KEY, amount_usd REAL, hard INTEGER, rollover INTEGER,
    carried_usd REAL, heir TEXT, skipped INTEGER, spent_usd REAL, debited_usd REAL, reserved_usd REAL,
    expected_usd REAL, decided REAL, in_flight REAL, charged REAL, released REAL, expired REAL, leased_usd REAL
) WITHOUT ROWID;
CREATE TABLE decisions (
    id TEXT PRIMARY KEY, windows TEXT, held_usd REAL, expected_usd REAL, paper INTEGER, record TEXT,
    state TEXT, model INTEGER, cost_usd REAL, debit_usd REAL, reward REAL, due_s REAL, forget_s REAL
) WITHOUT ROWID;
CREATE INDEX in_flight ON decisions (due_s) WHERE state = 'in flight';
CREATE INDEX decisions_to_forget ON decisions (forget_s);
CREATE TABLE aliases (alias TEXT PRIMARY KEY, decision TEXT, forget_s REAL) WITHOUT ROWID;
CREATE INDEX aliases_to_forget ON aliases (forget_s);
CREATE TABLE tokens (token TEXT PRIMARY KEY, result TEXT, forget_s REAL) WITHOUT ROWID;
CREATE INDEX tokens_to_forget ON tokens (forget_s);
CREATE TABLE leases (id TEXT PRIMARY KEY, windows TEXT, held_usd REAL, due_s REAL);
CREATE TABLE sums (sums TEXT, cell TEXT, total REAL, PRIMARY KEY (sums, cell)) WITHOUT ROWID;
CREATE TABLE learned (worker TEXT, sums TEXT, sequence INTEGER, PRIMARY KEY (worker, sums)) WITHOUT ROWID;
CREATE TABLE notes (name TEXT PRIMARY KEY, note TEXT);
INSERT INTO accounts VALUES ('s', 1, 'terms', '["w"]');
INSERT INTO windows VALUES ('w', 2.0, 1, 0, 0.0, NULL, 0, 0.5, 0.5, 0.25, 0.125, 5.0, 1.0, 1.0, 0.0, 3.0, 0.5);
INSERT INTO leases VALUES ('l', '["w"]', 0.5, 1900.0);
PRAGMA application_id = 1464423237;
PRAGMA user_version = 1;
"""
HELD, EXPECTED_USD = 0.25, 0.125
STATES = {"charged": "charged", "held": "in flight", "a": "expired", "b": "expired", "paper": "expired"}

REWARDS = {"charged": 0.125}


def check_goes_on(engine):
    """Three calls had expired: they are presumed at no cost, and a late charge counts in full."""
    figures = {"spent_usd": 0.5, "debited_usd": 0.5, "decided": 5, "in_flight": 1, "charged": 1, "presumed": 3}
    held = {"reserved_usd": 0.25, "expected_usd": 0.125, "leased_usd": 0.5}
    assert counters(engine) == {**figures, **held}
    assert [found.state for found in apply(engine, *[Find(name) for name in STATES])] == [
        "charged", "in flight", "presumed", "presumed", "presumed",
    ]  # fmt: skip
    assert apply(engine, Find("a"))[0].cost_usd == 0.0
    judged = Score("charged", "judge:mini", "0.5", "t")
    assert apply(engine, judged, Find("charged"))[0] == {"human": "0.125"}
    assert apply(engine, Find("charged"))[0].scores == {"human": "0.125", "judge:mini": "0.5"}
    assert apply(engine, presume("a"), presume("charged")) == ["again", "again"]
    assert apply(engine, charge("a", 0.5), release("b"), charge("paper", 0.5)) == ["presumed"] * 3
    settled = {"spent_usd": 1.5, "debited_usd": 1.125, "decided": 4, "in_flight": 1, "charged": 3, **RELEASED}
    assert counters(engine) == {**settled, **held}
    assert apply(engine, presume("held"), Lease("l", ("w",), 0.0, 0.0)) == ["in flight", 0.0]
    presumed = {"spent_usd": 1.75, "debited_usd": 1.375, "decided": 4, "presumed": 1, "presumed_usd": 0.25}
    assert counters(engine) == {**presumed, "charged": 3, **RELEASED}
    assert apply(engine, reserve("c", held_usd=0.5), reserve("c", held_usd=0.25)) == ["refused", "ok"]
    continues = in_run("r", hard_cap("k", 0.25), held_usd=0.0, counts=False)
    assert apply(engine, continues, keep("k", 0, 0.5, "s"), charge("r", 0.125)) == ["ok", "ok", "in flight"]
    assert (cap_counters(engine, "k")["spent_usd"], committed_usd(engine, "s")) == (0.125, [0.5])


def test_a_file_of_the_first_schema_is_migrated(tmp_path):
    path = tmp_path / "budget.db"
    with sqlite3.connect(path) as file:
        file.executescript(SQLITE_1)
        for name, at in STATES.items():
            paid = 0.5 if at == "charged" else None
            row = (name, '["w"]', HELD, EXPECTED_USD, name == "paper", f"record of {name}", at, None, paid, paid)
            file.execute(
                f"INSERT INTO decisions VALUES ({', '.join('?' * 13)})", (*row, REWARDS.get(name), 1900.0, 9e9)
            )
    file.close()
    clock = FakeClock(1_000.0)
    engine, other = SQLiteEngine(path, clock), SQLiteEngine(path, clock)
    assert state(other).amount_usd == 2.0
    check_goes_on(engine)
    engine.close()
    other.close()
    assert columns(path) == columns(SQLiteEngine(tmp_path / "new.db").path)


def columns(path):
    """Return the names of the columns of each table."""
    with closing(sqlite3.connect(path)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: {column[1] for column in file.execute(f"PRAGMA table_info({name})")} for name in tables}


def test_a_file_of_a_later_schema_is_left_alone(tmp_path):
    path = tmp_path / "budget.db"
    open_store(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        file.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    file.close()
    says = f"it has version {SCHEMA_VERSION + 1}, this WISERouter reads up to {SCHEMA_VERSION}"
    with pytest.raises(StoreDamaged, match=says):
        open_store(f"sqlite:///{path}")


@pytest.mark.skipif(redis_server() is None, reason=MISSING)
def test_keys_of_the_first_schema_are_read_as_presumed(make, server):
    import redis

    name = uuid.uuid4().hex
    base = f"{{wiserouter:{name}}}"
    counts = {"spent_usd": 0.5, "debited_usd": 0.5, "reserved_usd": 0.25, "expected_usd": 0.125, "leased_usd": 0.5}
    counts |= {"decided": 5, "in_flight": 1, "charged": 1, "released": 0, "expired": 3, "leases": 1}
    window = {"amount_usd": 2, "carried_usd": 0, "skipped": 0, "hard": "1", "rollover": "0", **counts}
    with redis.Redis.from_url(server.url) as client:
        client.set(base, "1")
        client.sadd(f"{base}:scopes", "s")
        client.hset(f"{base}:account:s", mapping={"generation": 1, "terms": "terms", "windows": '["w"]'})
        client.hset(f"{base}:window:w", mapping=window)
        client.hset(f"{base}:lease:l", mapping={"held_usd": 0.5, "windows": '["w"]'})
        for name_of_call, at in STATES.items():
            call = {"windows": '["w"]', "held_usd": HELD, "expected_usd": EXPECTED_USD, "state": at}
            paid = {"cost_usd": 0.5} if at == "charged" else {}
            call |= {"paper": "1" if name_of_call == "paper" else "0", "record": f"record of {name_of_call}", **paid}
            call |= {"reward": REWARDS[name_of_call]} if name_of_call in REWARDS else {}
            client.hset(f"{base}:call:{name_of_call}", mapping=call)
        engine = make(server.url, name)
        assert engine.exchange([], ReadRequest(["s"])).accounts["s"].windows[0].counters["presumed"] == 3
        assert client.get(base) == b"1"  # a read alone changes nothing
        check_goes_on(engine)
        assert client.get(base) == b"3"
        assert client.hget(f"{base}:window:w", "expired") == b"3"
