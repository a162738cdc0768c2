"""A call that a framework and the client below it have both recorded is imported once."""

import json
from unittest.mock import Mock

import polars as pl
import pytest

from support.recorded_calls import OBSERVATION, PHOENIX_SPAN, langsmith_run, write_lines
from wiserouter.fitting.imports.calls import ImportedCall
from wiserouter.fitting.imports.log_writer import LogWriter
from wiserouter.fitting.imports.nested_calls import NestedCalls
from wiserouter.fitting.imports.run_import import Wanted, import_files, import_pages
from wiserouter.fitting.imports.scores import Scores
from wiserouter.fitting.imports.sources import SOURCES, source_of

ALL = Wanted()
USED = {"output_tokens": 7.0}


def call(own, parent="", **more):
    return ImportedCall((own, "trace"), "gpt-mini", prompt="sort a list", parent=parent, **more)


def kept(*calls):
    nested = NestedCalls(lambda call: bool(call.model and call.prompt))
    nested.add(calls)
    return [one.ids[0] for one in calls if not nested.repeats(one)]


@pytest.mark.parametrize("around", [USED, {}, {"cost_usd": 0.002}])
def test_of_two_calls_the_one_around_is_kept(around):
    assert kept(call("inner", "outer"), call("outer", "agent", **around)) == ["outer"]


def test_a_call_without_usage_around_one_with_it_is_left_out():
    assert kept(call("outer"), call("inner", "outer", **USED)) == ["inner"]


def test_of_three_calls_within_each_other_the_outermost_is_kept():
    assert kept(call("a", **USED), call("b", "a", **USED), call("c", "b", **USED)) == ["a"]


def test_another_call_within_is_kept():
    assert kept(call("outer", **USED), call("inner", "outer", output_tokens=8.0)) == ["outer", "inner"]


@pytest.mark.parametrize("fault", [{"failed": True}, {"model": ""}, {"prompt": None}])
def test_a_call_that_is_not_imported_stands_for_no_other(fault):
    assert "inner" in kept(call("outer", **USED)._replace(**fault), call("inner", "outer", **USED))


def test_the_calls_of_one_step_that_is_no_call_are_all_kept():
    assert kept(call("a", "agent", **USED), call("b", "agent", **USED)) == ["a", "b"]


def test_calls_without_ids_of_their_own_are_all_kept(tmp_path):
    nameless = {**OBSERVATION, "id": None}
    _, counts = imported("langfuse", [nameless, {**nameless, "endTime": None}], tmp_path)
    assert (counts.calls, counts.repeated) == (2, 0)


def mlflow_span(own, parent, name):
    values = {
        "mlflow.spanType": "CHAT_MODEL",
        "mlflow.spanInputs": {"messages": [{"role": "user", "content": "Agent: weather in Bonn?"}]},
        "mlflow.llm.model": "gpt-4o-mini",
        "mlflow.chat.tokenUsage": {"input_tokens": 55, "output_tokens": 7, "cache_read_input_tokens": 0},
        "mlflow.llm.cost": {"total_cost": 1.245e-05},
    }
    return {
        "span_id": own,
        "parent_span_id": parent,
        "name": name,
        "start_time_unix_nano": 1795823457150144719,
        "end_time_unix_nano": 1795823457210038063,
        "status": {"code": "STATUS_CODE_OK"},
        "attributes": {key: json.dumps(value) for key, value in values.items()},
    }


def mlflow_trace():
    """Return a trace of an agent, with the tracing of LangChain and of OpenAI's client switched on."""
    spans = [mlflow_span("hahnKE3GILc=", "Djz288UXbWI=", "ChatOpenAI"), mlflow_span("MyjkCwm2VIQ=", "hahnKE3GILc=", "")]
    score = {"assessment_name": "helpful", "span_id": "3328e40b09b65484", "feedback": {"value": True}, "valid": True}
    return {"info": {"trace_id": "tr-1", "assessments": [score]}, "data": {"spans": spans}}


def imported(source, records, path, wanted=ALL):
    """Return the rows of a log of records, each in a file of its own, and what was read."""
    for n, record in enumerate(records):
        write_lines(path / f"{n}.jsonl", [record])
    log = LogWriter(path / "a.parquet", {}, request={})
    files = sorted(path.glob("*.jsonl"))
    counts = import_files(source_of(source), files, [], Scores(), wanted, log, lambda *_: None)
    return pl.read_parquet(path / "a.parquet"), counts


def test_a_trace_of_mlflow_has_a_call_of_langchain_once_with_the_score_of_either_span(tmp_path):
    rows, counts = imported("mlflow", [mlflow_trace()], tmp_path)
    assert rows["reward"].to_list() == [1.0]
    assert (rows["group"].to_list(), rows["cost_usd"].to_list()) == (["ChatOpenAI"], [1.245e-05])
    assert (counts.calls, counts.repeated) == (1, 1)


def test_spans_of_a_call_are_matched_over_records_and_files(tmp_path):
    within = {**PHOENIX_SPAN, "context": {"span_id": "d-1", "trace_id": "t-1"}, "parent_id": "c-1"}
    rows, counts = imported("phoenix", [within, PHOENIX_SPAN], tmp_path)
    assert (rows["call_id"].to_list(), counts.repeated) == (["c-1"], 1)


def langsmith_pair():
    run = langsmith_run()
    other = "00000000-0000-0000-0000-000000000009"
    return {**run, "id": other, "parent_run_id": run["id"], "parent_run_ids": [run["trace_id"], run["id"]]}, run


PAIRS = {
    "langfuse": lambda: ({**OBSERVATION, "id": "d-1", "parentObservationId": "c-1"}, OBSERVATION),
    "langsmith": langsmith_pair,
}


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", PAIRS)
def test_pages_of_a_platform_have_a_call_once(name, size, tmp_path):
    log = LogWriter(tmp_path / "a.parquet", {}, request={})
    pair = PAIRS[name]()
    pages = [(pair[n : n + size], None) for n in range(0, 2, size)]
    counts = import_pages(SOURCES[name], pages, [], [], Scores(), Wanted(), log, Mock())
    assert (counts.calls, counts.repeated) == (1, 1)


WITHIN = {**OBSERVATION, "id": "d-1", "parentObservationId": "c-1", "name": "wise"}


@pytest.mark.parametrize(
    ("around", "wanted"),
    [
        ({"name": "ChatOpenAI"}, Wanted(group="wise")),
        ({"startTime": "2026-10-31T23:59:59.9Z"}, Wanted(since_s=1793491200.0)),
        ({"input": "redacted-by-litellm"}, ALL),
        ({"input": [{"role": "user", "content": ""}]}, ALL),
    ],
)
def test_a_call_is_kept_where_the_one_around_it_is_not_wanted_or_has_no_prompt(around, wanted, tmp_path):
    rows, _ = imported("langfuse", [{**OBSERVATION, **around}, WITHIN], tmp_path, wanted)
    assert rows["call_id"].to_list() == ["d-1"]


def test_a_score_of_a_call_that_is_not_wanted_counts_for_the_one_around_it(tmp_path):
    score = {"observationId": "d-1", "name": "helpful", "value": 1}
    rows, _ = imported("langfuse", [{**OBSERVATION, "name": "a"}, WITHIN, score], tmp_path, Wanted(group="a"))
    assert (rows["call_id"].to_list(), rows["reward"].to_list()) == (["c-1"], [1.0])


@pytest.mark.parametrize(("around", "cost_usd"), [({}, 0.002), ({"total": 0.0}, 0.002), ({"total": 0.003}, 0.003)])
def test_a_call_that_has_no_cost_takes_that_of_the_one_within_it(around, cost_usd, tmp_path):
    rows, _ = imported("langfuse", [{**OBSERVATION, "costDetails": around}, WITHIN], tmp_path)
    assert (rows["call_id"].to_list(), rows["cost_usd"].to_list()) == (["c-1"], [cost_usd])
