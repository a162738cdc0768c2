"""Records of each system, in its own published format, become calls and scores of one log."""

import gzip
import json
from datetime import UTC, datetime
from unittest.mock import Mock
from uuid import UUID

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from wiserouter import Price, WiseRouter
from wiserouter.cli import app
from wiserouter.errors import InvalidInput, LogError
from wiserouter.fitting.imports import log_writer
from wiserouter.fitting.imports.calls import ImportedCall, time_of
from wiserouter.fitting.imports.litellm import REDACTED
from wiserouter.fitting.imports.log_writer import LogWriter
from wiserouter.fitting.imports.records import records_of
from wiserouter.fitting.imports.run_import import Wanted, import_files, import_pages, request_of
from wiserouter.fitting.imports.scores import Scores
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
    "otel": otlp(SPAN_ATTRIBUTES),
    "otel-openinference": otlp(OPENINFERENCE),
    "phoenix": PHOENIX_SPAN,
    "phoenix-row": PHOENIX_ROW,
}


def source(name):
    return source_of(next(one for one in SOURCES if name == one or name.startswith(one + "-")))


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
    "mlflow": (TRACE, {}),
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


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def run(*arguments):
    return CliRunner().invoke(app, ["log", "import", *map(str, arguments)])


def test_the_command_imports_files_and_the_log_can_be_fitted(tmp_path):
    lines = [
        {**PAYLOAD, "id": f"i-{n}", "litellm_call_id": f"c-{n}", "model": ("a", "b")[n % 2], "startTime": BEGAN_S + n}
        for n in range(40)
    ]
    lines[7]["status"] = "failure"
    lines[8]["messages"] = None
    lines[9]["response_cost"] = None
    (tmp_path / "calls.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(x) + "\n" for x in lines).encode()))
    (tmp_path / "stars.csv").write_text("call_id,rating\n" + "".join(f"c-{n},{1 + n % 5}\n" for n in range(0, 40, 3)))
    (tmp_path / "prices.json").write_text(json.dumps({"b": {"price": {"input": 1e-6, "output": 2e-6}}}))
    log = tmp_path / "log.parquet"
    done = run(
        "litellm-payloads",
        tmp_path / "calls.jsonl.gz",
        "-o",
        log,
        "--scores",
        tmp_path / "stars.csv",
        "--scale",
        "1..5",
        "--prices",
        tmp_path / "prices.json",
        "--json",
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["calls"], told["failed"], told["no_prompt"], told["priced"], told["no_cost"]) == (38, 1, 1, 1, 0)
    assert told["no_score"] == 38 - 14
    assert told["models"] == {"a": 19, "b": 19}
    frame = pl.read_parquet(log)
    priced = frame.filter(pl.col("call_id") == "c-9")["cost_usd"][0]
    assert priced == pytest.approx(100e-6 + 40e-6)
    assert frame.filter(pl.col("call_id") == "c-3")["reward"][0] == 0.75
    shown = run("litellm-payloads", tmp_path / "calls.jsonl.gz", "-o", log)
    assert "38 calls in" in shown.stdout
    assert "1 left out: failed, or answered from a cache" in shown.stdout
    assert "1 without a cost: give --prices FILE" in shown.stdout
    assert CliRunner().invoke(app, ["log", "check", str(log)]).exit_code == 0
    fit = [
        "fit",
        str(log),
        "--prices",
        str(tmp_path / "prices.json"),
        "--contexts",
        "1",
        "-o",
        str(tmp_path / "a.wise"),
    ]
    assert CliRunner().invoke(app, fit).exit_code == 0
    assert {model.name for model in WiseRouter.load(tmp_path / "a.wise").parts().models} == {"a", "b"}


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("langsmith", (), "got 2 records: none is a call of langsmith, check that they are its exports"),
        ("langfuse", ("--group", "other"), "got 2 records: 2 left out: of other groups; "),
    ],
)
def test_an_import_without_a_call_is_refused_and_keeps_the_former_log(name, options, why, tmp_path):
    write_lines(tmp_path / "a.jsonl", [OBSERVATION, OBSERVATION_V2])
    log = tmp_path / "b.parquet"
    assert run("langfuse", tmp_path / "a.jsonl", "-o", log).exit_code == 0
    former = log.read_bytes()
    refused = run(name, tmp_path / "a.jsonl", "-o", log, *options)
    assert why in str(refused.exception)
    assert isinstance(refused.exception, InvalidInput)
    assert log.read_bytes() == former
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("b.")] == ["b.parquet"]


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


def test_records_of_a_file_of_scores_that_hold_none_are_counted_and_a_file_without_their_fields_is_refused(tmp_path):
    write_lines(tmp_path / "a.jsonl", [PAYLOAD])
    (tmp_path / "some.csv").write_text("call_id,rating\nc-1,1\nc-2,\n,1\n")
    (tmp_path / "none.csv").write_text("foo,bar\nc-1,1\n")
    asked = ("litellm-payloads", tmp_path / "a.jsonl", "-o", tmp_path / "b.parquet", "--scores")
    told = json.loads(run(*asked, tmp_path / "some.csv", "--json").stdout)
    assert (told["no_score"], told["unread_scores"], told["refused_scores"]) == (0, 2, 0)
    assert "2 records of --scores left out: no id and score" in run(*asked, tmp_path / "some.csv").stdout
    refused = run(*asked, tmp_path / "none.csv").exception
    assert isinstance(refused, LogError)
    assert "none.csv: a file of scores must have the id of a call and its score, got the fields foo, bar" in str(
        refused
    )


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


def test_a_table_of_annotations_of_phoenix_is_read(tmp_path):
    write_lines(tmp_path / "a.jsonl", [PHOENIX_SPAN])
    columns = "span_id,annotation_name,annotator_kind,result.score,result.label,created_at"
    rows = ("c-1,good,HUMAN,0.25,fair,2026-11-01 00:00:00+00:00", "c-1,good,LLM,,good,2026-11-02 00:00:00+00:00")
    (tmp_path / "s.csv").write_text("\n".join([columns, *rows, "c-1,other,LLM,0,bad,"]) + "\n")
    scored = (tmp_path / "a.jsonl", "-o", tmp_path / "b.parquet", "--scores", tmp_path / "s.csv")
    assert run("phoenix", *scored, "--score", "good").exit_code == 0
    assert pl.read_parquet(tmp_path / "b.parquet")["reward"].to_list() == [1.0]
    assert "scores of good (2), other (1)" in str(run("phoenix", *scored).exception)


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


def test_calls_since_a_date_and_of_one_group(tmp_path):
    lines = [{**PAYLOAD, "startTime": BEGAN_S + 86_400.0 * n, "model_group": f"g{n % 2}"} for n in range(6)]
    lines.append({**PAYLOAD, "startTime": "yesterday"})
    (tmp_path / "a.json").write_text(json.dumps(lines, indent=1))
    done = run(
        "litellm-payloads",
        tmp_path / "a.json",
        "-o",
        tmp_path / "b.parquet",
        "--since",
        "2026-11-03",
        "--group",
        "g1",
        "--json",
    )
    told = json.loads(done.stdout)
    assert (told["calls"], told["older"], told["no_time"], told["other_group"]) == (2, 2, 1, 2)


@pytest.mark.parametrize("since", ["20261103", "2026-11-03", "2026-11-02T23:00:00-01:00", "1793664000"])
def test_since_is_a_date_in_any_form_and_no_number_of_seconds(since, tmp_path):
    write_lines(tmp_path / "a.jsonl", [{**PAYLOAD, "startTime": BEGAN_S + 86_400.0 * n} for n in range(6)])
    done = run("litellm-payloads", tmp_path / "a.jsonl", "-o", tmp_path / "b.parquet", "--since", since, "--json")
    if since.startswith("17"):
        assert "since must be a date or an age" in str(done.exception)
    else:
        assert json.loads(done.stdout)["older"] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("wandb", "a.jsonl", "-o", "b.parquet"), "a source must be one of litellm"),
        (("otel", "missing.jsonl", "-o", "b.parquet"), "missing.jsonl: no such file"),
        (("otel", "a.jsonl", "-o", "b.csv"), "must be a .parquet file"),
        (("otel", "a.jsonl", "-o", "b.parquet", "--since", "soon"), "since must be a date or an age"),
        (("otel", "a.jsonl", "-o", "b.parquet", "--since", "30"), "got '30': write 30d for 30 days"),
        (("langfuse", "postgresql://u:secret@h/d", "-o", "b.parquet"), "a database is read alone"),
    ],
)
def test_a_wrong_argument_is_refused(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text("{}\n")
    done = run(*arguments)
    assert done.exit_code != 0
    assert says in str(done.exception)
    assert "secret" not in str(done.exception)


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


def write_files(log, folder):
    """Import 13 calls of two files."""
    paths = [folder / "a.jsonl", folder / "b.jsonl"]
    for path, numbers in zip(paths, (range(7), range(7, 13)), strict=True):
        lines = [json.dumps({**PAYLOAD, "litellm_call_id": f"c-{n:02}"}) for n in numbers]
        path.write_text("\n".join(lines))
    return import_files(source("litellm-payloads"), paths, [], Scores(), Wanted(), log, lambda *_: None)


def write_pages(log, folder):
    """Import 13 calls of pages of two, from the cursor on; there is none after the last page."""
    records = [{**PAYLOAD, "litellm_call_id": f"c-{n:02}"} for n in range(13)]
    starts = range(0 if log.cursor is None else int(log.cursor[0]), 13, 2)
    pages = [(records[n : n + 2], [str(n + 2)] if n + 2 < 13 else None) for n in starts]
    return import_pages(source("litellm-payloads"), pages, [], [], Scores(), Wanted(), log, lambda *_: None)


@pytest.mark.parametrize("part_rows", [1, 3, 5, 20])
@pytest.mark.parametrize("write", [write_files, write_pages])
def test_an_import_that_was_stopped_or_had_no_room_at_its_end_counts_no_call_twice(
    write, part_rows, tmp_path, monkeypatch
):
    monkeypatch.setattr(log_writer, "PART_ROWS", part_rows)
    log = tmp_path / "log.parquet"

    class Stopped(Exception):
        pass

    class StoppingWriter(LogWriter):
        def add(self, call, reward):
            if self.counts.calls == 11:
                raise Stopped
            super().add(call, reward)

    def full(*_, **__):
        raise pl.exceptions.ComputeError("No space left on device (os error 28)\nmore")

    with pytest.raises(Stopped):
        write(StoppingWriter(log, {}, request={}), tmp_path)
    with monkeypatch.context() as disk, pytest.raises(OSError, match=r"No space left .*make room") as refused:
        disk.setattr(pl.LazyFrame, "sink_parquet", full)
        write(LogWriter(log, {}, request={}), tmp_path)
    assert "\n" not in str(refused.value)
    counts = write(LogWriter(log, {}, request={}), tmp_path)
    assert (counts.calls, counts.models) == (13, {"gpt-mini": 13})
    assert pl.read_parquet(log)["call_id"].to_list() == [f"c-{n:02}" for n in range(13)]
    assert not list(tmp_path.glob("log.parquet.*"))


@pytest.mark.parametrize(
    "other",
    [
        ({"scale": "1..10"}, {"m": Price(1e-6, 2e-6)}),
        ({"scale": "1..5"}, {"m": Price(1e-6, 3e-6)}),
        ({"scale": "1..5", "score": "helpful"}, {"m": Price(1e-6, 2e-6)}),
    ],
)
def test_an_import_goes_on_only_with_the_same_scores_and_prices(other, tmp_path, monkeypatch):
    monkeypatch.setattr(log_writer, "PART_ROWS", 1)
    begun = request_of("litellm", ["postgresql://u:secret@h/db"], Wanted(), {"scale": "1..5"}, {"m": Price(1e-6, 2e-6)})
    log = LogWriter(tmp_path / "a.parquet", {}, request=begun)
    log.add(ImportedCall(("a",), "m", prompt="hi"), None)
    log.save(["after a"])
    assert LogWriter(tmp_path / "a.parquet", {}, request=begun).cursor == ["after a"]
    with pytest.raises(InvalidInput, match="holds another import that was stopped") as refused:
        LogWriter(tmp_path / "a.parquet", {}, request=request_of("litellm", ["h/db"], Wanted(), *other))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("field", ["prompt", "model", "conversation", "group", "id"])
def test_a_half_of_a_character_becomes_a_question_mark_as_in_a_fit(field, tmp_path):
    fields = {"model": "m", "prompt": "whole 😀"} | ({} if field == "id" else {field: "cut \ud83d"})
    log = LogWriter(tmp_path / "a.parquet", {}, request={})
    log.add(ImportedCall(("cut \ud83d",) if field == "id" else ("a",), **fields), None)
    log.finish()
    row = pl.read_parquet(tmp_path / "a.parquet").row(0, named=True)
    assert row["call_id" if field == "id" else field] == "cut ?"
    assert row["prompt"] == ("cut ?" if field == "prompt" else "whole 😀")
    assert "\ud83d" not in str(log.counts)


@pytest.mark.parametrize("tokens", [1e19, 1e300, -1.0])
def test_what_is_no_count_of_tokens_is_missing(tokens, tmp_path):
    log = LogWriter(tmp_path / "a.parquet", {"m": Price(1e-6, 2e-6)}, request={})
    log.add(ImportedCall(("a",), "m", prompt="hi", input_tokens=tokens, output_tokens=7.0), None)
    log.finish()
    row = pl.read_parquet(tmp_path / "a.parquet").row(0, named=True)
    assert (row["input_tokens"], row["output_tokens"], row["cost_usd"], log.counts.no_cost) == (None, 7, None, 1)


def test_prices_count_cached_tokens_at_their_price(tmp_path):
    log = LogWriter(tmp_path / "a.parquet", {"m": Price(1e-6, 2e-6, cache_read=1e-7)}, request={})
    log.add(
        ImportedCall(("a",), "openai/m", prompt="hi", input_tokens=100.0, output_tokens=10.0, cached_tokens=40.0), None
    )
    log.finish()
    assert pl.read_parquet(tmp_path / "a.parquet")["cost_usd"][0] == pytest.approx(60e-6 + 4e-6 + 20e-6)


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
