"""The size of kept conversations: a million in memory, their expiry, and the bytes of one in SQLite and Redis."""

import gc
import os
import re
import time
from pathlib import Path

import pytest

from support.redis_servers import MISSING, redis_server
from support.redis_servers import serving as redis_serving
from wiserouter import Budget, MemoryStore, open_store
from wiserouter.conversations.conversation import Conversation
from wiserouter.testing import FakeClock

MANY = int(os.environ.get("WISEROUTER_CONVERSATIONS", "1000000"))
EXCESS, TTL_S = MANY // 10, 3_600.0


def state(n, unit, scope="s"):
    """Return the state of a conversation in its middle, with a key as long as a real one."""
    chat = Conversation(f"{n:032x}", scope, unit, model="claude-sonnet", first_model="claude-sonnet", context=3,
                        decision_id=f"{n:032x}", shadow_price=12.5, expected_reward=0.75, calls=7, spent_usd=0.125,
                        estimate_usd=0.5, rest_usd=0.25, prompt_tokens=20_000, started_s=1e9, used_s=1e9)  # fmt: skip
    return chat.warmed("claude-sonnet", 20_000, at_s=1e9)


def resident_bytes():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4_096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("unit", ["conversation", "run"])
def test_a_million_conversations_in_memory(unit):
    clock = FakeClock(1_000.0)
    store = MemoryStore(clock, max_conversations=MANY)
    store.open("s", Budget(1e9, 1_000))
    before, began_s = resident_bytes(), time.perf_counter()
    for n in range(MANY):
        assert store.keep_conversation(state(n, unit), TTL_S)
    took_s, kept = time.perf_counter() - began_s, resident_bytes() - before
    for n in range(MANY, MANY + EXCESS):  # beyond the bound, the oldest are dropped
        assert store.keep_conversation(state(n, unit), TTL_S)
    bounded = resident_bytes() - before
    assert len(store._conversations) == MANY
    assert store.snapshot("s").committed_usd == pytest.approx(0.25 * MANY if unit == "run" else 0.0)
    clock.advance(2.0 * TTL_S)
    steps, slowest_s = 0, 0.0
    while len(store._conversations) > 1:
        began_s = time.perf_counter()
        assert store.keep_conversation(state(2 * MANY + steps, unit), 0.0)
        slowest_s, steps = max(slowest_s, time.perf_counter() - began_s), steps + 1
        clock.advance(1.0)
    store.end_conversation(state(2 * MANY + steps - 1, unit).key)
    expired = resident_bytes() - before
    assert (len(store._conversations), store.snapshot("s").committed_usd) == (0, 0.0)
    print(f"\n{unit}: {kept / MANY:,.0f} bytes each, kept in {took_s / MANY * 1e6:.1f} us;", end=" ")
    print(f"{MANY:,} take {kept / 2**20:,.0f} MiB, {bounded / 2**20:,.0f} after {EXCESS:,} more,", end=" ")
    print(f"{expired / 2**20:,.0f} once expired, in {steps:,} steps of at most {slowest_s * 1e3:.1f} ms", end="")


@pytest.mark.skipif(redis_server() is None, reason=MISSING)
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@pytest.mark.parametrize("unit", ["conversation", "run"])
def test_size_of_a_conversation(kind, unit, tmp_path):
    n = 2_000
    with redis_serving() as server:
        store = open_store(f"sqlite:///{tmp_path / 'b.db'}" if kind == "sqlite" else server.url)

        def size():
            if kind == "redis":
                return int(re.search(rb"used_memory:(\d+)", server.ask("INFO", "memory"))[1])
            return (tmp_path / "b.db").stat().st_size

        store.open("s", Budget(1e9, 1_000))
        for one in range(n):
            assert store.keep_conversation(state(one, unit), TTL_S)
        before, began_s = size(), time.perf_counter()
        for one in range(n, 2 * n):
            assert store.keep_conversation(state(one, unit), TTL_S)
        took_us, kept = (time.perf_counter() - began_s) / n * 1e6, size() - before
        for one in range(2 * n):
            store.end_conversation(state(one, unit).key)
        left = f", {size() - before + kept:,} bytes of all left after their end" if kind == "redis" else ""
        print(f"\n{kind}, {unit}: {kept / n:,.0f} bytes each, kept in {took_us:.0f} us{left}", end="")
        store.close()
