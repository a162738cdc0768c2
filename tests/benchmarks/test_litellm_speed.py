"""What routing adds to a LiteLLM call, and who keeps a budget under concurrency: `uv run poe bench`.

Both sides of each comparison run interleaved in one process, so that a noisy machine slows both.
"""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import asyncio
import logging
import time

import litellm
import numpy as np
import pytest

from support.groups import fitted
from wiserouter import Budget, RoutingLog, WiseRouter
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter_litellm import BudgetRefused, attach, detach

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error:::wiserouter")]

CALLS, BUDGET_CALLS = 1_500, 5
TOKENS = 20  # completion tokens of a mocked answer
HI = [{"role": "user", "content": "how do I reset the password of the billing database?"}]


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    logging.getLogger("LiteLLM Router").setLevel(logging.CRITICAL)
    yield
    litellm.logging_callback_manager._reset_all_callbacks()


def mocked(names=("small", "large"), tag="", delay=None, called=None, **settings) -> litellm.Router:
    """Return a router whose models answer by themselves; a call costs 20 tokens x 1e-5 USD.

    `called` is the model's name for LiteLLM: one whose encoding is known has its tokens counted.
    """
    params = {"api_key": "none", "mock_response": "ok", "input_cost_per_token": 0.0, "output_cost_per_token": 1e-5}
    params |= {} if delay is None else {"mock_delay": delay}
    rows = [
        {
            "model_name": "wise",
            "litellm_params": {"model": f"openai/{called or name}", **params},
            "model_info": {"id": f"{name}{tag}", "wiserouter_model": name, "max_output_tokens": TOKENS},
        }
        for name in names
    ]
    return litellm.Router(rows, num_retries=0, **settings)


async def timed_ms(router) -> float:
    start = time.perf_counter_ns()
    await router.acompletion(model="wise", messages=HI)
    return (time.perf_counter_ns() - start) / 1e6


async def added_ms(ours: litellm.Router, plain: litellm.Router) -> tuple[float, float, float]:
    """Return the median of a plain call, what ours adds to it, and what it adds at the 95th percentile."""
    for _ in range(100):
        await timed_ms(ours), await timed_ms(plain)
    pairs = np.array([[await timed_ms(plain), await timed_ms(ours)] for _ in range(CALLS)])
    p50, p95 = np.percentile(pairs, [50, 95], axis=0)
    return p50[0], p50[1] - p50[0], p95[1] - p95[0]


def contexts_16() -> WiseRouter:
    history = make_table(600, np.random.default_rng(0))
    return WiseRouter.fit(RoutingLog.from_arrays(*history), n_contexts=16, seed=0)


@pytest.mark.parametrize(
    ("name", "make", "target_ms"), [("no encoder", fitted, 0.3), ("tfidf, 16 contexts", contexts_16, 1.5)]
)
@pytest.mark.parametrize("limit", ["expected", "hard"])
async def test_what_a_call_gains_in_time(name, make, target_ms, limit):
    router = make()
    names = router.pool.names
    ours, plain = mocked(names), mocked(names, tag="-plain")
    attach(ours, "wise", router=router, budget=Budget(1e3, 10**6, limit=limit))
    best = min([await added_ms(ours, plain) for _ in range(2)], key=lambda row: row[1])
    detach(ours)
    print(
        f"\nLiteLLM acompletion, {name}, {limit}: plain p50 {best[0]:.2f} ms, added p50 {best[1]:.3f} ms "
        f"(target <= {target_ms}), p95 {best[2]:.3f} ms",
        end="",
    )
    assert best[1] <= target_ms


async def longest_step_ms(coroutine) -> float:
    """Return the longest time that a coroutine kept the event loop to itself."""
    longest = 0.0

    class Timed:
        def __await__(self):
            nonlocal longest
            inner, value = coroutine.__await__(), None
            while True:
                start = time.perf_counter_ns()
                try:
                    waiting = inner.send(value)
                except StopIteration as end:
                    longest = max(longest, (time.perf_counter_ns() - start) / 1e6)
                    return end.value
                longest = max(longest, (time.perf_counter_ns() - start) / 1e6)
                value = yield waiting

    await Timed()
    return longest


@pytest.mark.parametrize("limit", ["expected", "hard"])
@pytest.mark.parametrize("chars", [50, 200_000])
async def test_the_event_loop_is_never_kept_for_long(limit, chars):
    router = contexts_16()
    ours = mocked(router.pool.names, called="gpt-4o-mini")
    callback = attach(ours, "wise", router=router, budget=Budget(1e6, 10**6, limit=limit))
    rows = ours.get_model_list(model_name="wise")
    messages = [{"role": "user", "content": "word " * (chars // 5)}]
    steps = [
        await longest_step_ms(callback.async_filter_deployments("wise", rows, messages, {"metadata": {}}))
        for _ in range(50)
    ]
    detach(ours)
    print(f"\nselection of a prompt of {chars} characters, {limit}: longest step {np.median(steps):.2f} ms", end="")
    assert np.median(steps) <= 5.0


async def spent_ratio(router: litellm.Router, concurrency: int) -> float:
    """Return what 100 calls spend of a budget of five calls' cost, some at a time."""
    gate, answered = asyncio.Semaphore(concurrency), 0

    async def call():
        nonlocal answered
        async with gate:
            try:
                await router.acompletion(model="wise", messages=HI, max_tokens=TOKENS)
            except (BudgetRefused, ValueError, litellm.exceptions.RateLimitError, litellm.APIError):
                return
            answered += 1

    await asyncio.gather(*(call() for _ in range(100)))
    await asyncio.sleep(0.2)
    return answered / BUDGET_CALLS


@pytest.mark.parametrize("concurrency", [1, 20, 100])
async def test_the_race_for_the_last_dollars(concurrency):
    amount = BUDGET_CALLS * TOKENS * 1e-5
    limiter = mocked(
        ("small",),
        tag=f"-{concurrency}",
        delay=0.05,
        provider_budget_config={"openai": {"budget_limit": amount, "time_period": "1d"}},
    )
    theirs = await spent_ratio(limiter, concurrency)
    litellm.logging_callback_manager._reset_all_callbacks()
    ours = mocked(("small", "large"), delay=0.05)
    router = fitted()
    attach(ours, "wise", router=router, budget=Budget(amount, 100, limit="hard"))
    mine = await spent_ratio(ours, concurrency)
    detach(ours)
    print(
        f"\n{concurrency:>3} concurrent calls, budget of {BUDGET_CALLS} calls: LiteLLM's provider budget spends "
        f"{theirs:.1f}x, WISERouter with a hard limit {mine:.1f}x",
        end="",
    )
    assert mine <= 1.0
    assert router.status().spent_usd <= amount * (1 + 1e-12)
    if concurrency >= 20:
        assert theirs > 2 * mine
