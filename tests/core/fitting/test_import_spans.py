"""Spans as instrumentations of several years write them: former names, messages in events, the names of LiteLLM."""

import json

import pytest

from wiserouter.fitting.imports.calls import json_of
from wiserouter.fitting.imports.sources import SOURCES
from wiserouter.prompts.messages import question_text

ASK = [{"role": "system", "content": "be short"}, {"role": "user", "content": "sort a list"}]
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-mini"}
USED = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20}
FORMERLY_USED = {"gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 20}


def event(name, **attributes):
    return {"name": name, "attributes": attributes}


def message_events(spread):
    return [event(f"gen_ai.{one['role']}.message", **spread(one)) for one in ASK]


KNOWN = {
    "LiteLLM": (
        {
            "gen_ai.operation.name": "acompletion",
            "llm.request.type": "acompletion",
            "gen_ai.request.model": "gpt-mini",
            "litellm.call_id": "c-2",
            **USED,
            "gen_ai.input.messages": json.dumps(
                [{"role": one["role"], "parts": [{"type": "text", "content": one["content"]}]} for one in ASK]
            ),
        },
        [],
    ),
    "OpenLLMetry": (
        {
            "llm.request.type": "chat",
            "gen_ai.request.model": "gpt-mini",
            **FORMERLY_USED,
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "sort a list",
        },
        [],
    ),
    "OpenLLMetry, several parts": (
        {
            "llm.request.type": "chat",
            "gen_ai.request.model": "gpt-mini",
            **FORMERLY_USED,
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": json.dumps([{"type": "text", "text": "sort a list"}]),
        },
        [],
    ),
    "the AI SDK": ({"gen_ai.request.model": "gpt-mini", "ai.prompt.messages": json.dumps(ASK), **USED}, []),
    "conventions 1.27": ({**CHAT, **USED}, [event("gen_ai.content.prompt", **{"gen_ai.prompt": json.dumps(ASK)})]),
    "conventions 1.28": (
        {**CHAT, **USED},
        message_events(lambda one: {"gen_ai.event.content": json.dumps(one)}),
    ),
    "events with a content": ({**CHAT, **USED}, message_events(lambda one: {"content": one["content"]})),
    "events as an attribute": (
        {
            **CHAT,
            **USED,
            "events": json.dumps([{"event.name": f"gen_ai.{one['role']}.message", **one} for one in ASK]),
        },
        [],
    ),
    "conventions 1.37, as an event": (
        {**CHAT, **USED},
        [event("gen_ai.client.inference.operation.details", **{"gen_ai.input.messages": json.dumps(ASK)})],
    ),
    "OpenInference, several parts": (
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "gpt-mini",
            "llm.token_count.prompt": 100,
            "llm.token_count.completion": 20,
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.contents.0.message_content.type": "text",
            "llm.input_messages.0.message.contents.0.message_content.text": "sort a list",
            "llm.input_messages.0.message.contents.1.message_content.type": "image",
        },
        [],
    ),
    "Phoenix, several parts": (
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "gpt-mini",
            "llm.token_count.prompt": 100,
            "llm.token_count.completion": 20,
            "llm.input_messages": [
                {
                    "message.role": "user",
                    "message.contents": [{"message_content": {"type": "text", "text": "sort a list"}}],
                }
            ],
        },
        [],
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_span_of_each_instrumentation_is_a_call(name):
    attributes, events = KNOWN[name]
    (call,) = SOURCES["otel"].calls({"span_id": "s-1", "attributes": attributes, "events": events})
    assert (call.model, question_text(call.prompt)) == ("gpt-mini", "sort a list")
    assert (call.input_tokens, call.output_tokens, call.cost_usd) == (100, 20, None)


def test_a_span_of_litellm_has_its_cost_and_its_call_id():
    attributes, _ = KNOWN["LiteLLM"]
    (call,) = SOURCES["otel"].calls({"span_id": "s-1", "attributes": {**attributes, "gen_ai.cost.total_cost": 0.002}})
    assert (call.cost_usd, call.ids) == (0.002, ("s-1", "c-2"))


def test_a_span_of_litellms_proxy_has_the_model_that_answered():
    attributes, _ = KNOWN["LiteLLM"]
    proxied = {**attributes, "litellm.model_group": "wise", "gen_ai.response.model": "wise"}
    (call,) = SOURCES["otel"].calls({"span_id": "s-1", "attributes": proxied})
    assert (call.model, call.group) == ("gpt-mini", "wise")


@pytest.mark.parametrize("name", KNOWN)
def test_spans_of_other_conventions_are_calls_where_phoenix_has_kept_them(name):
    attributes, events = KNOWN[name]
    kept = {"context": {"span_id": "s-1"}, "span_kind": "UNKNOWN", "attributes": attributes, "events": events}
    assert len(list(SOURCES["phoenix"].calls(kept))) == 1


def test_a_message_of_parts_in_a_table_of_phoenix_has_its_text_beside_empty_columns():
    parts = [
        {"message_content.type": "text", "message_content.text": "sort a list", "message_content.image": None},
        {"message_content.type": "image", "message_content.text": None, "message_content.image": {"image.url": "u"}},
    ]
    message = {"message.role": "user", "message.content": None, "message.tool_calls": None, "message.contents": parts}
    row = {"attributes.llm.model_name": "gpt-mini", "attributes.llm.input_messages": [message]}
    (call,) = SOURCES["phoenix"].calls({"context.span_id": "s-1", "span_kind": "LLM", **row})
    assert question_text(call.prompt) == "sort a list"


def test_messages_that_pandas_has_written_to_csv_are_read():
    written = str([{"message.role": "user", "message.content": "sort a 'list'"}])
    row = {"attributes.llm.model_name": "gpt-mini", "attributes.llm.input_messages": written}
    (call,) = SOURCES["phoenix"].calls({"context.span_id": "s-1", "span_kind": "LLM", **row})
    assert question_text(call.prompt) == "sort a 'list'"


def test_a_literal_with_an_invalid_escape_is_read_without_a_warning():
    assert json_of(r"{'content': '\d'}") == {"content": r"\d"}


@pytest.mark.parametrize(
    "text",
    [
        "{'a', 'b'}",
        "{'a': 1} is a dict",
        "{'a': __import__('os')}",
        "[{'a': array([1])}]",
        "[{'a': " * 20_000,
        "[{'" + "[" * 100_000,
        "{'a': " + "-" * 100_000 + "1}",
        f"{{'a': '{'b' * 2**20}'}}",
    ],
)
def test_what_is_no_literal_of_an_object_stays_a_text(text):
    assert json_of(text) == text


def test_a_span_of_pydantic_ai_has_its_cost():
    (call,) = SOURCES["otel"].calls({"span_id": "s-1", "attributes": {**CHAT, **USED, "operation.cost": 0.002}})
    assert call.cost_usd == 0.002


def test_a_score_of_a_step_counts_for_its_calls_in_spans_of_the_python_sdk():
    step, call = ({"trace_id": "0xaa", "span_id": span_id} for span_id in ("0xcc", "0xbb"))
    score = {"gen_ai.evaluation.name": "good", "gen_ai.evaluation.score.value": 1.0}
    (found,) = SOURCES["otel"].scores({"context": step, "events": [event("gen_ai.evaluation.result", **score)]})
    (called,) = SOURCES["otel"].calls({"context": call, "parent_id": "0xcc", "attributes": CHAT})
    assert called.ids == ("bb", found.target, "aa")


@pytest.mark.parametrize(
    "kind", [{"llm.request.type": "embedding"}, {"llm.request.type": "rerank"}, {"gen_ai.operation.name": "aembedding"}]
)
def test_what_answers_with_no_text_is_no_call(kind):
    attributes = {"gen_ai.request.model": "embedder", "gen_ai.prompt.0.content": "sort a list", **kind}
    assert not list(SOURCES["otel"].calls({"span_id": "s-1", "attributes": attributes}))


@pytest.mark.parametrize("text", ["{'city': 'Bonn'}", '{"city": "Bonn"}', "[{'city': 'Bonn'}]", "[1, 2]"])
def test_a_text_that_looks_like_an_object_is_the_prompt_where_it_holds_no_messages(text):
    asked = event("gen_ai.user.message", content=text)
    records = {
        "otel": {"spanId": "a", "attributes": CHAT, "events": [asked]},
        "phoenix": {"span_kind": "LLM", "attributes": {"llm.model_name": "gpt-mini", "input.value": text}},
        "langfuse": {"type": "GENERATION", "model": "gpt-mini", "input": text},
        "litellm-payloads": {"model": "gpt-mini", "call_type": "atext_completion", "messages": text},
    }
    for name, record in records.items():
        (call,) = SOURCES[name].calls(record)
        assert question_text(call.prompt) == text, name
