"""Calls of `RunnableWiseRouter` that wait while the rest of a hard budget is only held by calls in flight."""

import asyncio

import pytest

from support.chat_stub import PRICES, StubChat
from wiserouter import Budget
from wiserouter.errors import BudgetExhausted
from wiserouter_langchain import RunnableWiseRouter

QUESTION = "why did the cat sit on the mat?"


def router_of(calls=1.5, **fields):
    """Return a router of one model whose budget bears so many worst cases at a time."""
    model = StubChat(model="small", max_tokens=20, token_delay=0.002, profile={"max_input_tokens": 10_000})
    llm = RunnableWiseRouter(models={"small": model}, prices=PRICES, budget=Budget(1.0, 10_000, limit="hard"), **fields)
    llm.invoke(QUESTION)
    worst_usd = llm.core.decision(llm.invoke(QUESTION).response_metadata["wise_router"]["decision_id"]).reserved_usd
    llm.core.start(Budget(calls * worst_usd, 10_000, limit="hard"))
    return llm


def idle(llm):
    return llm.core.status().in_flight == 0 and llm.core.status().reserved_usd == 0.0


async def test_streams_wait_for_each_other():
    llm = router_of()
    held = llm.astream(QUESTION)
    await anext(held)
    second = asyncio.create_task(llm.ainvoke(QUESTION))
    await asyncio.sleep(0.05)
    assert not second.done()
    async for _ in held:
        pass
    assert (await second).text
    assert idle(llm)


async def test_a_batch_is_served_one_after_the_other():
    llm = router_of(3.0)
    answers = await llm.abatch([QUESTION] * 4)
    assert len(answers) == 4
    assert idle(llm)


def test_a_synchronous_batch_is_served_one_after_the_other():
    llm = router_of(3.0)
    assert len(llm.batch([QUESTION] * 4)) == 4
    assert idle(llm)


@pytest.mark.parametrize("max_wait_s", [0.0, 0.1])
async def test_a_call_that_does_not_wait_or_no_longer_is_refused(max_wait_s):
    llm = router_of(max_wait_s=max_wait_s)
    held = llm.astream(QUESTION)
    await anext(held)
    with pytest.raises(BudgetExhausted) as refused:
        await llm.ainvoke(QUESTION)
    assert refused.value.is_only_held
    assert [chunk async for chunk in held]
    assert (await llm.ainvoke(QUESTION)).text


async def test_a_call_that_is_cancelled_while_it_waits_reserves_nothing():
    llm = router_of()
    held = llm.astream(QUESTION)
    await anext(held)
    second = asyncio.create_task(llm.ainvoke(QUESTION))
    await asyncio.sleep(0.05)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    async for _ in held:
        pass
    assert idle(llm)
    assert llm.core.status().decided == 1
