"""Exact costs with the chat model classes of OpenAI and Anthropic, whose providers are stubs on a socket."""

import socket
from types import SimpleNamespace
from uuid import uuid4

import openai
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.caches import InMemoryCache
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from support.chat_calls import City, weather
from support.chat_stub import core
from support.providers import chunks, sse
from support.stub import serving
from wiserouter import Budget, Price
from wiserouter_langchain import RunnableWiseRouter

PRICES = {
    "small": Price(1.5e-7, 6e-7, cache_read=7.5e-8),
    "large": Price(3e-6, 1.5e-5, cache_read=3e-7, cache_write=3.75e-6),
}
PATHS = ("chat/completions", "responses")
TOOL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"location": "Rome"}'}}


def openai_answer(body):
    message = {"role": "assistant", "content": "an answer"}
    if body.get("tools") and body["messages"][-1]["role"] != "tool":
        message = {"role": "assistant", "content": None, "tool_calls": [TOOL]}
    if body.get("response_format"):
        message = {"role": "assistant", "content": '{"city": "Rome"}'}
    usage = {
        "prompt_tokens": 1_000,
        "completion_tokens": 200,
        "total_tokens": 1_200,
        "prompt_tokens_details": {"cached_tokens": 400},
        "completion_tokens_details": {"reasoning_tokens": 50},
    }
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"]}
    return {**answer, "choices": [choice], "usage": usage}


class OpenAI:
    """A provider on a socket: which library its client sends with depends on the client's version."""

    def __init__(self):
        self.bodies, self.reply, self.repeats_role = [], None, False
        self.app = Starlette(routes=[Route(f"/{{test}}/v1/{path}", self.answer, methods=["POST"]) for path in PATHS])

    async def answer(self, request):
        body = await request.json()
        self.bodies.append(body)
        if self.reply is not None:
            status, answer = self.reply
            return JSONResponse(answer, status)
        if body.get("stream"):
            usage = bool((body.get("stream_options") or {}).get("include_usage"))
            events = "".join(chunks(body["model"], with_usage=usage))
            if self.repeats_role:
                events = events.replace('"delta": {"content"', '"delta": {"role": "assistant", "content"')
            return Response(events, media_type="text/event-stream")
        return JSONResponse(openai_answer(body))


class Anthropic:
    """A provider on a socket."""

    def __init__(self):
        self.calls, self.fails = 0, False
        self.app = Starlette(routes=[Route("/{test}/v1/messages", self.answer, methods=["POST"])])

    async def answer(self, request):
        self.calls += 1
        if self.fails:
            return JSONResponse({"type": "error", "error": {"type": "api_error", "message": "down"}}, self.fails)
        body = await request.json()
        usage = {
            "input_tokens": 500,
            "output_tokens": 100,
            "cache_read_input_tokens": 300,
            "cache_creation_input_tokens": 200,
        }
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": self.content(body),
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": usage,
        }
        if not body.get("stream"):
            return JSONResponse(message)
        return StreamingResponse(self.events(message), media_type="text/event-stream")

    def content(self, body):
        last = body["messages"][-1]["content"]
        answered = isinstance(last, list) and last[0]["type"] == "tool_result"
        if not body.get("tools") or answered:
            return [{"type": "text", "text": "an answer"}]
        name = body["tools"][0]["name"]
        given = {"location": "Rome"} if name == "weather" else {"city": "Rome"}
        return [{"type": "tool_use", "id": "toolu_1", "name": name, "input": given}]

    async def events(self, message):
        usage = {**message["usage"], "output_tokens": 1}
        stop = {"stop_reason": "end_turn", "stop_sequence": None}
        word = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}
        for event in (
            {"type": "message_start", "message": {**message, "content": [], "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *[word] * 5,
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": message["usage"]},
            {"type": "message_stop"},
        ):
            yield f"event: {event['type']}\n{sse(event)}"


OPENAI_USD = 600 * 1.5e-7 + 400 * 7.5e-8 + 200 * 6e-7
OPENAI_STREAM_USD = 20 * 1.5e-7 + 50 * 6e-7
ANTHROPIC_USD = 500 * 3e-6 + 300 * 3e-7 + 200 * 3.75e-6 + 100 * 1.5e-5
USD = {"small": OPENAI_USD, "large": ANTHROPIC_USD}


@pytest.fixture(scope="module")
def providers():
    stubs = SimpleNamespace(openai=OpenAI(), anthropic=Anthropic())
    with serving(stubs.openai) as openai_url, serving(stubs.anthropic) as anthropic_url:
        stubs.openai.url, stubs.anthropic.url = openai_url.removesuffix("/v1"), anthropic_url.removesuffix("/v1")
        yield stubs


@pytest.fixture
def web(providers):
    providers.openai.bodies, providers.openai.reply, providers.openai.repeats_role = [], None, False
    providers.anthropic.fails, providers.anthropic.calls = False, 0
    return providers


def small_model(web, **fields):
    url = f"{web.openai.url}/{uuid4().hex}/v1"  # the classes keep a client by address, bound to one event loop
    return ChatOpenAI(model="gpt-4o-mini", base_url=url, api_key="sk-x", **fields)


def large_model(web, **fields):
    url = f"{web.anthropic.url}/{uuid4().hex}"
    return ChatAnthropic(model="claude-sonnet-4-5", base_url=url, api_key="sk-y", **fields)


def models(web, **fields):
    return {
        "small": small_model(web, max_retries=0, stream_usage=True, **fields),
        "large": large_model(web, max_retries=0, **fields),
    }


def routed(web, prefer, **fields):
    return RunnableWiseRouter(models=models(web, **fields), router=core(prefer), prices=PRICES)


@pytest.mark.parametrize("prefer", ["small", "large"])
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_an_answer(web, prefer, way):
    llm = routed(web, prefer)
    answer = llm.invoke("hello") if way == "invoke" else await llm.ainvoke("hello")
    assert answer.text == "an answer"
    assert llm.core.status().spent_usd == pytest.approx(USD[prefer])


@pytest.mark.parametrize("prefer", ["small", "large"])
@pytest.mark.parametrize("way", ["stream", "astream"])
async def test_a_stream(web, prefer, way):
    llm = routed(web, prefer)
    pieces = list(llm.stream("hello")) if way == "stream" else [chunk async for chunk in llm.astream("hello")]
    assert "".join(chunk.text for chunk in pieces).count("word") == 5
    assert llm.core.status().spent_usd == pytest.approx(OPENAI_STREAM_USD if prefer == "small" else ANTHROPIC_USD)


ASKS_FOR_AN_HOUR = {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize("way", ["block", "argument", "setting"])
def test_a_stream_that_does_not_say_how_long_its_tokens_are_cached_costs_what_it_asked_for(web, way):
    large = large_model(web, **({"model_kwargs": {"cache_control": ASKS_FOR_AN_HOUR}} if way == "setting" else {}))
    llm = RunnableWiseRouter(models={"large": large}, prices=PRICES, budget=Budget(1.0, 100))
    block = {"type": "text", "text": "hello", **({"cache_control": ASKS_FOR_AN_HOUR} if way == "block" else {})}
    kwargs = {"cache_control": ASKS_FOR_AN_HOUR} if way == "argument" else {}
    list(llm.stream([HumanMessage([block])], **kwargs))
    assert llm.core.status().spent_usd == pytest.approx(ANTHROPIC_USD + 200 * (2 * 3e-6 - 3.75e-6))


@pytest.mark.parametrize("prefer", ["small", "large"])
def test_an_abandoned_stream_is_presumed(web, prefer):
    llm = routed(web, prefer)
    stream = llm.stream("hello")
    next(stream)
    next(stream)
    stream.close()
    status = llm.core.status()
    assert (status.presumed, status.charged, status.in_flight) == (1, 0, 0)
    assert status.spent_usd == pytest.approx(1e-4)


@pytest.mark.parametrize("prefer", ["small", "large"])
def test_a_tool_loop(web, prefer):
    from langchain.agents import create_agent

    llm = routed(web, prefer)
    out = create_agent(llm, [weather]).invoke({"messages": [("human", "weather in Rome?")]})
    assert [message.type for message in out["messages"]] == ["human", "ai", "tool", "ai"]
    assert llm.core.status().spent_usd == pytest.approx(2 * USD[prefer])


@pytest.mark.parametrize("prefer", ["small", "large"])
def test_structured_output(web, prefer):
    llm = routed(web, prefer)
    assert llm.with_structured_output(City).invoke("where?") == City(city="Rome")
    assert llm.core.status().spent_usd == pytest.approx(USD[prefer])


@pytest.mark.parametrize("limit", ["hard", "expected"])
@pytest.mark.parametrize("way", ["stream", "astream"])
async def test_a_structured_stream_of_a_server_that_names_the_role_in_each_part(web, way, limit):
    web.openai.repeats_role = True  # the client's message is of no known role then, and has no usage of LangChain's
    small = small_model(web, stream_usage=True, max_tokens=500)
    llm = RunnableWiseRouter(models={"small": small}, prices=PRICES, budget=Budget(1.0, 100, limit=limit))
    bound = llm.bind(response_format={"type": "json_object"})
    pieces = list(bound.stream("hello")) if way == "stream" else [chunk async for chunk in bound.astream("hello")]
    assert not any(chunk.usage_metadata for chunk in pieces)
    status = llm.core.status()
    assert (status.charged, status.presumed) == (1, 0)
    assert status.spent_usd == pytest.approx(OPENAI_STREAM_USD)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_structured_answer_that_ends_at_its_limit_is_charged_and_no_other_model_is_asked(web, way):
    whole = openai_answer({"model": "gpt-4o-mini", "messages": []})
    whole["choices"][0] |= {"finish_reason": "length", "message": {"role": "assistant", "content": '{"ci'}}
    web.openai.reply = (200, whole)
    llm = routed(web, "small")
    structured = llm.with_structured_output(City, method="json_schema")
    with pytest.raises(openai.LengthFinishReasonError):
        structured.invoke("where?") if way == "invoke" else await structured.ainvoke("where?")
    status = llm.core.status()
    assert (status.charged, status.presumed, status.in_flight, web.anthropic.calls) == (1, 0, 0, 0)
    assert status.spent_usd == pytest.approx(OPENAI_USD)
    assert not llm._environment.rests.any


def responses_answer(text):
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    usage = {
        "input_tokens": 1_000,
        "output_tokens": 200,
        "total_tokens": 1_200,
        "input_tokens_details": {"cached_tokens": 400},
        "output_tokens_details": {"reasoning_tokens": 50},
    }
    answer = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-4o-mini", "status": "incomplete"}
    return {**answer, "output": [message], "usage": usage, "tools": [], "tool_choice": "auto", "error": None}


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_structured_answer_of_another_schema_is_charged_and_no_other_model_is_asked(web, api, way):
    whole = openai_answer({"model": "gpt-4o-mini", "messages": []})
    whole["choices"][0]["message"] = {"role": "assistant", "content": '{"ci'}
    web.openai.reply = (200, whole if api == "chat" else responses_answer('{"ci'))
    both = models(web)
    both["small"] = small_model(web, use_responses_api=api == "responses")
    llm = RunnableWiseRouter(models=both, router=core("small"), prices=PRICES)
    structured = llm.with_structured_output(City, method="json_schema")
    with pytest.raises(ValidationError):
        structured.invoke("where?") if way == "invoke" else await structured.ainvoke("where?")
    status = llm.core.status()
    assert (status.charged, status.presumed, status.in_flight, web.anthropic.calls) == (1, 0, 0, 0)
    assert status.spent_usd == pytest.approx(OPENAI_USD)
    assert not llm._environment.rests.any


@pytest.mark.parametrize("prefer", ["small", "large"])
def test_a_cache_hit(web, prefer):
    llm = routed(web, prefer, cache=InMemoryCache())
    llm.invoke("hello")
    llm.invoke("hello")
    assert len(web.openai.bodies) + web.anthropic.calls == 1
    assert llm.core.status().charged == 2
    assert llm.core.status().spent_usd == pytest.approx(USD[prefer])


@pytest.mark.parametrize("prefer", ["small", "large"])
@pytest.mark.parametrize(("status", "presumed"), [(500, 1), (429, 0), (400, 0)])
def test_a_failure_owes_nothing_where_the_request_was_refused(web, prefer, status, presumed):
    llm = routed(web, prefer)
    web.anthropic.fails = status
    web.openai.reply = (status, {"error": {"message": "down"}})
    with pytest.raises(Exception, match="down"):
        llm.invoke("hello", {"configurable": {"wise_model": prefer}})
    found = llm.core.status()
    assert (found.presumed, found.released, found.in_flight) == (presumed, 1 - presumed, 0)
    assert (found.spent_usd > 0) == bool(presumed)


@pytest.mark.parametrize("limit", ["hard", "expected"])
@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream"])
async def test_a_message_that_the_client_cannot_write_owes_nothing_and_another_answers(web, way, limit):
    both = {"small": small_model(web, max_tokens=500), "large": large_model(web, max_tokens=500)}
    budget = Budget(1.0, 100, limit=limit)
    llm = RunnableWiseRouter(models=both, prices=PRICES, budget=budget).preferring("small")
    messages = [HumanMessage([{"type": "text-plain", "text": "hello", "mime_type": "text/plain"}])]
    if way == "invoke":
        llm.invoke(messages)
    elif way == "ainvoke":
        await llm.ainvoke(messages)
    else:
        list(llm.stream(messages))
    status = llm.core.status()
    assert (status.released, status.presumed, status.charged, len(web.openai.bodies)) == (1, 0, 1, 0)
    assert not llm._environment.rests.any


@pytest.mark.parametrize("prefer", ["small", "large"])
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_provider_that_cannot_be_reached_owes_nothing_and_another_answers(web, prefer, way):
    reachable = models(web)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # a port at which nothing listens
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        absent = {
            "small": ChatOpenAI(model="gpt-4o-mini", base_url=url, api_key="sk-x", max_retries=0),
            "large": ChatAnthropic(model="claude-sonnet-4-5", base_url=url, api_key="sk-y", max_retries=0),
        }
        llm = RunnableWiseRouter(models={**reachable, prefer: absent[prefer]}, router=core(prefer), prices=PRICES)
        answer = llm.invoke("hello") if way == "invoke" else await llm.ainvoke("hello")
    assert answer.text == "an answer"
    assert answer.response_metadata["wise_router"]["failed_models"] == prefer
    status = llm.core.status()
    assert (status.presumed, status.released, status.charged) == (0, 1, 1)


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream"])
async def test_under_a_hard_budget_clients_send_a_request_once(web, way):
    bounded = {"max_tokens": 50}
    small = small_model(web, stream_usage=True, **bounded)
    large = large_model(web, max_retries=3, **bounded)
    web.anthropic.fails, web.openai.reply = 500, (500, {"error": {}})
    budget = Budget(10.0, 100, limit="hard")
    llm = RunnableWiseRouter(models={"small": small, "large": large}, prices=PRICES, budget=budget)
    with pytest.raises(Exception, match=r"500|down"):
        if way == "invoke":
            llm.invoke("hello")
        elif way == "ainvoke":
            await llm.ainvoke("hello")
        else:
            list(llm.stream("hello"))
    assert (len(web.openai.bodies), web.anthropic.calls) == (1, 1)
    assert llm.core.status().presumed == 2
    assert (small.root_client.max_retries, large.max_retries) == (2, 3)


def test_for_a_stream_without_usage_the_log_gives_the_remedy(web, caplog):
    plain = models(web)
    plain["small"] = small_model(web, max_retries=0)
    llm = RunnableWiseRouter(models=plain, router=core("small"), prices=PRICES)
    list(llm.stream("hello"))
    assert "stream_usage" in caplog.text
    assert 0 < llm.core.status().spent_usd < OPENAI_STREAM_USD


def test_prices_limits_and_capabilities_come_from_catalogue_and_profiles(web):
    llm = RunnableWiseRouter(models=models(web), budget=Budget(10.0, 100, limit="hard"))
    small, large = (llm._environment.members[name].rate_card for name in ("small", "large"))
    assert (small.source, small.price.input, small.price.output) == ("genai-prices", 1.5e-7, 6e-7)
    assert (large.price.input, large.price.cache_write) == (3e-6, 3.75e-6)
    assert len(large.long_prompt_prices) > 0
    assert (small.max_input_tokens, small.max_output_tokens) == (128_000, 16_384)
    assert llm.profile["tool_calling"] is True
    llm.invoke("hello")
    assert llm.core.status().spent_usd in (pytest.approx(OPENAI_USD), pytest.approx(ANTHROPIC_USD))
    assert llm.core.pool.models[0].max_cost_usd > 0


def test_a_cap_is_sent_to_the_provider(web):
    llm = RunnableWiseRouter(models=models(web), router=core("small"), prices=PRICES, cap_output_tokens=77)
    llm.invoke("hello")
    (body,) = web.openai.bodies
    assert body.get("max_completion_tokens") == 77 or body.get("max_tokens") == 77
