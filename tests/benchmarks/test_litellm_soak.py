"""Ten thousand requests through one proxy process, some abandoned and some failing: `uv run poe soak`.

The same requests go through a proxy without our callback as well, whose memory is LiteLLM's own.
"""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from support.groups import fitted
from support.proxies import config_of, running_proxy, write
from support.stub import Stub, serving

pytestmark = pytest.mark.filterwarnings("ignore")

REQUESTS, AT_ONCE = int(os.environ.get("SOAK_REQUESTS", "10000")), 8
WARM_UP = REQUESTS // 5
TTL_S = 8.0


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Soak:
    def __init__(self, base: str, key: str) -> None:
        self.url = f"{base}/v1/chat/completions"
        self.headers = {"Authorization": f"Bearer {key}"}
        self.kinds: Counter[str] = Counter()
        self.rng = random.Random(0)

    async def one(self, client: httpx.AsyncClient, i: int) -> None:
        kind = self.rng.choices(["plain", "stream", "abandon", "fail"], [70, 20, 5, 5])[0]
        words = {"plain": "hello", "stream": "hello", "abandon": "hang", "fail": "fail"}[kind]
        body = {"model": "wise", "messages": [{"role": "user", "content": f"{words} number {i}"}]}
        if kind in {"plain", "fail"}:
            response = await client.post(self.url, json=body, headers=self.headers)
            self.kinds[f"{kind} {response.status_code}"] += 1
            return
        async with client.stream("POST", self.url, json={**body, "stream": True}, headers=self.headers) as response:
            async for line in response.aiter_lines():
                if kind == "abandon" and line.startswith("data:"):
                    break
        self.kinds[kind] += 1

    async def run(self, first: int, last: int) -> None:
        gate = asyncio.Semaphore(AT_ONCE)
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=AT_ONCE)) as client:

            async def gated(i: int) -> None:
                async with gate:
                    await self.one(client, i)

            await asyncio.gather(*(gated(i) for i in range(first, last)))


async def memory_mb(base: str, key: str, pid: int) -> tuple[Soak, float, float, float]:
    """Return the soak, its time in s, the memory after the warm-up, and what it has grown by in the end."""
    soak = Soak(base, key)
    start = time.monotonic()
    await soak.run(0, WARM_UP)
    warm_mb = resident_mb(pid)
    await soak.run(WARM_UP, REQUESTS)
    seconds = time.monotonic() - start
    await asyncio.sleep(TTL_S + 1)
    return soak, seconds, warm_mb, resident_mb(pid) - warm_mb


async def test_soak(tmp_path):
    fitted().save(tmp_path / "pair.wise")
    wise = {"budget_usd": 1_000.0, "requests": 2 * REQUESTS, "artifact": "./pair.wise", "reservation_ttl_s": TTL_S}
    stub = Stub()
    with serving(stub) as url:
        path = write(config_of({"wise": wise}, url=url, num_retries=0), tmp_path)
        with running_proxy(path, tmp_path / "proxy.log") as (base, key, pid):
            soak, seconds, warm_mb, grown_mb = await memory_mb(base, key, pid)
            status = httpx.get(f"{base}/wiserouter/status", headers={"Authorization": f"Bearer {key}"}).json()
    wise = status["groups"]["wise"]
    print(
        f"\nsoak: {REQUESTS} requests in {seconds:.0f} s ({dict(soak.kinds)}); memory {warm_mb:.0f} MB after {WARM_UP}"
        f", {grown_mb:+.1f} MB since (target <= 30); charged {wise['charged']}, presumed {wise['presumed']}, in flight "
        f"{wise['in_flight']}; spent {wise['spent_usd']:.9f} USD, provider's ledger {stub.billed_usd:.9f}; "
        f"faults {wise['faults']}"
    )
    assert (wise["in_flight"], wise["reserved_usd"]) == (0, 0.0)
    assert wise["spent_usd"] - wise["presumed_usd"] == pytest.approx(stub.billed_usd, abs=1e-9)
    assert grown_mb <= 30


async def test_the_memory_of_a_proxy_without_our_callback(tmp_path):
    with serving(Stub()) as url:
        config = config_of({"wise": {}}, url=url, num_retries=0) | {"litellm_settings": {}, "callback_settings": {}}
        with running_proxy(write(config, tmp_path), tmp_path / "proxy.log") as (base, key, pid):
            _, seconds, warm_mb, grown_mb = await memory_mb(base, key, pid)
    print(
        f"\nplain: {REQUESTS} requests in {seconds:.0f} s; memory {warm_mb:.0f} MB after {WARM_UP}, {grown_mb:+.1f} MB "
        f"since"
    )
