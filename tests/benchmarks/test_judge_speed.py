"""What a judge adds to a request: the CPU time of offering a call on the event loop, judged or not.

Target: 50 us in the median. `uv run pytest tests/benchmarks/test_judge_speed.py -s
--override-ini=addopts=--import-mode=importlib` prints the figures.
"""

import asyncio
import time

import numpy as np
import pytest

from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter_litellm.groups.attempts import OpenAttempt
from wiserouter_litellm.settlement.judge import offer_answer

TARGET_US = 50.0
CALLS = 2_000
KWARGS = {"messages": [{"role": "user", "content": "What is the capital of France? " * 40}]}
ANSWER = {"choices": [{"message": {"content": "Paris. " * 200}}]}


async def added_us(share: float) -> np.ndarray:
    """Return the CPU time of each offer of a call, in microseconds."""
    router = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))], seed=0)
    router.start(Budget(1.0, 10 * CALLS))

    async def ask(prompt, answer):
        await asyncio.sleep(0)
        return 1.0

    judge = router.judge_with(ask, share=share, max_waiting=CALLS)
    spent = []
    for _ in range(CALLS):
        decision = router.decide("hello", context=0)
        router.charge(decision, 1e-6)
        attempt = OpenAttempt(None, decision)
        began = time.thread_time_ns()
        offer_answer(judge, attempt, KWARGS, ANSWER)
        spent.append((time.thread_time_ns() - began) / 1e3)
        if len(spent) % 50 == 0:
            await asyncio.sleep(0.001)
    judge.close()
    return np.array(spent)


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_a_judge_adds_less_than_50_us(share):
    added = asyncio.run(added_us(share))
    print(f"\nshare {share:.0%}: p50 {np.median(added):.1f} us, p99 {np.percentile(added, 99):.1f} us")
    assert np.median(added) <= TARGET_US
