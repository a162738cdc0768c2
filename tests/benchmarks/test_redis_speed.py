"""The time of an exchange with Redis on one machine, absolute and relative to a PING in the same run."""

import re
import time

import numpy as np
import pytest

from support.redis_servers import MISSING, redis_server, serving
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.events import Open, Reserve, Settle, WindowOpening
from wiserouter.stores.engines.redis import RedisEngine

redis = pytest.importorskip("redis")
pytestmark = pytest.mark.skipif(redis_server() is None, reason=MISSING)
WINDOWS = ("day", "month")
RECORD = "x" * 400


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def engine(server):
    engine = RedisEngine(server.url)
    engine.exchange([Open("s", 0, "t" * 200, tuple([WindowOpening(name, 1e6, True, True) for name in WINDOWS]))])
    yield engine
    engine.close()


def reserve(name):
    return Reserve(name, WINDOWS, 0.01, 0.005, False, RECORD)


def charge(name):
    return Settle(name, "charged", name, 0.004)


def times_us(call, n):
    """Return the time of each of `n` calls with their number, in microseconds."""
    times = []
    for i in range(n):
        start = time.perf_counter_ns()
        call(i)
        times.append((time.perf_counter_ns() - start) / 1e3)
    return np.array(times)


def server_us(server, run):
    """Return the processor time that the server spends on `run`, in microseconds."""

    def spent_s():
        said = server.ask("INFO", "cpu").decode()
        return sum(float(re.search(rf"used_cpu_{kind}:([0-9.]+)", said)[1]) for kind in ("user", "sys"))

    before_s = spent_s()
    run()
    return (spent_s() - before_s) * 1e6


def test_one_reservation(server, engine):
    with redis.Redis(port=server.port) as client:
        ping_us = min(float(np.median(times_us(lambda _: client.ping(), 2_000))) for _ in range(3))
    rounds = [
        times_us(lambda i, r=r: engine.exchange([reserve(f"{r}-{i}")], ReadRequest(["s"])), 2_000) for r in range(3)
    ]
    us = min(rounds, key=np.median)
    inside_us = server_us(
        server, lambda: [engine.exchange([reserve(f"x{i}")], ReadRequest(["s"])) for i in range(2_000)]
    )
    print(f"\nReserve and read: p50 {np.median(us):.0f} us, p99 {np.percentile(us, 99):.0f} us;", end=" ")
    print(f"{np.median(us) / ping_us:.1f} x a PING of {ping_us:.0f} us; server {inside_us / 2_000:.0f} us", end=" ")


@pytest.mark.parametrize("size", [100, 500])
def test_batches(server, engine, size):
    """Half of the events reserve, half charge."""

    def run(i):
        names = [f"{size}-{i}-{j}" for j in range(size // 2)]
        engine.exchange([*map(reserve, names), *map(charge, names)], ReadRequest(["s"]))

    us = times_us(run, 60)
    inside_us = server_us(server, lambda: times_us(lambda i: run(f"s{i}"), 40)) / 40
    print(
        f"\nbatches of {size}: p50 {np.median(us) / 1e3:.2f} ms, {size / np.median(us) * 1e6:,.0f} events/s;", end=" "
    )
    print(f"server {inside_us / 1e3:.2f} ms, {inside_us / size:.1f} us an event", end=" ")


def test_memory_of_a_decision(server, engine):
    def used():
        return int(re.search(rb"used_memory:(\d+)", server.ask("INFO", "memory"))[1])

    before = used()
    engine.exchange([reserve(str(i)) for i in range(2_000)])
    held = used()
    engine.exchange([charge(str(i)) for i in range(2_000)])
    print(f"\na decision with a record of {len(RECORD)} bytes: {(held - before) / 2_000:.0f} bytes", end=" ")
    print(f"in flight, {(used() - before) / 2_000:.0f} charged")
