"""What routing adds to a LangChain call over the bare model, paired in one run: `uv run poe bench`.

Each figure is the median of the quietest of several blocks, since other programs on the machine only ever add time.
"""

import asyncio
import time

import numpy as np
import pytest

from support.chat_stub import PRICES, StubChat, core
from wiserouter import Budget
from wiserouter_langchain import RunnableWiseRouter

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error:::wiserouter")]

THREAD = {"configurable": {"thread_id": "thread-1"}}
BLOCKS, PAIRS = 18, 100
WORDS = " ".join(["word"] * 20)  # 20 words and the last chunk are 21


def timed_us(call) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e3


def doors(loop, config):
    return {
        "invoke": lambda llm: llm.invoke("hello", config),
        "ainvoke": lambda llm: loop.run_until_complete(llm.ainvoke("hello", config)),
        "stream of 21 chunks": lambda llm: list(llm.stream("hello", config)),
    }


@pytest.mark.parametrize("door", ["invoke", "ainvoke", "stream of 21 chunks"])
@pytest.mark.parametrize(
    ("limit", "unit", "target"), [("expected", "call", 500), ("hard", "call", 500), ("expected", "run", 1_000)]
)
def test_what_a_call_gains_in_time(door, limit, unit, target):
    loop = asyncio.new_event_loop()
    call = doors(loop, THREAD if unit == "run" else None)[door]
    bare = StubChat(model="stub", text=WORDS, max_tokens=50, profile={"max_input_tokens": 10_000})
    router = core()
    llm = RunnableWiseRouter(
        models={"small": bare, "large": bare},
        router=router,
        prices=PRICES,
        budget=Budget(1e4, 10**6, limit=limit),
        unit=unit,
    )
    assert len(list(bare.stream("x"))) == 21
    for _ in range(50):
        call(bare), call(llm)
    best = None
    for _ in range(BLOCKS):
        pairs = np.array([[timed_us(lambda: call(bare)), timed_us(lambda: call(llm))] for _ in range(PAIRS)])
        plain, ours = np.median(pairs, axis=0)
        best = min(best or (plain, np.inf), (plain, ours - plain), key=lambda row: row[1])
    loop.close()
    print(
        f"\nLangChain {door}, {limit}, {unit}: bare {best[0]:.0f} us, added p50 {best[1]:.0f} us (target <= {target})",
        end="",
    )
    assert best[1] <= target
