"""The share of a hard budget that is spent with 1, 10 and 100 calls of a `litellm.Router` at a time.

There are more requests than the budget pays for, and a refused one does not come back. The provider takes some
milliseconds, and bills the prompt as it is bounded and a part of the limit of the answer. `-s` prints the shares, and
how long requests waited for their decision.
"""

import asyncio
import json
import time

import httpx
import numpy as np
import pytest
import respx

from support.groups import HI, llms
from support.providers import INPUT_USD, OUTPUT_USD, URL, chat, deployment
from wiserouter import Budget
from wiserouter_litellm import BudgetRefused, attach
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.requests.request import request_of

LATENCY_S = 0.005
MAX_TOKENS = 150
PROMPT_TOKENS = request_of(HI, {}).input_bound_tokens


class Provider:
    """Bills every call that it receives: the bound of the prompt, and one in `ratio` tokens of the limit."""

    def __init__(self, ratio):
        self.output_tokens, self.ledger_usd = MAX_TOKENS // ratio, 0.0
        self.cost_usd = self._usd(self.output_tokens)
        self.worst_usd = self._usd(MAX_TOKENS)

    async def answer(self, request):
        body = json.loads(request.content)
        assert body["max_tokens"] == MAX_TOKENS
        await asyncio.sleep(LATENCY_S)
        self.ledger_usd += self.cost_usd
        return httpx.Response(200, json=chat("small", tokens=(PROMPT_TOKENS, self.output_tokens)))

    @staticmethod
    def _usd(output_tokens):
        return PROMPT_TOKENS * INPUT_USD["small"] + output_tokens * OUTPUT_USD["small"]


@pytest.fixture
def waits_s(monkeypatch):
    """Return the list to which each decision adds the time that its request waited for it."""
    times_s, aselect = [], Group.aselect

    async def timed(group, routing):
        started_s = time.perf_counter()
        try:
            return await aselect(group, routing)
        finally:
            times_s.append(time.perf_counter() - started_s)

    monkeypatch.setattr(Group, "aselect", timed)
    return times_s


async def ask(router, n_requests, concurrency):
    """Make some requests, so many at a time; return the number that was refused."""
    requests, refused = iter(range(n_requests)), 0

    async def caller():
        nonlocal refused
        for _ in requests:
            try:
                await router.acompletion(model="wise", messages=HI, max_tokens=MAX_TOKENS)
            except BudgetRefused:
                refused += 1

    await asyncio.gather(*[caller() for _ in range(concurrency)])
    return refused


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("concurrency", "calls", "ratio"),
    [
        *[(1, 5, 1), (10, 5, 1), (100, 5, 1)],
        *[slow(1, 500, 1), slow(10, 500, 1), slow(100, 500, 1)],
        *[(100, 60, 15), slow(1, 500, 15), slow(10, 500, 15), slow(100, 500, 15)],
    ],
)
async def test_a_hard_budget_is_spent_whatever_is_in_flight(settled, waits_s, concurrency, calls, ratio):
    provider = Provider(ratio)
    amount_usd, n_requests = calls * provider.cost_usd, max(concurrency, calls + calls // 5)
    with respx.mock(assert_all_called=False) as mock:
        mock.route(url__startswith=URL).mock(side_effect=provider.answer)
        budget = Budget(amount_usd, 100_000, limit="hard")
        callback = attach(llms(deployment("small")), "wise", budget=budget, max_wait_s=30.0)
        refused = await ask(callback._router, n_requests, concurrency)
    router = callback.groups["wise"].router
    await settled(lambda: router.status().in_flight == 0)
    p50, p99 = np.percentile(waits_s, [50, 99]) * 1e3
    share = provider.ledger_usd / amount_usd
    times = provider.worst_usd / provider.cost_usd
    load = f"LiteLLM, {concurrency} at a time, {calls} calls, worst case {times:.1f} x cost"
    print(f"\n{load:<64} {share:7.4f} of the budget, waiting p50 {p50:6.1f} ms, p99 {p99:6.1f} ms", end="")
    assert router.status().spent_usd == pytest.approx(provider.ledger_usd, rel=1e-9)
    assert provider.ledger_usd <= amount_usd * (1 + 1e-12)
    assert router.status().charged == n_requests - refused
    if ratio == 1:
        assert provider.ledger_usd == pytest.approx(amount_usd, rel=1e-9)
    else:
        assert provider.ledger_usd > amount_usd - provider.worst_usd
