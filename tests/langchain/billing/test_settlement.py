"""What a call is charged: once, and the right amount, also where it fails, is cancelled or is abandoned."""

import asyncio
import json
import threading
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, Generation
from langchain_core.runnables import RunnableGenerator, RunnableLambda

from support.chat_calls import DOORS, City, Tree, collect, settled
from support.chat_stub import PRICES, StubChat, core, cost_usd, hard_core, routed
from wiserouter import Budget, Price
from wiserouter.errors import (
    BudgetExhausted,
)
from wiserouter.integration import estimated_usage
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.billing import settlement


class Scripted(StubChat):
    """Answers what it is given."""

    answer: Any

    def _generate(self, messages, stop=None, run_manager=None, **kw):
        return ChatResult(generations=[ChatGeneration(message=self.answer)])

    def _stream(self, messages, stop=None, run_manager=None, **kw):
        chunk = AIMessageChunk(**self.answer.model_dump(exclude={"type"}))
        yield ChatGenerationChunk(message=chunk)


def test_the_models_own_cache_is_honoured_costs_nothing_and_teaches_nothing():
    models = {name: StubChat(model=f"stub-{name}", cache=InMemoryCache()) for name in ("small", "large")}
    llm = routed(models=models)
    llm.invoke("hello")
    before = llm.core.estimates.calls.sum()
    spent = llm.core.status().spent_usd
    answer = llm.invoke("hello")
    assert answer.response_metadata["wise_router"]["model"] == "large"
    assert llm.core.status().spent_usd == spent
    assert llm.core.status().charged == 2
    assert llm.core.estimates.calls.sum() == before


class TextCache(InMemoryCache):
    """A cache that keeps only the texts of answers."""

    def update(self, prompt, llm_string, return_val):
        super().update(prompt, llm_string, [Generation(text=each.text) for each in return_val])


@pytest.mark.parametrize("door", ["invoke", "ainvoke", "batch", "abatch"])
@pytest.mark.parametrize("hard", [True, False])
def test_an_answer_from_a_cache_that_keeps_only_texts_is_free_and_teaches_nothing(door, hard, caplog):
    models = {name: StubChat(model=f"stub-{name}", max_tokens=20, cache=TextCache()) for name in PRICES}
    llm = RunnableWiseRouter(models=models, router=hard_core() if hard else core(), prices=PRICES)
    llm.invoke("hello")
    status, calls = llm.core.status(), llm.core.estimates.calls.sum()
    DOORS[door](llm, "hello")
    after = llm.core.status()
    assert (after.spent_usd, after.charged, after.presumed, after.reserved_usd) == (status.spent_usd, 2, 0, 0.0)
    assert (llm.core.estimates.calls.sum(), caplog.text) == (calls, "")


TOTALS = {
    "reasoning is left out of the output": (
        {"input_tokens": 10, "output_tokens": 2, "total_tokens": 42, "output_token_details": {"reasoning": 30}},
        cost_usd("small", 10, 32),
    ),
    "what is left out is not named": (
        {"input_tokens": 10, "output_tokens": 2, "total_tokens": 42},
        cost_usd("small", 10, 32),
    ),
    "no output but in the total": (
        {"input_tokens": 10, "output_tokens": 0, "total_tokens": 42},
        cost_usd("small", 10, 32),
    ),
    "cached tokens are left out of the input": (
        {"input_tokens": 10, "output_tokens": 2, "total_tokens": 112, "input_token_details": {"cache_read": 100}},
        cost_usd("small", 10, 2) + 100 * PRICES["small"].cache_read,
    ),
    "a total that is less": ({"input_tokens": 10, "output_tokens": 2, "total_tokens": 0}, cost_usd("small", 10, 2)),
}


@pytest.mark.parametrize("door", ["invoke", "astream"])
@pytest.mark.parametrize(("usage", "billed_usd"), TOTALS.values(), ids=TOTALS)
def test_tokens_that_only_the_total_counts_are_charged(usage, billed_usd, door):
    model = Scripted(answer=AIMessage("hi", usage_metadata=usage), max_tokens=100)
    budget = Budget(1.0, horizon=100, limit="hard")
    llm = RunnableWiseRouter(models={"small": model}, prices={"small": PRICES["small"]}, budget=budget)
    DOORS[door](llm, "hello")
    assert llm.core.status().spent_usd == pytest.approx(billed_usd)


class Overtaken(InMemoryCache):
    """A cache in which another call finds an answer before the call that was billed for it has ended."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def update(self, prompt, llm_string, return_val):
        super().update(prompt, llm_string, return_val)
        self.other()


class Named(StubChat):
    """Its provider names each answer; a whole one comes with further output, as of OpenAI and Anthropic."""

    def _generate(self, messages, stop=None, run_manager=None, **kw):
        message = self._answer(messages, **kw).model_copy(update={"id": f"chatcmpl-{uuid4()}"})
        return ChatResult(generations=[ChatGeneration(message=message)], llm_output={"model_name": self.model})

    def _stream(self, messages, stop=None, run_manager=None, **kw):
        name = f"chatcmpl-{uuid4()}"
        for chunk in super()._stream(messages, stop, run_manager, **kw):
            chunk.message.id = name
            yield chunk


async def _events(llm, question):
    chain = RunnableLambda(llm.invoke)  # the model streams for its events, and its answer is cached
    return [event async for event in chain.astream_events(question, version="v2")]


@pytest.mark.parametrize("kind", [StubChat, Named])
@pytest.mark.parametrize(
    "ask",
    [
        lambda llm, question: llm.invoke(question),
        lambda llm, question: asyncio.run(llm.ainvoke(question)),
        lambda llm, question: asyncio.run(_events(llm, question)),
    ],
)
def test_a_billed_answer_that_another_call_finds_in_the_cache_before_its_end_is_charged(kind, ask):
    caches = [Overtaken(lambda: hits.append(llm.invoke("hello"))) for _ in PRICES]
    models = {
        name: kind(model=f"stub-{name}", max_tokens=20, cache=cache) for name, cache in zip(PRICES, caches, strict=True)
    }
    hits: list[AIMessage] = []
    llm = RunnableWiseRouter(models=models, router=hard_core(), prices=PRICES)
    ask(llm, "hello")
    status = llm.core.status()
    assert (len(hits), hits[0].usage_metadata["total_cost"], status.charged, status.reserved_usd) == (1, 0, 2, 0.0)
    tokens = hits[0].usage_metadata
    name = hits[0].response_metadata["wise_router"]["model"]
    assert status.spent_usd == pytest.approx(cost_usd(name, tokens["input_tokens"], tokens["output_tokens"]))


@pytest.mark.parametrize("door", DOORS)
def test_models_that_fail_raise_and_are_presumed(door):
    tree = Tree()
    llm = routed(models={"small": StubChat(fail=True), "large": StubChat(fail=True)})
    with pytest.raises(RuntimeError, match="is down"):
        DOORS[door](llm, "hello", {"callbacks": [tree]})
    status = llm.core.status()
    assert (status.reserved_usd, status.released, status.presumed) == (0.0, 0, 2)
    assert status.spent_usd == pytest.approx(2e-4)
    assert tree.roots[-1].error


def test_a_parser_that_fails_has_still_been_paid_for():
    class Broken(StubChat):
        def with_structured_output(self, schema, **kwargs):
            return self | (lambda message: 1 / 0)

    llm = routed(models={"small": Broken(), "large": Broken()})
    with pytest.raises(ZeroDivisionError):
        llm.with_structured_output(City).invoke("x")
    assert llm.core.status().charged == 1
    assert llm.core.status().spent_usd > 0


class Refusing(Scripted):
    """Answers in a schema by a parser that raises at the part of a stream that says why it ended."""

    def with_structured_output(self, schema, **kwargs):
        def check(chunks):
            for chunk in chunks:
                if chunk.response_metadata.get("stop_reason") == "refusal":
                    raise ValueError("refused")
                yield chunk

        async def acheck(chunks):
            async for chunk in chunks:
                if chunk.response_metadata.get("stop_reason") == "refusal":
                    raise ValueError("refused")
                yield chunk

        return self | RunnableGenerator(check, acheck)


@pytest.mark.parametrize("way", ["stream", "astream"])
@pytest.mark.parametrize("limit", ["expected", "hard"])
async def test_a_stream_that_a_parser_refuses_is_charged_its_usage_once_that_has_arrived(way, limit):
    usage = {"input_tokens": 30, "output_tokens": 5, "total_tokens": 35}
    answer = AIMessage("", usage_metadata=usage, response_metadata={"stop_reason": "refusal"})
    model = Refusing(answer=answer, profile={"max_output_tokens": 100, "max_input_tokens": 9_000})
    llm = RunnableWiseRouter(
        models={"small": model}, prices={"small": PRICES["small"]}, budget=Budget(1.0, 100, limit=limit)
    )
    structured = llm.with_structured_output(City)
    with pytest.raises(ValueError, match="refused"):
        [chunk async for chunk in structured.astream("x")] if way == "astream" else list(structured.stream("x"))
    status = llm.core.status()
    assert (status.charged, status.presumed, status.in_flight) == (1, 0, 0)
    assert status.spent_usd == pytest.approx(30 * 1e-6 + 5 * 2e-6)


def test_an_abandoned_stream_is_settled_once():
    llm = routed()
    stream = llm.stream("two words")
    next(stream)
    next(stream)
    assert llm.core.status().in_flight == 1
    stream.close()
    status = llm.core.status()
    assert (status.presumed, status.charged, status.in_flight) == (1, 0, 0)
    assert status.spent_usd == pytest.approx(1e-4)
    assert llm.core.estimates.calls.sum() == 100  # an answer that broke off teaches nothing about the usual cost


@pytest.mark.parametrize("way", ["break", "aclose", "cancel"])
async def test_an_abandoned_async_stream_is_settled_once(way):
    llm = routed(models={name: StubChat(model=f"stub-{name}", token_delay=0.01) for name in ("small", "large")})

    async def consume():
        stream = llm.astream("two words")
        async for _ in stream:
            if way != "cancel":
                break
        if way == "aclose":
            await stream.aclose()

    task = asyncio.create_task(consume())
    if way == "cancel":
        await asyncio.sleep(0.05)
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await settled(llm)
    status = llm.core.status()
    assert (status.charged + status.presumed, status.in_flight) == (1, 0)


async def test_a_cancelled_call_settles_once():
    class Slow(StubChat):
        async def _agenerate(self, messages, stop=None, run_manager=None, **kw):
            await asyncio.sleep(5)
            return self._generate(messages)

    llm = routed(models={"small": Slow(), "large": Slow()})
    task = asyncio.create_task(llm.ainvoke("hello"))
    await asyncio.sleep(0.05)
    assert llm.core.status().in_flight == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (llm.core.status().in_flight, llm.core.status().presumed) == (0, 1)


@pytest.mark.parametrize(("words", "on_loop"), [(1, True), (3_000, False)])
@pytest.mark.parametrize("way", ["ainvoke", "astream"])
async def test_the_tokens_of_a_long_prompt_are_counted_off_the_event_loop(monkeypatch, way, words, on_loop):
    threads = []

    def counted(*texts):
        threads.append(threading.current_thread())
        return estimated_usage(*texts)

    monkeypatch.setattr(settlement, "estimated_usage", counted)
    llm = routed(models={name: Scripted(answer=AIMessage("an answer")) for name in ("small", "large")})
    question = "hello " * words
    assert await (llm.ainvoke(question) if way == "ainvoke" else collect(llm.astream(question)))
    assert [thread is threading.current_thread() for thread in threads] == [on_loop]


def test_a_day_within_a_month():
    budget = Budget(1e-9, every="day", within=Budget(1.0, every="month", limit="hard"))
    models = {"small": StubChat(max_tokens=5), "large": StubChat(max_tokens=5)}
    llm = RunnableWiseRouter(models=models, prices=PRICES, budget=budget)
    with pytest.raises(BudgetExhausted, match="1e-09 USD every day"):
        llm.invoke("hello")
    assert [one.every for one in llm.core.status().windows] == ["day", "month"]


def test_from_prices_alone_a_router_learns():
    llm = RunnableWiseRouter(
        models={"small": StubChat(), "large": StubChat()}, prices=PRICES, budget=Budget(1.0, 100), history_size=5
    )
    for _ in range(10):
        llm.feedback(llm.invoke("hello"), 0.5)
    assert (llm.core.estimates.calls > 0).all()
    assert len(llm._environment.index) == 5


def test_cached_and_reasoning_tokens_are_priced():
    llm = routed(models={"small": StubChat(), "large": StubChat(cached_tokens=2)})
    llm.invoke("two words")
    assert llm.core.status().spent_usd == pytest.approx(3 * 1e-5 + 2 * 1e-6 + 11 * 3e-5)


def test_a_stream_without_usage_is_estimated_and_logged_once(caplog):
    models = {"small": StubChat(stream_usage=False), "large": StubChat(stream_usage=False)}
    llm = routed(models=models)
    for _ in range(3):
        list(llm.stream("two words"))
    assert 0 < llm.core.status().spent_usd < 3 * cost_usd("large", 60, 20)
    assert sum("stream_usage" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("door", ["invoke", "stream"])
def test_of_answers_without_usage_calls_of_tools_and_thoughts_count_as_text_does(door):
    words = "hello world " * 500
    call = {"name": "write_file", "args": {"text": words}, "id": "1", "type": "tool_call"}
    thought = [{"type": "thinking", "thinking": words, "signature": ""}]
    answers = [AIMessage(words), AIMessage("", tool_calls=[call]), AIMessage(thought)]
    spent_usd = []
    for answer in answers:
        models = {name: Scripted(answer=answer) for name in ("small", "large")}
        llm = routed(models=models)
        DOORS[door](llm, "write it", {})
        spent_usd.append(llm.core.status().spent_usd)
    assert spent_usd == [pytest.approx(spent_usd[0], rel=0.05)] * 3
    assert spent_usd[0] > 1_000 * PRICES["large"].output


def test_what_is_cached_for_an_hour_costs_twice_the_price_of_input():
    usage = {"input_tokens": 10_000, "output_tokens": 1, "total_tokens": 10_001}
    details = {"cache_creation": 0, "ephemeral_5m_input_tokens": 3_000, "ephemeral_1h_input_tokens": 5_000}
    answer = AIMessage("x", usage_metadata={**usage, "input_token_details": details})
    price = Price(1e-6, 2e-6, cache_write=1.25e-6)
    models = {name: Scripted(answer=answer) for name in ("small", "large")}
    llm = RunnableWiseRouter(models=models, router=core(), prices={"small": price, "large": price})
    llm.invoke("hello")
    assert llm.core.status().spent_usd == pytest.approx(2_000 * 1e-6 + 3_000 * 1.25e-6 + 5_000 * 2e-6 + 2e-6)


def limited(amount, **stub):
    models = {name: StubChat(model=f"stub-{name}", max_tokens=20, **stub) for name in ("small", "large")}
    return RunnableWiseRouter(models=models, router=hard_core(amount), prices=PRICES)


def test_concurrent_batches_never_exceed_a_hard_budget():
    llm = limited(0.004, token_delay=0.005)
    out = asyncio.run(llm.abatch(["two words"] * 200, return_exceptions=True))
    refused = [each for each in out if isinstance(each, Exception)]
    assert 0 < len(refused) < 200
    assert all(isinstance(each, BudgetExhausted) for each in refused)
    status = llm.core.status()
    assert status.spent_usd <= 0.004
    assert (status.in_flight, status.charged) == (0, 200 - len(refused))


def test_a_batch_of_threads_settles_every_call():
    llm = routed()
    llm.batch(["x"] * 200, {"max_concurrency": 16})
    assert (llm.core.status().charged, llm.core.status().in_flight) == (200, 0)


def test_nothing_of_prompts_or_models_is_logged(caplog):
    caplog.set_level("DEBUG", logger="wiserouter")
    secret = f"secret {uuid4()}"
    llm = routed(models={"small": StubChat(stream_usage=False), "large": StubChat(stream_usage=False)})
    list(llm.stream(secret))
    assert not [r for r in caplog.records if r.name.startswith("wiserouter") and secret in r.getMessage()]
    assert secret not in json.dumps(llm.core.status().as_dict())
