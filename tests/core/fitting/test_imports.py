"""Records of each system, in its own published format, become calls and scores of one log."""

import json
from unittest.mock import Mock
from uuid import UUID

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.recorded_calls import (
    ASK,
    BEGAN_S,
    OBSERVATION,
    OBSERVATION_V2,
    OPENINFERENCE,
    PAYLOAD,
    PHOENIX_ROW,
    PHOENIX_SPAN,
    RECORDS,
    SPAN_ATTRIBUTES,
    TRACE,
    TRACE_ROW,
    evaluation,
    langsmith_run,
    otlp,
    source,
    write_lines,
)
from wiserouter.errors import LogError
from wiserouter.fitting.imports.calls import time_of
from wiserouter.fitting.imports.litellm import REDACTED
from wiserouter.fitting.imports.log_writer import LogWriter
from wiserouter.fitting.imports.records import records_of
from wiserouter.fitting.imports.run_import import Wanted, import_files, import_pages
from wiserouter.fitting.imports.scores import Scores
from wiserouter.fitting.imports.sources import SOURCES, source_of


@pytest.mark.parametrize("name", [*RECORDS, "langsmith"])
def test_a_record_of_each_system_becomes_the_same_call(name, tmp_path):
    record = langsmith_run() if name == "langsmith" else RECORDS[name]
    reader = source_of("litellm-payloads") if name == "litellm-payloads" else source(name)
    (call,) = reader.calls(record)
    log = LogWriter(tmp_path / "a.parquet", {}, request={})
    log.add(call, None)
    log.finish()
    row = pl.read_parquet(tmp_path / "a.parquet").row(0, named=True)
    cost = None if name == "otel" else 0.002  # the conventions have no cost
    assert row == {
        "call_id": "00000000-0000-0000-0000-000000000001" if name == "langsmith" else "c-1",
        "prompt": "sort a list",
        "model": "gpt-mini",
        "conversation": "s-1",
        "group": row["group"],
        "reward": None,
        "cost_usd": cost,
        "latency_s": 2.0,
        "started_s": BEGAN_S,
        "input_tokens": 100,
        "output_tokens": 20,
        "cached_tokens": 30,
    }


FEEDBACK = {"id": "f", "run_id": str(UUID(int=2)), "trace_id": str(UUID(int=2)), "key": "helpful", "score": 1.0}

SCORED = {
    "langfuse": (OBSERVATION, {"id": "x", "traceId": "t-1", "name": "helpful", "value": 1, "dataType": "BOOLEAN"}),
    "langfuse-of-a-session": (OBSERVATION, {"id": "x", "sessionId": "s-1", "name": "helpful", "value": 1.0}),
    "langfuse-of-an-observation-as-subject": (
        OBSERVATION,
        {
            "id": "x",
            "name": "helpful",
            "value": True,
            "dataType": "BOOLEAN",
            "subject": {"kind": "observation", "id": "c-1", "traceId": "t-1"},
        },
    ),
    "langfuse-of-a-trace-as-subject": (
        OBSERVATION,
        {"id": "x", "name": "helpful", "value": 1.0, "dataType": "NUMERIC", "subject": {"kind": "trace", "id": "t-1"}},
    ),
    "mlflow": (TRACE, {}),
    "mlflow-row": (TRACE_ROW, {}),
    "otel": (otlp(SPAN_ATTRIBUTES, [{"name": "gen_ai.evaluation.result", "attributes": evaluation(1.0)}]), {}),
    "otel-log": (
        otlp(SPAN_ATTRIBUTES),
        {
            "resourceLogs": [
                {
                    "scopeLogs": [
                        {
                            "logRecords": [
                                {
                                    "eventName": "gen_ai.evaluation.result",
                                    "attributes": [
                                        *evaluation(1.0),
                                        {"key": "gen_ai.response.id", "value": {"stringValue": "chatcmpl-1"}},
                                    ],
                                }
                            ]
                        }
                    ]
                }
            ]
        },
    ),
    "phoenix": (
        PHOENIX_SPAN,
        {"id": "x", "span_id": "c-1", "name": "helpful", "annotator_kind": "HUMAN", "result": {"score": 1.0}},
    ),
    "phoenix-of-a-trace": (
        PHOENIX_SPAN,
        {"id": "x", "trace_id": "t-1", "name": "helpful", "annotator_kind": "HUMAN", "result": {"score": 1.0}},
    ),
    "phoenix-of-a-session": (
        PHOENIX_SPAN,
        {"id": "x", "session_id": "s-1", "name": "helpful", "annotator_kind": "HUMAN", "result": {"score": 1.0}},
    ),
    "litellm-payloads": (PAYLOAD, {"request_id": "c-1", "outcome": "real"}),
}


@pytest.mark.parametrize("name", [*SCORED, "langsmith"])
def test_a_score_of_each_system_finds_its_call(name, tmp_path):
    record, score = (langsmith_run(), FEEDBACK) if name == "langsmith" else SCORED[name]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (score, record) if one))
    reader = source_of("litellm-payloads") if name == "litellm-payloads" else source(name)
    log = LogWriter(tmp_path / "a.parquet", {}, request={})
    counts = import_files(reader, [path], [], Scores(), Wanted(), log, lambda *_: None)
    assert (counts.calls, counts.no_score) == (1, 0)
    assert pl.read_parquet(tmp_path / "a.parquet")["reward"].to_list() == [1.0]


def test_a_run_of_the_second_interface_of_langsmith_is_read():
    run = {  # `client.runs.query`
        "id": "c-1",
        "name": "ChatOpenAI",
        "run_type": "LLM",
        "status": "SUCCESS",
        "trace_id": "t-1",
        "parent_run_ids": ["t-1", "p-1"],
        "project_id": "p",
        "thread_id": "s-1",
        "inputs": {"messages": ASK},
        "metadata": {"ls_model_name": "gpt-mini"},
        "extra": {"invocation_params": {"model": "gpt-mini-2026"}},
        "prompt_token_details": {"raw": {"cache_read": 30}},
    }
    (call,) = SOURCES["langsmith"].calls(run)
    assert (call.ids, call.model) == (("c-1", "p-1", "t-1", "s-1"), "gpt-mini")
    assert (call.cached_tokens, call.conversation, call.parent) == (30, "s-1", "p-1")


ROOT, PARENT = str(UUID(int=2)), str(UUID(int=3))


@pytest.mark.parametrize("text", ["['{}', '{}']", '["{}", "{}"]', "[UUID('{}'), UUID('{}')]", "{},{}"])
def test_the_parents_of_a_langsmith_run_may_be_text(text):
    record = {**langsmith_run(), "parent_run_ids": text.format(ROOT, PARENT)}
    (call,) = SOURCES["langsmith"].calls(record)
    assert call.ids == (str(UUID(int=1)), PARENT, ROOT, "s-1")


@pytest.mark.parametrize("written", [str, json.dumps])
def test_the_inputs_of_a_langsmith_run_may_be_text(written, tmp_path):
    run = langsmith_run()
    log = LogWriter(tmp_path / "a.parquet", {}, request={})
    for call in SOURCES["langsmith"].calls({**run, "inputs": written(run["inputs"]), "extra": written(run["extra"])}):
        log.add(call, None)
    log.finish()
    rows = pl.read_parquet(tmp_path / "a.parquet")
    assert (rows["prompt"].to_list(), rows["model"].to_list()) == (["sort a list"], ["gpt-mini"])


def test_old_observations_of_langfuse_have_their_tokens_beside_the_model():
    old = {name: value for name, value in OBSERVATION.items() if name != "usageDetails"}
    (call,) = SOURCES["langfuse"].calls({**old, "promptTokens": 100, "completionTokens": 20, "input": "42"})
    assert (call.input_tokens, call.output_tokens) == (100, 20)


def mlflow_2(status_code):
    """Return a trace as `Trace.to_dict` of MLflow 2 has it."""
    span = {
        "name": "answer",
        "context": {"span_id": "0x1", "trace_id": "0x2"},
        "parent_id": "0x3",
        "start_time": 1793491200000000000,
        "end_time": 1793491202000000000,
        "status_code": status_code,
        "attributes": {"mlflow.spanType": '"LLM"', "model": '"gpt-mini"', "mlflow.spanInputs": '"sort a list"'},
    }
    info = {"request_id": "t-1", "request_metadata": {"mlflow.trace.session": "s-1"}, "tags": {}}
    return {"info": info, "data": {"spans": [span]}}


def test_a_trace_of_mlflow_2_has_its_session_the_ids_of_its_spans_and_its_failures():
    (call,), (failed,) = (list(SOURCES["mlflow"].calls(mlflow_2(code))) for code in ("OK", "ERROR"))
    assert (call.ids, call.conversation) == (("0x1", "0x3", "t-1", "s-1"), "s-1")
    assert (call.failed, failed.failed) == (False, True)


NAMELESS = {
    "litellm": {**PAYLOAD, "model": ""},
    "langfuse": {**OBSERVATION, "model": None},
    "langsmith": {"run_type": "llm", "id": "c-1", "inputs": {"messages": ASK}},
    "mlflow": {"data": {"spans": [{"attributes": {"mlflow.spanType": '"LLM"', "mlflow.spanInputs": '"hi"'}}]}},
    "otel": otlp({"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(ASK)}),
    "phoenix": {**PHOENIX_SPAN, "attributes": {"input.value": "hi"}},
}


@pytest.mark.parametrize("name", NAMELESS)
def test_calls_without_the_name_of_a_model_are_counted(name, tmp_path):
    write_lines(tmp_path / "a.jsonl", [NAMELESS[name]])
    log = LogWriter(tmp_path / "a.parquet", {}, request={})
    counts = import_files(source(name), [tmp_path / "a.jsonl"], [], Scores(), Wanted(), log, lambda *_: None)
    assert (counts.records, counts.calls, counts.no_model) == (1, 0, 1)


@pytest.mark.parametrize(
    "record", [{"id": "x", "input": "hi"}, {"name": "GET /", "attributes": {"http.method": "GET"}}]
)
def test_what_does_not_say_that_it_calls_a_model_is_no_call(record):
    assert [name for name in SOURCES if list(SOURCES[name].calls(record))] == []


@pytest.mark.parametrize(
    ("source", "record"),
    [
        ("litellm-payloads", {"call_id": "c-1", "score": None}),
        ("litellm-payloads", {"call_id": None, "score": 1.0}),
        ("langfuse", {"traceId": "t-1", "name": "helpful", "value": None}),
        ("phoenix", {"span_id": "s-1", "annotation_name": "good", "annotator_kind": "HUMAN", "result.score": None}),
    ],
)
def test_a_file_of_scores_whose_values_are_all_missing_counts_its_records(tmp_path, source, record):
    write_lines(tmp_path / "s.jsonl", [record] * 2)
    scores = Scores()
    import_pages(source_of(source), [], [], [tmp_path / "s.jsonl"], scores, Wanted(), Mock(), Mock())
    assert scores.unread == 2


@pytest.mark.parametrize("value", ["sort a list", json.dumps({"messages": ASK}), json.dumps(ASK)])
def test_a_span_without_messages_has_its_prompt_in_its_input(value, tmp_path):
    (call,) = SOURCES["phoenix"].calls({**PHOENIX_SPAN, "attributes": {"llm.model_name": "m", "input.value": value}})
    log = LogWriter(tmp_path / "a.parquet", {}, request={})
    log.add(call, None)
    log.finish()
    assert pl.read_parquet(tmp_path / "a.parquet")["prompt"].to_list() == ["sort a list"]


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("litellm-payloads", {**PAYLOAD, "messages": [{"role": "user", "content": REDACTED}]}),
        ("litellm-payloads", {**PAYLOAD, "messages": REDACTED}),
        ("langfuse", {**OBSERVATION, "input": REDACTED}),
    ],
)
def test_what_litellm_has_redacted_is_no_prompt(name, record, tmp_path):
    log = LogWriter(tmp_path / "a.parquet", {}, request={})
    for call in SOURCES[name].calls(record):
        log.add(call, None)
    assert (log.counts.calls, log.counts.no_prompt) == (0, 1)


@pytest.mark.parametrize("hit", [True, "True", False, None])
def test_an_answer_of_litellms_cache_in_langfuse_is_left_out(hit):
    (call,) = SOURCES["langfuse"].calls({**OBSERVATION, "metadata": {"cache_hit": hit}})
    assert call.failed == (str(hit) == "True")


@pytest.mark.parametrize("text", ['{"a": 1', "nothing", '{"a": 1}\n{"b": ', "[" * 100_000])
def test_a_damaged_export_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(LogError) as refused:
        list(records_of(tmp_path / "a.jsonl"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("indent", [None, 1])
def test_an_export_may_begin_with_a_byte_order_mark(indent, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(PAYLOAD, indent=indent) + "\n", encoding="utf-8-sig")
    assert list(records_of(tmp_path / "a.jsonl")) == [PAYLOAD]


def test_pages_of_an_api_kept_as_lines_give_their_records(tmp_path):
    pages = [{"data": [OBSERVATION, OBSERVATION], "meta": {"page": n}} for n in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    assert len(list(records_of(tmp_path / "a.jsonl"))) == 6


@pytest.mark.parametrize("value", ["x", None, [], {}, "2026-13-01", float("nan")])
def test_what_is_no_time_has_none(value):
    assert time_of(value) is None


NAMES = {
    *PAYLOAD,
    *OBSERVATION,
    *OBSERVATION_V2,
    *SPAN_ATTRIBUTES,
    *OPENINFERENCE,
    *PHOENIX_ROW,
    *PHOENIX_SPAN,
    *("info", "data", "spans", "attributes", "assessments", "feedback", "value", "events", "resourceSpans"),
    *("scopeSpans", "resourceLogs", "scopeLogs", "logRecords", "extra", "run_type", "inputs", "key", "score", "result"),
    *("status", "code", "eventName", "body", "dataType", "name", "resource_spans", "events", "values", "kvlistValue"),
}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(NAMES)), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(sorted(NAMES)), anything, max_size=8))
def test_no_record_breaks_an_importer(record):
    for reader in SOURCES.values():
        for call in reader.calls(record):
            assert isinstance(call.model, str)
            assert all(isinstance(one, str) for one in call.ids)
        list(reader.scores(record))


@pytest.mark.parametrize(
    ("more", "model"),
    [
        ({"model_parameters": {"reasoning_effort": "low"}}, "gpt-mini@low"),
        ({"proxy_server_request": '{"reasoning": {"effort": "high"}}'}, "gpt-mini@high"),
        ({"proxy_server_request": {"body": {"reasoning_effort": "low"}}, "model_parameters": {}}, "gpt-mini@low"),
        ({"model_parameters": {"reasoning_effort": {"effort": "low"}}}, "gpt-mini"),
        ({"model_parameters": {"reasoning_effort": None, "temperature": 1}}, "gpt-mini"),
    ],
)
def test_litellm_calls_with_an_effort_are_those_of_an_arm(more, model):
    (call,) = SOURCES["litellm"].calls({**PAYLOAD, **more})
    assert call.model == model


@pytest.mark.parametrize("kind", ["aembedding", "embedding", "aimage_generation", "aspeech", "amoderation", "arerank"])
def test_litellm_calls_that_answer_with_no_text_are_no_calls(kind):
    assert not list(SOURCES["litellm"].calls({**PAYLOAD, "call_type": kind}))


@pytest.mark.parametrize("kind", ["", None, "acompletion", "atext_completion", "aresponses", "anthropic_messages"])
def test_litellm_calls_that_answer_with_a_text_are_calls(kind):
    assert len(list(SOURCES["litellm"].calls({**PAYLOAD, "call_type": kind}))) == 1


@pytest.mark.parametrize("metadata", [{"status": "failure"}, '{"status": "failure"}'])
def test_a_failure_of_an_earlier_litellm_stands_in_its_metadata(metadata):
    earlier = {name: value for name, value in PAYLOAD.items() if name != "status"}
    (call,) = SOURCES["litellm"].calls({**earlier, "metadata": metadata})
    assert call.failed
