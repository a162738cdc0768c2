"""The Redis engine on failing, guarded, remote and clustered servers."""

import re
import ssl
import threading
import time
import uuid
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.engines import READ_ALL, apply, charge, counters, fill, release, reserve
from support.redis_servers import MISSING, RedisServer, cluster, line_to, redis_server, serving, wait_until
from wiserouter.errors import StoreDamaged, StoreUnavailable
from wiserouter.stores.engines.events import Find, Note

pytest.importorskip("redis")

pytestmark = pytest.mark.skipif(redis_server() is None, reason=MISSING)


# failures ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_no_server_answers(make, scheme):
    with serving() as server:
        port = server.port
    engine = make(f"{scheme}://me:secret@127.0.0.1:{port}")
    with pytest.raises(StoreUnavailable, match="cannot be used") as caught:
        engine.exchange([])
    assert caught.value.store == f"{scheme}://me@127.0.0.1:{port}"
    assert "secret" not in str(caught.value)


def test_passwords(make):
    with serving("--requirepass", "pa:s/s") as server:
        place = f"127.0.0.1:{server.port}"
        assert make(f"redis://:pa%3As%2Fs@{place}").exchange([]).results == []
        for login in (":wrong@", "me:wrong@", ""):
            with pytest.raises(StoreUnavailable, match="does not accept the user or password") as caught:
                make(f"redis://{login}{place}").exchange([])
            assert "wrong" not in str(caught.value).replace("WRONGPASS", "")


def test_another_kind_of_server(make):
    """A single server refuses a client for clusters."""
    with serving() as server, pytest.raises(StoreUnavailable):
        make(server.url.replace("redis://", "redis+cluster://")).exchange([])


@pytest.mark.parametrize(
    ("memory", "policy", "warns"),
    [
        ("100mb", "allkeys-lru", True),
        ("100mb", "volatile-ttl", True),
        ("100mb", "noeviction", False),
        ("0", "allkeys-lru", False),
    ],
)
def test_a_server_that_may_evict_keys_is_named_once(make, caplog, memory, policy, warns):
    with serving("--maxmemory", memory, "--maxmemory-policy", policy) as server:
        engine = make(server.url)
        for _ in range(3):
            engine.exchange([])
    said = [one.message for one in caplog.records]
    remedy = f"set maxmemory-policy noeviction, not {policy}"
    assert [remedy in one for one in said] == [True] * warns


@pytest.mark.parametrize(
    ("appendonly", "save", "warns"), [("no", "3600 1", True), ("yes", "3600 1", False), ("no", "", False)]
)
def test_a_server_that_restarts_from_a_snapshot_is_named_once(make, caplog, appendonly, save, warns):
    with serving("--appendonly", appendonly) as server:
        server.ask("CONFIG", "SET", "save", save)
        engine = make(server.url)
        for _ in range(3):
            engine.exchange([])
    assert ["set appendonly yes" in one.message for one in caplog.records] == [True] * warns


def test_a_node_of_a_cluster_that_has_the_slot_is_named_once(make, nodes, caplog):
    for node in nodes:
        engine = make(node.url, "slots")
        for _ in range(3):
            with suppress(StoreUnavailable):
                engine.exchange([])
    make(f"redis+cluster://127.0.0.1:{nodes[0].port}", "slots").exchange([])
    assert ["is a node of a cluster" in one.message for one in caplog.records] == [True]
    assert "begin the URL with redis+cluster://" in caplog.text


def test_a_user_without_the_command_that_names_the_policy_is_served(make, caplog):
    with serving("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as server:
        server.ask("ACL", "SETUSER", "me", "on", ">secret", "~*", "+@all", "-info")
        assert make(f"redis://me:secret@127.0.0.1:{server.port}").exchange([]).results == []
    assert caplog.text == ""


@pytest.mark.parametrize("memory", [{"maxmemory": "", "maxmemory_policy": "allkeys-lru"}, {"maxmemory": "4gb"}, "OK"])
def test_an_exchange_holds_whatever_a_server_says_of_its_memory(make, monkeypatch, memory):
    monkeypatch.setattr("redis.Redis.info", lambda *args: memory)
    with serving() as server:
        assert len(make(server.url).exchange([]).results) == 0


def test_a_replica_is_named_as_one_where_the_answer_lacks_its_first_word(make, monkeypatch):
    """As redis-py has the answer of Redis 7 and later."""

    redis = pytest.importorskip("redis")

    def refuse(*args):
        raise redis.exceptions.ReadOnlyError("You can't write against a read only replica. script: 9f")

    monkeypatch.setattr("redis.Redis.evalsha", refuse)
    with serving() as server, pytest.raises(StoreUnavailable, match="it is a replica: name the server that takes"):
        make(server.url).exchange([])


@pytest.mark.parametrize(
    ("kind", "said", "remedy"),
    [
        ("ResponseError", "MISCONF Errors writing to the AOF file: No space left on device", "make room there"),
        ("ConnectionError", "max number of clients reached", "raise its maxclients"),
        ("ResponseError", "unknown command `EVALSHA`, with args beginning with: ", "as a Sentinel does not: name the"),
        ("ConnectionError", "Connection closed by server.", "see its log, and its protected-mode"),
        ("ConnectionError", "Too many connections", "raise max_connections in the URL, or leave it out"),
        ("ResponseError", "BUSY Redis is busy running a script.", "the server answers, and its log may say more"),
    ],
)
def test_a_server_that_answers_is_not_looked_for(make, monkeypatch, kind, said, remedy):
    redis = pytest.importorskip("redis")

    def refuse(*args):
        raise getattr(redis.exceptions, kind)(said)

    monkeypatch.setattr("redis.Redis.evalsha", refuse)
    with pytest.raises(StoreUnavailable, match=remedy):
        make("redis://127.0.0.1:1").exchange([])


SENT = "evalsha del get hget hgetall hset persist pexpire sadd set smembers time zadd zcard zrange zrangebyscore zrem"


@pytest.mark.parametrize("command", SENT.split())
def test_a_user_without_a_command_of_scripts_is_told_so_at_once(make, server, command):
    make(server.url).exchange([])  # the server has the script
    rights = ("reset", "on", ">secret", "~*", "+@all", f"-{command}")
    server.ask("ACL", "SETUSER", "me", *rights)
    engine = make(f"redis://me:secret@127.0.0.1:{server.port}", "guarded")
    with pytest.raises(StoreUnavailable, match="permit its user the commands of scripts") as refused:
        engine.exchange([Note("name", "text")])
    assert refused.value.lasts
    assert server.ask("KEYS", "{wiserouter:guarded}*") == b"*0\r\n"


def test_a_user_needs_no_other_command(make):
    allowed = [f"+{command}" for command in ("eval", "info", "select", *SENT.split())]
    assert all(right in (Path(__file__).parents[3] / "docs" / "deploy.md").read_text() for right in allowed)
    with serving() as server:
        server.ask("ACL", "SETUSER", "me", "on", ">secret", "~{wiserouter:*", *allowed)
        fill(make(f"redis://me:secret@127.0.0.1:{server.port}"))


def test_a_user_with_the_rights_of_the_docs_is_served(make):
    with serving() as server:
        rights = ("~{wiserouter:*", "+@all", "-@dangerous", "+info")
        assert server.ask("ACL", "SETUSER", "me", "on", ">secret", *rights) == b"+OK\r\n"
        fill(make(f"redis://me:secret@127.0.0.1:{server.port}"))
        assert all(right in (Path(__file__).parents[3] / "docs" / "deploy.md").read_text() for right in rights)


def test_a_user_of_a_cluster_needs_one_more_right(make):
    rights, more = ("~{wiserouter:*", "+@all", "-@dangerous", "+info"), "+cluster|slots"
    with cluster() as nodes:
        for node in nodes:
            node.ask("ACL", "SETUSER", "me", "on", ">secret", *rights)
        url = f"redis+cluster://me:secret@127.0.0.1:{nodes[0].port}"
        with pytest.raises(StoreUnavailable, match=r"'cluster' command .* in a cluster CLUSTER SLOTS") as refused:
            make(url).exchange([])
        assert refused.value.lasts
        for node in nodes:
            node.ask("ACL", "SETUSER", "me", more)
        assert fill(make(url)).results[0] == 1
    assert more in (Path(__file__).parents[3] / "docs" / "deploy.md").read_text()


def test_a_password_that_a_cluster_does_not_accept_is_named(make, nodes):
    with pytest.raises(StoreUnavailable, match="does not accept the user or password") as refused:
        make(f"redis+cluster://me:secret@127.0.0.1:{nodes[0].port}").exchange([])
    assert refused.value.lasts
    assert "secret" not in str(refused.value)


def test_a_password_in_the_place_of_the_user_is_not_shown(make, server):
    with pytest.raises(StoreUnavailable, match=r"does not accept .* or redis://:password@host") as refused:
        make(f"redis://secret@127.0.0.1:{server.port}").exchange([])
    assert "secret" not in str(refused.value)


def test_a_single_server_is_no_cluster(make, server):
    with pytest.raises(StoreUnavailable, match="is a single server: begin the URL with redis://") as refused:
        make(f"redis+cluster://127.0.0.1:{server.port}").exchange([])
    assert refused.value.lasts


def test_a_node_of_a_cluster_is_named_as_one(make, nodes):
    engines = [make(nodes[0].url, f"router {i}") for i in range(20)]
    with pytest.raises(StoreUnavailable, match=r"begin the URL with redis\+cluster://"):
        for engine in engines:  # another node has the slots of most
            engine.exchange([])


def test_a_window_that_was_evicted_is_named_with_its_remedy(make, server):
    import redis

    engine = make(server.url)
    fill(engine)
    with redis.Redis.from_url(server.url) as client:
        base = engine._base
        client.delete(f"{base}:window:v")
        with pytest.raises(StoreDamaged, match="deleted or evicted: set maxmemory-policy noeviction, delete all keys"):
            engine.exchange([], READ_ALL)


def test_a_killed_server_comes_back_with_its_state(make):
    with serving("--appendonly", "yes", "--appendfsync", "always") as server:
        engine = make(server.url)
        before = fill(engine)
        server.kill()
        with pytest.raises(StoreUnavailable):
            engine.exchange([reserve("c", "v")])
        server.start()  # without its scripts and connections
        assert apply(engine, reserve("c", "v"), reserve("c", "v")) == ["ok", "ok"]
        assert counters(engine)["in_flight"] == 1
        assert fill(engine).sums == before.sums


def test_a_restart_between_two_exchanges_costs_none(make):
    with serving("--appendonly", "yes") as server:
        engine = make(server.url)
        fill(engine)
        server.stop()
        server.start()
        assert apply(engine, reserve("c", "v")) == ["ok"]


def test_a_broken_connection_costs_no_exchange(make, server):
    with line_to(server.port) as line:
        engine = make(f"redis://127.0.0.1:{line.port}")
        fill(engine)
        line.break_once()
        assert apply(engine, reserve("c", "v")) == ["ok"]
        line.cut()
        with pytest.raises(StoreUnavailable):
            engine.exchange([])
        line.mend()
        assert counters(engine)["in_flight"] == 1


def test_an_answer_that_does_not_come_is_not_taken_for_the_next_one(make, server):
    with line_to(server.port) as line:
        engine = make(f"redis://127.0.0.1:{line.port}", timeout_s=0.3)
        fill(engine)
        line.pause()
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match=re.compile("timeout|timed out", re.IGNORECASE)):
            engine.exchange([reserve("c", "v"), charge("c", 0.25)])
        assert time.monotonic() - started < 30.0
        line.resume()
        assert apply(engine, Find("none"), reserve("c", "v"), charge("c", 0.25)) == [None, "ok", "in flight"]
        assert counters(engine)["spent_usd"] == 0.25


def test_a_slow_line(make, server):
    with line_to(server.port) as line:
        engine = make(f"redis://127.0.0.1:{line.port}")
        fill(engine)
        line.delay_s = 0.2
        assert apply(engine, reserve("c", "v")) == ["ok"]


def test_a_replica_and_a_full_server_cannot_write(make):
    with serving() as server:
        engine = make(server.url)
        before = fill(engine)
        for break_it, mend_it, says in [
            (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "READONLY You .*; it is a replica"),
            (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "; its memory is full"),
            (
                ("CONFIG", "SET", "min-replicas-to-write", "1"),
                ("CONFIG", "SET", "min-replicas-to-write", "0"),
                "; fewer replicas",
            ),
        ]:
            assert server.ask(*break_it).startswith(b"+OK")
            with pytest.raises(StoreUnavailable, match=says) as refused:
                engine.exchange([reserve("c", "v"), charge("c", 1.0), release("b")])
            assert "user_script" not in str(refused.value).partition(" script: ")[0]
            assert server.ask(*mend_it).startswith(b"+OK")
            assert engine.exchange([], READ_ALL).accounts == before.accounts
        assert apply(engine, Find("b"))[0].state == "in flight"


def test_connections_are_replaced_where_another_server_became_the_master(make):
    with serving() as server:
        engine = make(server.url)
        fill(engine)
        engine.exchange([])
        assert b"eval" in server.ask("CLIENT", "LIST")
        server.ask("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable):
            engine.exchange([reserve("c", "v")])
        wait_until(lambda: b"eval" not in server.ask("CLIENT", "LIST"), "the connection stays", 10.0)


def test_a_forgotten_script_is_sent_again(make, server):
    engine = make(server.url)
    fill(engine)
    server.ask("SCRIPT", "FLUSH")
    assert apply(engine, reserve("c", "v")) == ["ok"]


# clusters, TLS, sockets ----------------------------------------------------------------------------------------------


def test_a_cluster_keeps_a_router_in_one_slot(make, nodes):
    import redis

    names = [f"router {i}" for i in range(6)]
    for name in names:
        fill(make(f"redis+cluster://127.0.0.1:{nodes[0].port}", name))
    slots = set()
    for name in names:
        keys = []
        for node in nodes:
            with redis.Redis(port=node.port) as client:
                found = client.keys(f"{{wiserouter:{name}}}*")
                keys += found
                slots |= {(name, client.cluster("KEYSLOT", key.decode())) for key in found}
        assert len(keys) == 20
    assert len(slots) == len(names)


def test_a_router_whose_slot_is_moved_waits_for_all_of_its_keys(make):
    import redis

    with cluster() as nodes, ExitStack() as stack:
        engine = make(f"redis+cluster://127.0.0.1:{nodes[0].port}")
        before = fill(engine)
        clients = [stack.enter_context(redis.Redis(port=node.port)) for node in nodes]
        slot = clients[0].cluster("KEYSLOT", engine._base)
        clients.sort(key=lambda client: client.cluster("COUNTKEYSINSLOT", slot))
        ids = [client.cluster("MYID").decode() for client in clients]
        clients[0].cluster("SETSLOT", slot, "IMPORTING", ids[-1])
        clients[-1].cluster("SETSLOT", slot, "MIGRATING", ids[0])
        to = ("127.0.0.1", clients[0].get_connection_kwargs()["port"])
        for key in sorted(clients[-1].cluster("GETKEYSINSLOT", slot, 1000), key=len):  # that of the schema is the first
            with pytest.raises(StoreUnavailable, match="is moving its keys to another node: wait"):
                engine.exchange([reserve("c", "v")], READ_ALL)
            clients[-1].execute_command("MIGRATE", *to, key, 0, 5000)
        for client in clients:
            client.cluster("SETSLOT", slot, "NODE", ids[0])
        assert engine.exchange([], READ_ALL).accounts == before.accounts


def test_a_cluster_that_lacks_a_node(make):
    with cluster() as nodes:
        engines = [make(f"redis+cluster://127.0.0.1:{nodes[0].port}", f"router {i}") for i in range(6)]
        for engine in engines:
            fill(engine)
        nodes[2].kill()
        failed = 0
        for engine in engines:
            try:
                engine.exchange([])
            except StoreUnavailable:
                failed += 1
        assert failed >= 1


def test_a_socket_of_the_file_system(make, tmp_path):
    path = Path("/tmp") / f"wise-{uuid.uuid4().hex[:8]}.sock"  # the names of sockets are short
    with serving("--unixsocket", str(path)):
        assert fill(make(f"unix://{path}?db=0")).results[0] == 1
        assert fill(make(f"unix://{path}?db=3")).results[0] == 1
    path.unlink(missing_ok=True)


def test_tls(make, server, tmp_path):
    cert = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert)
    with line_to(server.port, context) as line:
        url = f"rediss://127.0.0.1:{line.port}/0"
        assert fill(make(f"{url}?ssl_ca_certs={cert}")).results[0] == 1
        with pytest.raises(StoreUnavailable, match=re.compile("certificate", re.IGNORECASE)):
            make(url).exchange([])
        with pytest.raises(StoreUnavailable):
            make(url.replace("rediss", "redis"), timeout_s=0.5).exchange([])


def certificate(folder):
    """Write a certificate for 127.0.0.1, signed by itself, with its key."""
    x509 = pytest.importorskip("cryptography.x509")
    from ipaddress import ip_address

    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = folder / "tls.pem"
    path.write_bytes(key.private_bytes(*form) + signed.public_bytes(serialization.Encoding.PEM))
    return path


# the line itself -----------------------------------------------------------------------------------------------------


def test_a_paused_line_lets_through_later_what_was_sent(server):
    client = RedisServer(Path())
    with line_to(server.port) as line:
        client.port = line.port
        assert client.ask("PING") == b"+PONG\r\n"
        line.pause()
        answers = []
        asker = threading.Thread(target=lambda: answers.append(client.ask("PING")))
        asker.start()
        assert answers == []
        line.resume()
        asker.join(10.0)
        assert answers == [b"+PONG\r\n"]
