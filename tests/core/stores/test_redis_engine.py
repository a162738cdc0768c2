"""The Redis engine: URLs, damaged data, expiry of keys, details of the contract, several processes."""

import os
import re
import signal
import subprocess
import sys
import uuid
from importlib.resources import files

import pytest

from support.engines import (
    READ_ALL,
    apply,
    charge,
    counters,
    fill,
    hard_cap,
    in_run,
    keep,
    lease,
    opened,
    release,
    renew,
    reserve,
    rolling,
    state,
    window,
)
from support.redis_servers import MISSING, redis_server, wait_until
from wiserouter.errors import InvalidInput, StoreDamaged
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.events import EndConversation, Find, Learn, Note, Open, Spend

pytest.importorskip("redis")

from wiserouter.stores.engines.redis import RedisEngine

needs_server = pytest.mark.skipif(redis_server() is None, reason=MISSING)


class At:
    """A place of one engine, as `engines.opened` takes it."""

    def __init__(self, make, url, **options):
        self.open = lambda **ttl_s: make(url, **options, **ttl_s)


def dump(client, base):
    """Everything that is kept, by key."""
    return {key: client.dump(key) for key in sorted(client.keys(f"{base}*"))}


@pytest.fixture
def client(server):
    import redis

    with redis.Redis.from_url(server.url) as client:
        yield client


# URLs ----------------------------------------------------------------------------------------------------------------


def test_the_script_is_part_of_the_package():
    assert "redis.call" in files("wiserouter.stores.engines").joinpath("exchange.lua").read_text()


@pytest.mark.parametrize("url", ["redis://:pa/ss@host:6379", "redis://:secret", "http://me:secret@host", "secret"])
def test_a_url_that_cannot_be_read_is_not_shown(url):
    with pytest.raises(InvalidInput, match="store must be a URL of redis, rediss") as caught:
        RedisEngine(url)
    assert "pa" not in str(caught.value).split("got")[1]
    if url != "secret":
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("place", ["host/x", "host:6379/1.5", "host/1/2", "me/x@host", "host/-1?db=2"])
@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster"])
def test_a_database_that_is_no_number_is_refused(scheme, place):
    with pytest.raises(InvalidInput, match="the database of a store must be a whole number") as caught:
        RedisEngine(f"{scheme}://{place}")
    assert "x@" not in str(caught.value)


@pytest.mark.parametrize("place", ["host/3", "host?db=3"])
def test_a_cluster_has_one_database(place):
    with pytest.raises(InvalidInput, match=r"a cluster has database 0 only, got 3: .* add \?name="):
        RedisEngine(f"redis+cluster://{place}")
    RedisEngine("redis+cluster://host/0").close()


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_a_setting_that_redis_py_does_not_take_is_refused(scheme):
    with pytest.raises(InvalidInput, match="a setting of a store must be known here or to redis-py, got 'refresh'"):
        RedisEngine(f"{scheme}://host?refresh=1")
    for known in ("health_check_interval=1", "client_name=me", "max_connections=5"):
        RedisEngine(f"{scheme}://host?{known}").close()
    RedisEngine("redis+cluster://host?require_full_coverage=true").close()


def test_answers_are_never_decoded():
    with pytest.raises(InvalidInput, match="decode_responses"):
        RedisEngine("redis://127.0.0.1?decode_responses=yes")


@pytest.mark.parametrize("names", [{"name": ""}, {"name": "a}b"}, {"prefix": "{"}])
def test_names_that_would_part_the_keys(names):
    with pytest.raises(InvalidInput, match="without braces"):
        RedisEngine("redis://127.0.0.1", **names)


# damage --------------------------------------------------------------------------------------------------------------

DAMAGE = {
    "another type": lambda client, base: [client.set(f"{base}:account:s", 1)],
    "account": lambda client, base: [client.hset(f"{base}:account:s", "windows", "[")],
    "generation": lambda client, base: [client.hset(f"{base}:account:s", "generation", "x")],
    "no generation": lambda client, base: [client.hdel(f"{base}:account:s", "generation")],
    "no terms": lambda client, base: [client.hdel(f"{base}:account:s", "terms")],
    "windows of an account": lambda client, base: [client.hset(f"{base}:account:s", "windows", '[["v"]]')],
    "reward": lambda client, base: [client.hset(f"{base}:call:a", "reward", "good")],
    "another cell": lambda client, base: [client.hset(f"{base}:sums:sums", "z", "1,5")],
    "no window": lambda client, base: [client.delete(f"{base}:window:v")],
    "window": lambda client, base: [client.hset(f"{base}:window:v", "spent_usd", "1,5")],
    "half a window": lambda client, base: [client.hdel(f"{base}:window:v", "amount_usd")],
    "not a number": lambda client, base: [client.hset(f"{base}:window:v", "spent_usd", "nan")],
    "call": lambda client, base: [client.hset(f"{base}:call:a", "held_usd", "")],
    "half a call": lambda client, base: [client.hdel(f"{base}:call:a", "state")],
    "half a presumed call": lambda client, base: [
        client.hset(f"{base}:call:a", "state", "presumed"),
        client.hdel(f"{base}:call:a", "cost_usd"),
    ],
    "windows of a call": lambda client, base: [client.hset(f"{base}:call:a", "windows", "1")],
    "lease": lambda client, base: [client.hset(f"{base}:lease:l", "held_usd", "much")],
    "due": lambda client, base: [client.delete(f"{base}:due"), client.set(f"{base}:due", 1)],
    "alias": lambda client, base: [client.delete(f"{base}:alias:other"), client.lpush(f"{base}:alias:other", 1)],
    "note": lambda client, base: [client.delete(f"{base}:note:note"), client.lpush(f"{base}:note:note", 1)],
    "sums": lambda client, base: [client.delete(f"{base}:sums:sums"), client.set(f"{base}:sums:sums", 1)],
    "cell": lambda client, base: [client.hset(f"{base}:sums:sums", "n", "one")],
    "version of a conversation": lambda client, base: [client.hset(f"{base}:conversation:k", "version", "x")],
    "half a conversation": lambda client, base: [client.hdel(f"{base}:conversation:k", "until_s")],
    "scopes of a conversation": lambda client, base: [client.hset(f"{base}:conversation:k", "scopes", "[")],
    "committed amount": lambda client, base: [client.hset(f"{base}:account:s", "committed_usd", "nan")],
    "cap": lambda client, base: [client.hset(f"{base}:window:cap|k|r", "until_s", "x")],
    "caps": lambda client, base: [client.delete(f"{base}:caps"), client.set(f"{base}:caps", 1)],
    "scopes": lambda client, base: [client.delete(f"{base}:scopes"), client.set(f"{base}:scopes", 1)],
    "schema": lambda client, base: [client.set(base, "x")],
    "schema of another type": lambda client, base: [client.delete(base), client.lpush(base, 1)],
}


@needs_server
@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_data_is_left_unchanged(make, server, client, what):
    name = uuid.uuid4().hex
    base = f"{{wiserouter:{name}}}"
    engine = make(server.url, name)
    fill(engine)
    DAMAGE[what](client, base)
    before = dump(client, base)
    events = [
        Open("t", 0, "terms", (window("x"),)),
        reserve("c", "w"),
        charge("c", 0.25),
        lease("m", 1.0, "v"),
        Learn("sums", "worker", 2, {"m": 1.0}),
        Learn("sums", "worker", 3, {"n": 1.0}),
        lease("l", 0.5, "v"),
        Find("other"),
        release("a"),
        Note("another", "text"),
        keep("k", 1),
        in_run("q", hard_cap("k")),
        charge("r", 0.25),
    ]
    with pytest.raises(StoreDamaged, match=re.escape(f"redis://127.0.0.1:{server.port}")):
        engine.exchange(events, READ_ALL)
    assert dump(client, base) == before


@needs_server
def test_a_newer_schema(make, server, client):
    name = uuid.uuid4().hex
    engine = make(server.url, name)
    fill(engine)
    assert client.get(f"{{wiserouter:{name}}}") == b"3"
    client.set(f"{{wiserouter:{name}}}", 4)
    with pytest.raises(StoreDamaged, match=r"comes from a newer version of WISERouter \(schema 4"):
        engine.exchange([])


# expiry and names ----------------------------------------------------------------------------------------------------


@needs_server
def test_expiry_of_keys(make, server, client):
    name = uuid.uuid4().hex
    engine = make(server.url, name, reservation_ttl_s=100.0, decision_ttl_s=1000.0)
    fill(engine)
    base = f"{{wiserouter:{name}}}"
    left_s = {key.decode().removeprefix(base): client.pttl(key) / 1000.0 for key in client.keys(f"{base}*")}
    lasts = {key for key, seconds in left_s.items() if seconds < 0}
    assert lasts == {
        "", ":account:s", ":window:v", ":call:b", ":lease:l", ":due", ":note:note", ":sums:sums", ":scopes",
        ":call:r", ":window:cap|k|r", ":cap:k", ":caps", ":conversation:k", ":conversations",
    }  # fmt: skip
    ends = {key: seconds for key, seconds in left_s.items() if key not in lasts}
    expected = {":window:w": 4100.0, ":call:a": 1000.0, ":alias:other": 2100.0, ":spent:t": 1000.0}
    assert ends == pytest.approx({**expected, ":learnt:4:sums:worker": 4100.0}, rel=0.02)
    assert client.zcard(f"{base}:due") == 4
    apply(engine, release("b"), release("r"), lease("l", 0.0, ttl_s=0.0), keep("k", 1), keep("l", ttl_s=5.0))
    assert not client.exists(f"{base}:due", f"{base}:lease:l")
    capped_s = [client.pttl(f"{base}:{key}") / 1000.0 for key in ("window:cap|k|r", "cap:k", "conversation:k")]
    assert capped_s == pytest.approx([901.0, 901.0, 901.0], rel=0.02)
    apply(engine, EndConversation("k"), EndConversation("l"))
    assert not [key for key in client.keys(f"{base}:*") if b":cap" in key or b":conversation" in key]


@needs_server
def test_databases_and_names_are_apart(make, server):
    engine = make(server.url, "one")
    fill(engine)
    for url, names in [
        (server.url, {"name": "two"}),
        (server.url, {"name": "one", "prefix": "other"}),
        (server.url.replace("/0", "/1"), {"name": "one"}),
    ]:
        assert make(url, **names).exchange([], READ_ALL).accounts == {}


# details of the contract ---------------------------------------------------------------------------------------------


@needs_server
def test_money_can_be_given_back_to_an_overdrawn_window(make, server):
    engine = opened(At(make, server.url), window("w"))
    apply(engine, reserve("a"), charge("a", 3.0))
    assert apply(engine, Spend("t", ("w",), -0.5), Spend("u", ("w",), 0.0)) == ["ok", "ok"]
    assert counters(engine)["spent_usd"] == 2.5


@needs_server
def test_a_call_on_a_lease_is_unknown_where_its_window_was_lost(make, server):
    engine = opened(At(make, server.url), window("w"))
    assert apply(engine, reserve("a", "w", "lost", lease="l"), Find("a")) == ["unknown", None]


@needs_server
def test_windows_that_follow_one_another_in_a_ring_do_not_hang(make, server):
    engine = opened(At(make, server.url), rolling("w"))
    apply(engine, renew("w", rolling("v")), renew("v", rolling("w")), renew("w", rolling("w")), reserve("a"))
    assert apply(engine, charge("a", 0.5)) == ["in flight"]
    assert state(engine).id == "w"


@needs_server
def test_no_rounding_of_leases_is_left_behind(make, server):
    engine = opened(At(make, server.url), window("w"))
    apply(engine, lease("l", 0.1), lease("m", 0.2), lease("n", 0.3))
    apply(engine, *[lease(name, 0.0, ttl_s=0.0) for name in "lmn"])
    assert state(engine).counters["leased_usd"] == 0.0


@needs_server
def test_an_old_window_that_is_used_again_does_not_expire(make, server, client):
    name = uuid.uuid4().hex
    engine = opened(At(make, server.url, name=name), window("w"))
    key = f"{{wiserouter:{name}}}:window:w"
    apply(engine, Open("s", 1, "", (window("v"),)))
    assert client.pttl(key) > 0
    apply(engine, Open("s", 2, "", (window("w"),)))
    assert client.pttl(key) == -1


@needs_server
def test_a_window_whose_time_is_still_to_come_does_not_expire(make, server, client):
    name = uuid.uuid4().hex
    engine = opened(At(make, server.url, name=name), window("w"))
    apply(engine, renew("w", window("earlier"), skipped=-1))
    assert client.pttl(f"{{wiserouter:{name}}}:window:w") == -1
    apply(engine, renew("earlier", window("w")))
    apply(engine, renew("w", window("later")))
    assert client.pttl(f"{{wiserouter:{name}}}:window:w") > 0


# several processes ---------------------------------------------------------------------------------------------------


RACE = """
import sys
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.events import EndConversation, Note, Reserve
from wiserouter.stores.engines.redis import RedisEngine

url, name, worker = sys.argv[1:]
engine = RedisEngine(url, name=name)
engine.exchange([Note(worker, "ready")])
while not engine.exchange([], ReadRequest(notes=["go"])).notes:
    pass
events = [[Reserve(f"{worker}-{i}", ("w",), 0.01, 0.01, False, "")] for i in range(80)]
print([engine.exchange(one).results for one in events].count(["ok"]))
engine.close()
"""


@needs_server
def test_processes_race_for_a_hard_window(make, server):
    """160 ask for 0.01 USD each, 100 fit."""
    name, workers = uuid.uuid4().hex, [str(i) for i in range(2)]
    engine = opened(At(make, server.url, name=name))
    command = [sys.executable, "-c", RACE, server.url, name]
    processes = [subprocess.Popen([*command, worker], stdout=subprocess.PIPE) for worker in workers]
    wait_until(
        lambda: len(engine.exchange([], ReadRequest(notes=workers)).notes) == 2, "a worker does not start", 120.0
    )
    apply(engine, Note("go", ""))
    granted = [int(process.communicate(timeout=60.0)[0]) for process in processes]
    assert sum(granted) == 100
    assert state(engine).counters["reserved_usd"] == pytest.approx(1.0, rel=0, abs=1e-9)


@needs_server
@pytest.mark.parametrize("kind", ["server", "cluster"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_may_go_on_with_its_parents_engine(make, server, nodes, kind):
    url = server.url if kind == "server" else f"redis+cluster://127.0.0.1:{nodes[0].port}"
    engine = opened(At(make, url), window("w", 1000.0))
    child = os.fork()
    done = 0
    try:
        for i in range(200):
            done += apply(engine, reserve(f"{child}-{i}", held_usd=0.0)) == ["ok"]
    finally:
        if child == 0:
            os._exit(0 if done == 200 else 1)
    try:
        assert os.waitpid(child, 0)[1] == 0
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    assert counters(engine)["decided"] == 400


@needs_server
def test_a_closed_engine_opens_again(make, server):
    engine = opened(At(make, server.url))
    engine.close()
    engine.close()
    assert counters(engine) == {}
