"""Whichever way LangChain calls the router: what the provider bills is what the budget is charged, and no more."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware, ModelRetryMiddleware
from langchain.agents.structured_output import AutoStrategy, ToolStrategy
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.load import dumps, loads
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableParallel

from support.chat_calls import City, collect, weather
from support.chat_stub import PRICES, StubChat
from wiserouter import Budget
from wiserouter_langchain import RunnableWiseRouter, WiseRouterMiddleware

QUESTION = {"messages": [("user", "what of 'Paris' (5)?")]}


class Invoicing(StubChat):
    """Notes what each of its answers costs."""

    bills: Any  # a list, which pydantic would copy if it knew

    def _bill(self, usage):
        price = PRICES[self.model.removeprefix("stub-")]
        self.bills.append(usage["input_tokens"] * price.input + usage["output_tokens"] * price.output)

    def _generate(self, messages, stop=None, run_manager=None, **kw):
        result = super()._generate(messages, stop, run_manager, **kw)
        self._bill(result.generations[0].message.usage_metadata)
        return result

    def _stream(self, messages, stop=None, run_manager=None, **kw):
        for chunk in super()._stream(messages, stop, run_manager, **kw):
            if chunk.message.usage_metadata:
                self._bill(chunk.message.usage_metadata)
            yield chunk


class TextOfAnswers(InMemoryCache):
    """A cache that keeps answers as text, as those on disk and on servers do."""

    def lookup(self, prompt, llm_string):
        kept = super().lookup(prompt, llm_string)
        return None if kept is None else [loads(one, allowed_objects="core") for one in kept]

    def update(self, prompt, llm_string, return_val):
        super().update(prompt, llm_string, [dumps(one) for one in return_val])


class Refusing(BaseCallbackHandler):
    """Raises where a model has answered."""

    raise_error = True

    def on_llm_end(self, response, **kwargs):
        raise RuntimeError("the callback fails")


@pytest.fixture(params=["expected", "hard"])
def llm(request):
    """Return a router whose charges are compared with the bills of its models in the end."""
    bills = []
    models = {name: Invoicing(model=f"stub-{name}", bills=bills) for name in PRICES}
    routed = RunnableWiseRouter(
        models=models, prices=PRICES, budget=Budget(10.0, 1_000, limit=request.param), cap_output_tokens=200
    )
    yield routed
    status = routed.core.status()
    assert bills
    assert status.spent_usd == pytest.approx(sum(bills), rel=1e-12)
    assert (status.in_flight, status.presumed) == (0, 0)
    assert status.reserved_usd == pytest.approx(0.0, abs=1e-12)


def test_in_parallel_branches(llm):
    branches = RunnableParallel(text=llm | StrOutputParser(), tools=llm.bind_tools([weather]), whole=llm)
    branches.invoke("hello")
    list(branches.stream("hello"))
    asyncio.run(branches.ainvoke("hello"))


@pytest.mark.parametrize("wrap", [lambda llm: llm, lambda llm: llm.with_structured_output(City)], ids=["own", "schema"])
def test_in_batches_whose_answers_come_as_they_are_ready(llm, wrap):
    wrapped = wrap(llm)
    assert len(list(wrapped.batch_as_completed(["'a'"] * 6, {"max_concurrency": 2}))) == 6
    assert len(asyncio.run(collect(wrapped.abatch_as_completed(["'a'"] * 6, {"max_concurrency": 2})))) == 6
    assert len(asyncio.run(wrapped.abatch(["'a'"] * 9, {"max_concurrency": 3}))) == 9


def test_with_a_cache_of_all_models_that_keeps_text(llm):
    set_llm_cache(TextOfAnswers())
    try:
        answers = [llm.invoke("same"), llm.invoke("same"), asyncio.run(llm.ainvoke("same")), *llm.batch(["same"] * 2)]
        list(llm.stream("same"))
    finally:
        set_llm_cache(None)
    assert len({answer.content for answer in answers}) == 1
    assert len({answer.response_metadata["wise_router"]["decision_id"] for answer in answers}) == len(answers)


def test_where_a_callback_fails_after_the_answer(llm):
    config = {"callbacks": [Refusing()]}
    for call in (llm.invoke, lambda *given: list(llm.stream(*given)), lambda *given: asyncio.run(llm.ainvoke(*given))):
        with pytest.raises(RuntimeError, match="the callback fails"):
            call("hello", config)


def test_in_threads_and_event_loops_at_the_same_time(llm):
    def called(number):
        ways = (
            lambda: llm.invoke("hello"),
            lambda: list(llm.stream("hello")),
            lambda: asyncio.run(llm.ainvoke("hello")),
            lambda: asyncio.run(collect(llm.astream("hello"))),
        )
        return ways[number % len(ways)]()

    async def many():
        await asyncio.gather(*(asyncio.to_thread(llm.invoke, "a") for _ in range(8)), *map(llm.ainvoke, "b" * 8))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(called, range(40)))
    asyncio.run(many())
    assert llm.core.status().charged == 56


@pytest.mark.parametrize("strategy", [AutoStrategy(City), ToolStrategy(City), ToolStrategy(City, handle_errors=True)])
def test_in_an_agent_with_an_answer_in_a_schema(llm, strategy):
    middleware = [WiseRouterMiddleware(llm), ModelRetryMiddleware(), ModelCallLimitMiddleware(run_limit=5)]
    answer = create_agent(llm, [], middleware=middleware, response_format=strategy).invoke(QUESTION)
    assert answer["structured_response"] == City(city="Paris")
