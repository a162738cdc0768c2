"""One call as each system records it, in its own published format, and how such records are read and written."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from wiserouter.fitting.imports.sources import SOURCES, source_of

ASK = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "sort a list"}]

BEGAN_S = 1793491200.0

PAYLOAD = {
    "id": "chatcmpl-1",
    "litellm_call_id": "c-1",
    "trace_id": "t-1",
    "session_id": "s-1",
    "call_type": "acompletion",
    "status": "success",
    "model": "gpt-mini",
    "model_group": "wise",
    "response_cost": 0.002,
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "startTime": BEGAN_S,
    "endTime": BEGAN_S + 2.0,
    "cache_hit": None,
    "messages": ASK,
    "metadata": {"usage_object": {"prompt_tokens_details": {"cached_tokens": 30}}},
}

OBSERVATION = {
    "id": "c-1",
    "traceId": "t-1",
    "parentObservationId": "p-1",
    "type": "GENERATION",
    "name": "answer",
    "level": "DEFAULT",
    "model": "gpt-mini",
    "input": {"messages": ASK},
    "startTime": "2026-11-01T00:00:00.000Z",
    "endTime": "2026-11-01T00:00:02.000Z",
    "usageDetails": {"input": 70, "input_cached_tokens": 30, "output": 20, "total": 120},
    "costDetails": {"total": 0.002},
    "sessionId": "s-1",
}

OBSERVATION_V2 = {
    "id": "c-1",
    "trace_id": "t-1",
    "type": "GENERATION",
    "provided_model_name": "gpt-mini",
    "input": json.dumps(ASK),
    "start_time": "2026-11-01T00:00:00+00:00",
    "end_time": "2026-11-01T00:00:02+00:00",
    "usage_details": {"input": 70, "input_cached_tokens": 30, "output": 20},
    "total_cost": 0.002,
    "session_id": "s-1",
}

SPAN_ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt",
    "gen_ai.response.model": "gpt-mini",
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 20,
    "gen_ai.usage.cache_read.input_tokens": 30,
    "gen_ai.conversation.id": "s-1",
    "gen_ai.input.messages": json.dumps(
        [{"role": "user", "parts": [{"type": "text", "content": "sort a list"}]}],
    ),
}

OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "gpt-mini",
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "Be kind.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.content": "sort a list",
    "llm.token_count.prompt": 100,
    "llm.token_count.completion": 20,
    "llm.token_count.prompt_details.cache_read": 30,
    "llm.cost.total": 0.002,
    "session.id": "s-1",
}


def otlp_value(value):
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def otlp(attributes, events=()):
    """Return one request of OTLP JSON, as the file exporter of the collector writes it."""
    listed = [{"key": name, "value": otlp_value(value)} for name, value in attributes.items()]
    span = {
        "traceId": "t-1",
        "spanId": "c-1",
        "parentSpanId": "p-1",
        "name": "chat gpt-mini",
        "startTimeUnixNano": "1793491200000000000",
        "endTimeUnixNano": "1793491202000000000",
        "attributes": listed,
        "status": {},
        "events": list(events),
    }
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [span]}]}]}


def evaluation(value, name="helpful"):
    attributes = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value}
    return [{"key": key, "value": otlp_value(one)} for key, one in attributes.items()]


PHOENIX_ROW = {  # one row of `get_spans_dataframe`
    "context.span_id": "c-1",
    "context.trace_id": "t-1",
    "parent_id": "p-1",
    "span_kind": "LLM",
    "start_time": datetime(2026, 11, 1, tzinfo=UTC),
    "end_time": datetime(2026, 11, 1, 0, 0, 2, tzinfo=UTC),
    "status_code": "OK",
    "attributes.llm.model_name": "gpt-mini",
    "attributes.llm.input_messages": [{"message.role": "user", "message.content": "sort a list"}],
    "attributes.llm.token_count.prompt": 100.0,
    "attributes.llm.token_count.completion": 20.0,
    "attributes.llm.token_count.prompt_details.cache_read": 30.0,
    "attributes.llm.cost.total": 0.002,
    "attributes.session.id": "s-1",
}

PHOENIX_SPAN = {  # one object of `client.spans.get_spans`
    "context": {"span_id": "c-1", "trace_id": "t-1"},
    "parent_id": "p-1",
    "span_kind": "LLM",
    "start_time": "2026-11-01T00:00:00+00:00",
    "end_time": "2026-11-01T00:00:02+00:00",
    "status_code": "OK",
    "attributes": OPENINFERENCE,
}

TRACE = {  # `Trace.to_dict`
    "info": {
        "trace_id": "t-1",
        "state": "OK",
        "trace_metadata": {"mlflow.trace.session": "s-1"},
        "assessments": [
            {"assessment_name": "helpful", "feedback": {"value": True}, "source": {"source_type": "HUMAN"}},
            {"assessment_name": "helpful", "feedback": {"value": False}, "valid": False},
            {"assessment_name": "expected", "expectation": {"value": "42"}},
        ],
    },
    "data": {
        "spans": [
            {"span_id": "p-1", "attributes": {"mlflow.spanType": '"AGENT"'}},
            {
                "span_id": "c-1",
                "parent_span_id": "p-1",
                "name": "answer",
                "start_time_unix_nano": 1793491200000000000,
                "end_time_unix_nano": 1793491202000000000,
                "status": {"code": "STATUS_CODE_OK"},
                "attributes": {
                    "mlflow.spanType": '"CHAT_MODEL"',
                    "mlflow.llm.model": '"gpt-mini"',
                    "mlflow.spanInputs": json.dumps({"messages": ASK}),
                    "mlflow.chat.tokenUsage": json.dumps(
                        {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 30}
                    ),
                    "mlflow.llm.cost": json.dumps({"total_cost": 0.002}),
                },
            },
        ]
    },
}

TRACE_ROW = {"trace_id": "t-1", "trace": json.dumps(TRACE), "state": "OK"}  # of the table of `search_traces`


def langsmith_run():
    """Return a run as LangSmith's own client has it."""
    schemas = pytest.importorskip("langsmith").schemas
    run, root = UUID(int=1), UUID(int=2)
    made = schemas.Run(
        id=run,
        name="answer",
        run_type="llm",
        trace_id=root,
        parent_run_id=root,
        parent_run_ids=[root],
        dotted_order="a",
        start_time=datetime(2026, 11, 1, tzinfo=UTC),
        end_time=datetime(2026, 11, 1, 0, 0, 2, tzinfo=UTC),
        inputs={"messages": [[{"lc": 1, "id": ["a", "HumanMessage"], "kwargs": {"content": "sort a list"}}]]},
        extra={"metadata": {"ls_model_name": "gpt-mini", "session_id": "s-1"}},
        prompt_tokens=100,
        completion_tokens=20,
        prompt_token_details={"cache_read": 30},
        total_cost="0.002",
    )
    return json.loads(made.model_dump_json(include=set(schemas.Run.model_fields)))


RECORDS = {
    "litellm-payloads": PAYLOAD,
    "langfuse": OBSERVATION,
    "langfuse-v2": OBSERVATION_V2,
    "mlflow": TRACE,
    "mlflow-row": TRACE_ROW,
    "otel": otlp(SPAN_ATTRIBUTES),
    "otel-openinference": otlp(OPENINFERENCE),
    "phoenix": PHOENIX_SPAN,
    "phoenix-row": PHOENIX_ROW,
}


def source(name):
    return source_of(next(one for one in SOURCES if name == one or name.startswith(one + "-")))


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
