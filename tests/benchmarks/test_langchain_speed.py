"""What routing adds to a LangChain call over the bare model, paired in one run: `uv run poe bench`."""

import asyncio
import time

import numpy as np
import pytest

from support.chat_stub import PRICES, StubChat, core
from wiserouter import Budget
from wiserouter_langchain import RunnableWiseRouter

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error:::wiserouter")]

PAIRS, WORDS = 600, " ".join(["word"] * 20)  # 20 words and the last chunk are 21


def timed_us(call) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e3


def doors(loop):
    return {
        "invoke": lambda llm: llm.invoke("hello"),
        "ainvoke": lambda llm: loop.run_until_complete(llm.ainvoke("hello")),
        "stream of 21 chunks": lambda llm: list(llm.stream("hello")),
    }


@pytest.mark.parametrize("door", ["invoke", "ainvoke", "stream of 21 chunks"])
@pytest.mark.parametrize("limit", ["expected", "hard"])
def test_what_a_call_gains_in_time(door, limit):
    loop = asyncio.new_event_loop()
    call = doors(loop)[door]
    bare = StubChat(model="stub", text=WORDS, max_tokens=50, profile={"max_input_tokens": 10_000})
    router = core()
    llm = RunnableWiseRouter(
        models={"small": bare, "large": bare}, router=router, prices=PRICES, budget=Budget(1e4, 10**6, limit=limit)
    )
    assert len(list(bare.stream("x"))) == 21
    for _ in range(50):
        call(bare), call(llm)
    best = None
    for _ in range(3):
        pairs = np.array([[timed_us(lambda: call(bare)), timed_us(lambda: call(llm))] for _ in range(PAIRS)])
        plain, ours = np.median(pairs, axis=0)
        best = min(best or (plain, np.inf), (plain, ours - plain), key=lambda row: row[1])
    loop.close()
    print(f"\nLangChain {door}, {limit}: bare {best[0]:.0f} us, added p50 {best[1]:.0f} us (target <= 500)", end="")
    assert best[1] <= 500
