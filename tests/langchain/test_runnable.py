"""The router as a chat model: one run per call, tokens counted once, and the chosen model's own formats."""

import asyncio
from unittest.mock import MagicMock
from uuid import uuid4

import pytest
from langchain_core.callbacks import BaseCallbackHandler, CallbackManager, get_usage_metadata_callback
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tracers import LangChainTracer
from langsmith import Client

from support.chat_calls import DOORS, City, Tree, settled, weather
from support.chat_stub import OtherStub, StubChat, cost_usd, routed
from wiserouter import LabelBudget
from wiserouter.errors import (
    InvalidInput,
    UnknownDecision,
    UnknownModel,
)

PROMPT = ChatPromptTemplate.from_messages([("human", "{q}")])


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("prefer", ["small", "large"])
def test_every_door_goes_to_the_chosen_model_and_is_charged_once(door, prefer):
    llm = routed(prefer)
    DOORS[door](llm, "two words")
    status = llm.core.status()
    assert (status.charged, status.in_flight) == (1, 0)
    assert status.spent_usd == pytest.approx(cost_usd(prefer, 2 + 3, 11))


@pytest.mark.parametrize("door", DOORS)
def test_one_chain_run_with_the_models_run_below_it(door):
    tree, llm = Tree(), routed()
    DOORS[door](PROMPT | llm | StrOutputParser(), {"q": "hello"}, {"callbacks": [tree]})
    _, _, steps = tree.shape()
    (router,) = [step for step in steps if step[0] == "chain"]
    assert router[1] == "RunnableWiseRouter"
    assert [child[:2] for child in router[2]] == [("chat_model", "StubChat")]
    assert [step[0] for step in steps].count("chat_model") == 0


@pytest.mark.parametrize("door", DOORS)
def test_tokens_are_counted_once(door):
    llm = routed()
    with get_usage_metadata_callback() as counted:
        DOORS[door](llm, "two words")
    assert counted.usage_metadata["stub-large"]["total_tokens"] == 5 + 11


async def test_stream_events_come_once():
    llm = routed()
    for version in ("v1", "v2"):
        events = [event async for event in llm.astream_events("hello", version=version)]
        chunks = [event for event in events if event["event"] == "on_chat_model_stream"]
        assert len(chunks) == len(list(StubChat().stream("hello")))
    assert llm.core.status().in_flight == 0


def test_event_streams_of_version_3_sync():
    llm = routed()
    stream = llm.stream_events("hello", version="v3")
    assert "".join(stream.text) == StubChat().text
    assert llm.core.status().charged == 1
    assert llm.core.status().spent_usd == pytest.approx(cost_usd("large", 4, 11))


async def test_event_streams_of_version_3_async():
    llm, tree = routed(), Tree()
    stream = await llm.astream_events("hello", {"callbacks": [tree]}, version="v3")
    assert "".join([piece async for piece in stream.text]) == StubChat().text
    await settled(llm)
    assert llm.core.status().charged == 1
    assert tree.shape()[0] == "chain"


def test_the_record_is_on_the_answer_and_on_exactly_one_chunk():
    llm = routed()
    record = llm.invoke("hello").response_metadata["wise_router"]
    assert record["model"] == "large"
    assert set(record) == {"decision_id", "model", "context"}
    chunks = list(llm.stream("hello"))
    assert sum("wise_router" in chunk.response_metadata for chunk in chunks) == 1
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.response_metadata["wise_router"]["model"] == "large"


def test_an_answer_is_explained_by_message_decision_or_run():
    llm = routed()
    run = uuid4()
    answer = llm.invoke("hello", {"run_id": run})
    decision = answer.response_metadata["wise_router"]["decision_id"]
    for target in (answer, decision, run):
        why = llm.explain(target)
        assert (why.id, why.model, why.state) == (decision, "large", "charged")
    assert why == llm.core.explain(decision)
    for unknown in ("unknown", AIMessage("hi")):
        with pytest.raises(UnknownDecision):
            llm.explain(unknown)


@pytest.mark.parametrize("record", [{"model": "small"}, {"decision_id": ["x"]}, "an id", ["an id"]])
def test_an_answer_whose_record_names_no_decision_is_unknown(record):
    answer = AIMessage("hi", response_metadata={"wise_router": record})
    for asked in (routed().explain, lambda target: routed().feedback(target, 1.0)):
        with pytest.raises(UnknownDecision):
            asked(answer)


def test_the_record_asks_for_feedback_where_a_label_is_worth_it():
    llm = routed()
    assert "ask_feedback" not in llm.invoke("hello").response_metadata["wise_router"]
    llm.core.labels = LabelBudget(share=1.0)
    assert llm.invoke("hello").response_metadata["wise_router"]["ask_feedback"] is True
    chunks = list(llm.stream("hello"))
    assert chunks[0].response_metadata["wise_router"]["ask_feedback"] is True
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.response_metadata["wise_router"]["ask_feedback"] is True


def test_the_models_run_names_itself_for_tracers():
    tree = Tree()
    routed().invoke("hello", {"callbacks": [tree]})
    (llm_run,) = tree.roots[-1].child_runs
    assert llm_run.extra["metadata"]["ls_model_type"] == "chat"
    assert llm_run.extra["metadata"]["wise_router"]["model"] == "large"


def test_the_models_own_callbacks_and_disable_streaming_are_honoured():
    seen = []

    class Watch(BaseCallbackHandler):
        def on_llm_end(self, response, **kwargs):
            seen.append(1)

    large = StubChat(model="stub-large", callbacks=[Watch()], disable_streaming=True)
    llm = routed(models={"small": StubChat(), "large": large})
    assert len(list(llm.stream("hello"))) == 1
    assert seen == [1]


@pytest.mark.parametrize("door", ["invoke", "ainvoke", "stream", "astream"])
def test_tags_metadata_and_callbacks_of_the_router_hold_for_the_run_of_its_model(door):
    heard = []

    class Watch(BaseCallbackHandler):
        def on_chat_model_start(self, serialized, messages, *, tags=None, metadata=None, **kwargs):
            heard.append((sorted(tags), metadata["team"]))

        def on_llm_end(self, response, **kwargs):
            heard.append("end")

    watch = Watch()
    llm = routed(tags=["nostream"], metadata={"team": "a"}, callbacks=[watch])
    DOORS[door](llm, "hello", {"tags": ["asked"], "callbacks": [watch]})
    assert heard == [(["asked", "nostream"], "a"), "end"]


@pytest.mark.parametrize("door", ["invoke", "ainvoke", "stream", "astream"])
@pytest.mark.parametrize("given", [list, lambda handlers: CallbackManager(handlers, handlers)])
def test_langchain_adds_no_tracer_beside_that_of_the_router(door, given, monkeypatch):
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    monkeypatch.setattr("langchain_core.tracers.langchain.get_client", lambda: other)
    own, other = MagicMock(spec=Client, tracing_queue=None), MagicMock(spec=Client, tracing_queue=None)
    llm = routed(callbacks=given([LangChainTracer(client=own)]))
    DOORS[door](llm, "hello", {})
    assert (own.create_run.call_count, other.create_run.call_count) == (2, 0)


@pytest.mark.parametrize("prefer", ["small", "large"])
@pytest.mark.parametrize("door", ["invoke", "stream"])
def test_models_with_different_tool_formats(prefer, door):
    llm = routed(prefer, models={"small": StubChat(model="stub-small"), "large": OtherStub(model="stub-large")})
    bound = llm.bind_tools([weather])
    out = bound.invoke("weather in 'Rome'?") if door == "invoke" else None
    if door == "stream":
        for chunk in bound.stream("weather in 'Rome'?"):
            out = chunk if out is None else out + chunk
    assert out.tool_calls[0]["args"] == {"location": "Rome"}


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
def test_structured_output_is_the_models_own_and_is_charged(raw, way):
    class Native(StubChat):
        def with_structured_output(self, schema, *, include_raw=False, method="native", **kwargs):
            assert method == "native"
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)

    llm = routed(models={"small": Native(model="stub-small"), "large": Native(model="stub-large")})
    structured = llm.with_structured_output(City, include_raw=raw, method="native")
    out = DOORS[way](structured, "a city like 'Rome'")
    pieces = out if isinstance(out, list) else [out]
    parsed = [piece["parsed"] for piece in pieces if "parsed" in piece] if raw else pieces
    assert parsed[-1] == City(city="Rome")
    assert llm.core.status().charged == 1
    assert llm.core.status().spent_usd > 0


def test_the_chunks_of_a_structured_answer_are_those_that_add_up():
    first, *others = routed().with_structured_output(City, include_raw=True).stream("a city like 'Rome'")
    for chunk in others:
        first = first.__add__(chunk)
    assert first["parsed"] == City(city="Rome")
    assert first["raw"].response_metadata["wise_router"]["model"] == "large"


def test_a_structured_router_reads_messages_as_what_they_are():
    schema = routed().with_structured_output(City).get_input_schema()
    (message,) = schema.model_validate([{"type": "human", "content": "hi"}]).root
    assert message == HumanMessage("hi")


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("way", DOORS)
def test_arguments_of_a_structured_call_reach_the_model(raw, way):
    heard = []

    class Hears(StubChat):
        def _answer(self, messages, **kw):
            heard.append((kw.get("seed"), kw.get("reasoning_effort")))
            return super()._answer(messages, **kw)

    models = {name: Hears(model=f"stub-{name}").bind(reasoning_effort="low", seed=1) for name in ("small", "large")}
    structured = routed(models=models).with_structured_output(City, include_raw=raw)
    assert DOORS[way](structured.bind(seed=7), "a city like 'Rome'")
    assert heard == [(7, "low")]


def test_bind_tools_through_fallbacks_binds_every_model():
    broken = routed(models={"small": StubChat(fail=True), "large": StubChat(fail=True)})
    bound = broken.with_fallbacks([routed("small")]).bind_tools([weather])
    assert bound.invoke("weather in 'Rome'?").tool_calls[0]["args"] == {"location": "Rome"}
    structured = broken.with_fallbacks([routed("small")]).with_structured_output(City)
    assert structured.invoke("a city like 'Rome'") == City(city="Rome")
    status = broken.core.status()
    assert (status.charged, status.presumed, status.in_flight) == (0, 4, 0)


def test_a_model_can_be_forced_everywhere():
    llm = routed("large")
    forced = {"configurable": {"wise_model": "small"}}
    llm.invoke("hello", forced)
    (PROMPT | llm).invoke({"q": "hello"}, forced)
    llm.bind_tools([weather]).invoke("hello", forced)
    llm.with_structured_output(City).invoke("hello", forced)
    llm.with_config(forced).invoke("hello")
    assert (llm.core.estimates.calls[0] - 50).tolist() == [5.0, 0.0]
    with pytest.raises(UnknownModel, match="small, large; got 'huge'"):
        llm.invoke("hello", {"configurable": {"wise_model": "huge"}})
    assert [spec.id for spec in llm.config_specs] == ["wise_model", "wiserouter_scope", "wiserouter_value"]


@pytest.mark.parametrize("forced", [["small"], {"small": 1}, 1])
def test_a_forced_model_that_is_no_name_is_refused(forced):
    llm = routed()
    with pytest.raises(InvalidInput, match="wise_model must be the name of a model, got"):
        llm.invoke("hello", {"configurable": {"wise_model": forced}})
    assert llm.core.status().decided == 0


def test_generate_routes_and_never_bills_twice():
    llm = routed()
    result = llm.generate([[HumanMessage("a")], [HumanMessage("b")]])
    assert [row[0].message.text for row in result.generations] == [StubChat().text] * 2
    assert len({run.run_id for run in result.run}) == 2
    asyncio.run(llm.agenerate([[HumanMessage("c")]]))
    assert llm.core.status().charged == 3
    with pytest.raises(NotImplementedError, match="never generates itself"):
        llm._generate([])
