"""Calls whose bill is not known: presumed at what was held, corrected by nothing, and never lost with their answer."""

import asyncio
import math
from contextlib import suppress

import httpx
import openai
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import RunnableLambda

from support.chat_calls import DOORS, City, collect
from support.chat_stub import PRICES, StubChat, core, cost_usd, hard_core, routed
from wiserouter import Budget
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.billing.settlement import usage_of
from wiserouter_langchain.calls.call_scope import logger

REQUEST = httpx.Request("POST", "http://provider.test/v1/chat/completions")
EXPECTED_USD = 1e-4  # of every call, by the stub router's estimates


def hard(models, **fields):
    return RunnableWiseRouter(models=models, router=hard_core(), prices=PRICES, max_attempts=1, **fields)


def expected(models, **fields):
    return RunnableWiseRouter(models=models, router=core(), prices=PRICES, max_attempts=1, **fields)


def pool(kind, **fields):
    return {name: kind(model=f"stub-{name}", max_tokens=20, **fields) for name in ("small", "large")}


class Odd(StubChat):
    """Reports a usage or metadata as it is told."""

    usage: object = None
    reported: dict = {}  # noqa: RUF012

    def _generate(self, messages, stop=None, run_manager=None, **kw):
        message = self._answer(messages, **kw)
        message.usage_metadata = self.usage
        message.response_metadata = {**message.response_metadata, **self.reported}
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages, stop=None, run_manager=None, **kw):
        return self._generate(messages, stop, run_manager, **kw)


GOOD = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10}
ODD_USAGES = [
    {**GOOD, "output_tokens": -3},
    {**GOOD, "input_tokens": math.nan},
    {**GOOD, "output_tokens": math.inf},
    {**GOOD, "output_tokens": "many"},
    {**GOOD, "output_tokens": 10**40},
    {**GOOD, "input_token_details": [1, 2]},
    {**GOOD, "output_token_details": {"reasoning": -1}},
    [5, 5],
    "5 tokens",
]


@pytest.mark.parametrize("usage", ODD_USAGES, ids=str)
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_an_odd_usage_keeps_the_answer_and_charges_what_was_held(usage, way, caplog):
    for llm in (hard(pool(Odd, usage=usage)), expected(pool(Odd, usage=usage))):
        caplog.clear()
        for _ in range(2):
            answer = DOORS[way](llm, "hello")
            assert answer.text == StubChat().text
        status = llm.core.status()
        assert (status.presumed, status.charged, status.in_flight) == (2, 0, 0)
        held = [llm.core.decision(answer.response_metadata["wise_router"]["decision_id"])]
        amount = held[0].reserved_usd if llm.core.is_hard() else held[0].expected_cost_usd
        assert status.spent_usd == pytest.approx(2 * amount, rel=0.3)
        assert [record.getMessage() for record in caplog.records if record.name == logger.name] == [
            "large reported a usage or a cost that is none, so its call is charged what was reserved"
        ]


@pytest.mark.parametrize("cost", [math.inf, math.nan, -1.0])
def test_an_odd_cost_is_odd_even_beside_a_usage(cost):
    llm = hard(pool(Odd, usage=GOOD, reported={"response_cost": cost}))
    assert llm.invoke("hello").text == StubChat().text
    assert llm.core.status().presumed == 1


@pytest.mark.parametrize("limit", ["hard", "expected"])
def test_a_call_to_which_litellm_gives_no_price_is_charged_its_tokens(limit):
    answering = pool(Odd, usage=GOOD, reported={"response_cost": 0.0})
    llm = hard(answering) if limit == "hard" else expected(answering)
    llm.invoke("hello", {"configurable": {"wise_model": "large"}})
    price = PRICES["large"]
    tokens_usd = GOOD["input_tokens"] * price.input + GOOD["output_tokens"] * price.output
    assert llm.core.status().spent_usd == pytest.approx(tokens_usd)


@pytest.mark.parametrize(("reported", "billed"), [((0, 40), (5, 40)), ((30, 0), (30, 11))])
def test_a_usage_that_lacks_the_prompt_or_the_answer_is_presumed_or_completed(reported, billed):
    usage = dict(zip(("input_tokens", "output_tokens"), reported, strict=True))
    one = {"configurable": {"wise_model": "large"}}
    careful, usual = hard(pool(Odd, usage=usage)), expected(pool(Odd, usage=usage))
    for llm in (careful, usual):
        llm.invoke("a", one)
    assert (careful.core.status().presumed, careful.core.status().charged) == (1, 0)
    price = PRICES["large"]
    about_usd = billed[0] * price.input + billed[1] * price.output
    assert usual.core.status().charged == 1
    assert usual.core.status().spent_usd == pytest.approx(about_usd, rel=0.3)


def test_whole_floats_and_missing_details_are_no_odd_usage():
    assert usage_of({"input_tokens": 5.0, "output_tokens": 3, "input_token_details": None}).input_tokens == 5
    assert usage_of({}) is usage_of(None) is usage_of({"input_tokens": 0, "output_tokens": 0}) is None


def status_error(status):
    response = httpx.Response(status, request=REQUEST, json={"error": {"message": "no"}})
    return openai.APIStatusError("no", response=response, body=None)


def timed_out():
    error = openai.APITimeoutError(REQUEST)
    error.__cause__ = httpx.ReadTimeout("no answer")
    return error


def refused():
    error = openai.APIConnectionError(request=REQUEST)
    error.__cause__ = httpx.ConnectError("refused")
    return error


class Raising(StubChat):
    """Fails with an error before its answer begins."""

    error: object = None

    def _answer(self, messages, **kw):
        raise self.error


UNKNOWN = {
    "timeout": timed_out(),
    "500": status_error(500),
    "503": status_error(503),
    "408": status_error(408),
    "reset": ConnectionResetError("reset"),
    "unknown": RuntimeError("anything"),
}
UNBILLED = {"400": status_error(400), "429": status_error(429), "refused": refused()}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_outcome_is_presumed(door, name):
    llm = hard(pool(Raising, error=UNKNOWN[name]))
    with pytest.raises(type(UNKNOWN[name])):
        DOORS[door](llm, "hello")
    status = llm.core.status()
    assert (status.presumed, status.released, status.in_flight) == (1, 0, 0)
    assert status.spent_usd == status.presumed_usd > 0.0


def test_under_an_expected_limit_the_expected_cost_is_presumed():
    llm = expected(pool(Raising, error=timed_out()))
    with pytest.raises(openai.APITimeoutError):
        llm.invoke("hello")
    assert llm.core.status().presumed_usd == pytest.approx(EXPECTED_USD)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", UNBILLED)
def test_what_was_refused_is_released(door, name):
    llm = hard(pool(Raising, error=UNBILLED[name]))
    with pytest.raises(type(UNBILLED[name])):
        DOORS[door](llm, "hello")
    status = llm.core.status()
    assert (status.presumed, status.released, status.spent_usd, status.in_flight) == (0, 1, 0.0, 0)


class Reporting(Raising):
    """Reports its error to the callbacks itself, before LangChain does, as ChatBedrock does."""

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        run_manager.on_llm_error(self.error)
        raise self.error


@pytest.mark.parametrize(("error", "released"), [(UNBILLED["400"], 1), (UNKNOWN["timeout"], 0)])
def test_an_error_that_is_reported_twice_is_one_run(error, released):
    llm = hard(pool(Reporting, error=error))
    with pytest.raises(type(error)):
        llm.invoke("hello")
    status = llm.core.status()
    assert (status.presumed, status.released, status.in_flight) == (1 - released, released, 0)


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("door", ["invoke", "ainvoke", "stream", "astream"])
def test_a_call_that_a_callback_refuses_at_its_start_costs_nothing(door, is_own):
    class Guard(BaseCallbackHandler):
        raise_error = True

        def on_chat_model_start(self, serialized, messages, **kwargs):
            raise ValueError("blocked")

    llm = hard(pool(StubChat, callbacks=[Guard()] if is_own else None))
    with pytest.raises(ValueError, match="blocked"):
        DOORS[door](llm, "hello", {} if is_own else {"callbacks": [Guard()]})
    status = llm.core.status()
    assert (status.presumed, status.released, status.spent_usd, status.in_flight) == (0, 1, 0.0, 0)


@pytest.mark.parametrize("door", ["invoke", "ainvoke", "stream", "astream"])
def test_an_answer_that_a_callback_refuses_is_charged_and_no_other_model_is_asked(door):
    class Guard(BaseCallbackHandler):
        raise_error = run_inline = True

        def on_llm_end(self, response, **kwargs):
            raise ValueError("blocked")

    class EarlyGuard(Guard):
        def on_llm_new_token(self, token, **kwargs):
            raise ValueError("blocked")

    for guard, streams in ((Guard(), False), (EarlyGuard(), "stream" in door)):
        llm = RunnableWiseRouter(models=pool(StubChat), router=hard_core(), prices=PRICES)
        with pytest.raises(ValueError, match="blocked"):
            DOORS[door](llm, "hello", {"callbacks": [guard]})
        status = llm.core.status()
        assert (status.decided, status.charged, status.presumed) == (1, int(not streams), int(streams))


async def test_a_cancelled_call_is_presumed():
    class Slow(StubChat):
        async def _agenerate(self, messages, stop=None, run_manager=None, **kw):
            await asyncio.sleep(5)

    llm = hard(pool(Slow))
    task = asyncio.create_task(llm.ainvoke("hello"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    status = llm.core.status()
    assert (status.presumed, status.in_flight) == (1, 0)
    assert status.spent_usd > 0


def test_an_answer_without_content_is_presumed():
    class Empty(StubChat):
        def _generate(self, messages, stop=None, run_manager=None, **kw):
            return ChatResult(generations=[])

    llm = hard(pool(Empty))
    with pytest.raises(IndexError):
        llm.invoke("hello")
    assert llm.core.status().presumed == 1


@pytest.mark.parametrize("n_read", [1, 3])
def test_an_abandoned_stream_is_presumed(n_read):
    llm = hard(pool(StubChat))
    stream = llm.stream("hello")
    for _ in range(n_read):
        next(stream)
    stream.close()
    status = llm.core.status()
    assert (status.presumed, status.charged, status.in_flight) == (1, 0, 0)
    assert status.spent_usd == status.presumed_usd > 0


def test_a_stream_that_is_closed_after_its_usage_is_charged():
    llm = hard(pool(StubChat))
    stream = llm.stream("hello")
    for chunk in stream:
        if chunk.usage_metadata:
            break
    stream.close()
    status = llm.core.status()
    assert (status.presumed, status.charged) == (0, 1)
    assert 0 < status.spent_usd < 1e-2


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_without_usage_a_hard_budget_presumes_and_an_expected_one_estimates(way, caplog):
    strict, lenient = hard(pool(StubChat, stream_usage=False)), expected(pool(StubChat, stream_usage=False))
    for llm in (strict, lenient):
        DOORS[way](llm, "hello")
    assert (strict.core.status().presumed, strict.core.status().charged) == (1, 0)
    assert (lenient.core.status().presumed, lenient.core.status().charged) == (0, 1)
    assert caplog.text.count("stream_usage") == 2


def test_a_presumed_call_can_be_rewarded_and_is_explained():
    llm = hard(pool(Odd, usage=ODD_USAGES[0]))
    answer = llm.invoke("hello")
    assert llm.feedback(answer, 1.0) == 1
    assert llm.explain(answer).state == "presumed"


def test_a_decision_that_the_store_forgot_loses_no_answer(caplog):
    class Forgetful(StubChat):
        def _answer(self, messages, **kw):
            decision = next(iter(llm.core._store._records))
            llm.core.charge(decision, 0.001)
            return super()._answer(messages, **kw)

    llm = routed(models=pool(Forgetful))
    assert llm.invoke("hello").text == StubChat().text
    assert "could not be settled" in caplog.text


class Billed(StubChat):
    """Bills every call in full, and fails some of them afterwards: errors, timeouts, broken streams."""

    ledger: list = []  # noqa: RUF012
    faults: list = []  # noqa: RUF012

    def _answer(self, messages, **kw):
        name = self.model.removeprefix("stub-")
        message = super()._answer(messages, **kw)
        usage = message.usage_metadata
        self.ledger.append(usage["input_tokens"] * PRICES[name].input + usage["output_tokens"] * PRICES[name].output)
        fault = self.faults.pop() if self.faults else None
        if isinstance(fault, BaseException):
            raise fault
        if fault == "odd":
            message.usage_metadata = None
        return message


@pytest.mark.parametrize("door", ["invoke", "ainvoke", "stream", "astream"])
def test_the_providers_ledger_never_exceeds_a_hard_budget(door):
    ledger, amount = [], 0.02
    faults = [timed_out(), "odd", None, status_error(500), RuntimeError("broken"), "odd"] * 20
    models = {name: Billed(model=f"stub-{name}", max_tokens=20) for name in ("small", "large")}
    for model in models.values():
        model.ledger, model.faults = ledger, faults
    llm = RunnableWiseRouter(models=models, prices=PRICES, budget=Budget(amount, 1_000, limit="hard"))
    for _ in range(60):
        with suppress(Exception):
            DOORS[door](llm, "hello")
    assert 0 < sum(ledger) <= amount
    assert llm.core.status().spent_usd >= sum(ledger) - 1e-12


async def test_a_stream_left_by_its_task_is_presumed():
    llm = hard(pool(StubChat, token_delay=0.01))
    task = asyncio.create_task(collect(llm.astream("hello")))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    status = llm.core.status()
    assert (status.presumed, status.in_flight) == (1, 0)


class Unseen(StubChat):
    """Implements the doors itself, so that no callback hears of its runs."""

    usage: bool = True

    def invoke(self, messages, config=None, **kw):
        answer = self._answer(self._convert_input(messages).to_messages(), **kw)
        return answer if self.usage else answer.model_copy(update={"usage_metadata": None})

    async def ainvoke(self, messages, config=None, **kw):
        return self.invoke(messages, config, **kw)

    def stream(self, messages, config=None, **kw):
        yield from (AIMessageChunk("a"), AIMessageChunk("nswer"))

    async def astream(self, messages, config=None, **kw):
        for chunk in self.stream(messages):
            yield chunk


@pytest.mark.parametrize("made", [expected, hard])
@pytest.mark.parametrize("door", DOORS)
def test_an_answer_of_a_run_that_no_one_observed_is_charged(door, made):
    llm = made(pool(Unseen))
    assert DOORS[door](llm, "hello")
    status = llm.core.status()
    assert (status.charged + status.presumed, status.released, status.in_flight) == (1, 0, 0)
    if "stream" in door:
        assert status.presumed == 1  # the usage of a stream is the sum of its chunks
    else:
        assert status.spent_usd == pytest.approx(cost_usd("large", 4, 11))


@pytest.mark.parametrize("made", [expected, hard])
def test_such_an_answer_without_usage_is_estimated_or_charged_what_was_reserved(made):
    llm = made(pool(Unseen, usage=False))
    answer = llm.invoke("hello")
    decision = llm.core.decision(answer.response_metadata["wise_router"]["decision_id"])
    if made is hard:
        assert llm.core.status().spent_usd == decision.reserved_usd
    else:
        assert llm.core.status().charged == 1
        assert llm.core.status().spent_usd > 11 * PRICES["large"].output


def test_the_raw_answer_of_such_a_model_is_charged():
    class Native(Unseen):
        def with_structured_output(self, schema, **kwargs):
            return RunnableLambda(lambda messages: {"raw": self.invoke(messages), "parsed": None})

    llm = hard(pool(Native))
    assert llm.with_structured_output(City, include_raw=True).invoke("hello")["parsed"] is None
    assert llm.core.status().spent_usd == pytest.approx(cost_usd("large", 4, 11))


class WithoutItsEnd(StubChat):
    """Streams the tokens of its input first, and ends before those of its output, as where a proxy cuts a stream."""

    def _stream(self, messages, stop=None, run_manager=None, **kw):
        usage = {"input_tokens": 5, "output_tokens": 0, "total_tokens": 5}
        yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=usage))
        yield ChatGenerationChunk(message=AIMessageChunk(content="Why did the cat sit"))


@pytest.mark.parametrize("door", ["stream", "astream"])
def test_a_usage_that_counts_no_token_of_an_answer_with_text_is_no_usage(door):
    llm = hard(pool(WithoutItsEnd))
    DOORS[door](llm, "hello")
    status = llm.core.status()
    assert (status.presumed, status.charged, status.reserved_usd) == (1, 0, 0.0)

    llm = expected(pool(WithoutItsEnd))
    DOORS[door](llm, "hello")
    price = PRICES["large"]
    assert llm.core.status().charged == 1
    assert llm.core.status().spent_usd > 5 * price.input + 4 * price.output


class BrokenLimiter(InMemoryRateLimiter):
    def acquire(self, *, blocking=True):
        raise RuntimeError("the limiter is out of order")

    async def aacquire(self, *, blocking=True):
        return self.acquire(blocking=blocking)


@pytest.mark.parametrize("door", DOORS)
def test_a_call_whose_rate_limiter_fails_costs_nothing(door):
    llm = hard(pool(StubChat, rate_limiter=BrokenLimiter()))
    with pytest.raises(RuntimeError, match="the limiter is out of order"):
        DOORS[door](llm, "hello")
    status = llm.core.status()
    assert (status.released, status.presumed, status.spent_usd, status.in_flight) == (1, 0, 0.0, 0)


@pytest.mark.parametrize("way", ["ainvoke", "astream"])
async def test_a_call_that_is_cancelled_while_it_waits_for_its_rate_limiter_costs_nothing(way):
    llm = hard(pool(StubChat, rate_limiter=InMemoryRateLimiter(requests_per_second=1e-3)))
    asked = llm.ainvoke("hello") if way == "ainvoke" else collect(llm.astream("hello"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asked, 0.2)
    status = llm.core.status()
    assert (status.released, status.presumed, status.spent_usd, status.in_flight) == (1, 0, 0.0, 0)


class SendsTwice(StubChat):
    """Sends a request that gets no answer, and waits at a limiter of its own to send it again."""

    own: object
    sent: list

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.sent.append(1)
        self.own.acquire()

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        self.sent.append(1)
        await self.own.aacquire()


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "cancelled"])
async def test_a_rate_limiter_after_a_request_that_was_sent_proves_nothing(way):
    own = InMemoryRateLimiter(requests_per_second=1e-3) if way == "cancelled" else BrokenLimiter()
    llm = hard(pool(SendsTwice, own=own, sent=[]))
    with pytest.raises((RuntimeError, TimeoutError)):
        llm.invoke("hello") if way == "invoke" else await asyncio.wait_for(llm.ainvoke("hello"), 0.2)
    status = llm.core.status()
    assert (status.released, status.presumed, status.in_flight) == (0, 1, 0)
