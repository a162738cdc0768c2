"""Scores of each system: which one counts for a call, and what reward it is."""

import pytest

from wiserouter.errors import InvalidInput
from wiserouter.fitting.imports.calls import ImportedCall, time_of
from wiserouter.fitting.imports.scores import Scores
from wiserouter.fitting.imports.sources import source_of
from wiserouter.fitting.log.scores import Scale


def test_the_closest_score_counts_and_of_those_the_latest():
    scores = Scores(scale=Scale(1, 5))
    reader = source_of("langfuse")
    for target, value in (("sessionId", 1), ("traceId", 2), ("traceId", 3), ("observationId", 5), ("observationId", 9)):
        ids = {"sessionId": "s-1", "traceId": "t-1", "observationId": "c-1"}
        scores.add(reader.scores({target: ids[target], "name": "stars", "value": value}))
    scores.check()
    assert scores.refused == 1
    assert scores.reward_of(ImportedCall(("c-1", "t-1", "s-1"), "m")) == 1.0
    assert scores.reward_of(ImportedCall(("c-2", "t-1", "s-1"), "m")) == 0.5
    assert scores.reward_of(ImportedCall(("c-3", "t-3", "s-1"), "m")) == 0.0
    assert scores.reward_of(ImportedCall(("c-4",), "m")) is None


EARLY, LATE = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"


def otel_score(value, at):
    nanoseconds = str(int(time_of(at) * 1e9))
    attributes = [
        {"key": "gen_ai.evaluation.name", "value": {"stringValue": "helpful"}},
        {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": value}},
    ]
    log = {"eventName": "gen_ai.evaluation.result", "spanId": "c-1", "timeUnixNano": nanoseconds}
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [{**log, "attributes": attributes}]}]}]}


def mlflow_score(value, at):
    one = {"assessment_name": "helpful", "span_id": "c-1", "feedback": {"value": value}, "last_update_time": at}
    return {"info": {"trace_id": "t-1", "assessments": [one]}}


PHOENIX_SCORE = {"span_id": "c-1", "name": "helpful", "annotator_kind": "HUMAN"}
DATED = {
    "langfuse": lambda value, at: {"observationId": "c-1", "name": "helpful", "value": value, "updatedAt": at},
    "langsmith": lambda value, at: {"run_id": "c-1", "key": "helpful", "score": value, "modified_at": at},
    "mlflow": mlflow_score,
    "phoenix": lambda value, at: {**PHOENIX_SCORE, "result": {"score": value}, "updated_at": at},
    "otel": otel_score,
    "litellm": lambda value, at: {
        "request_id": "c-1",
        "outcome": "real" if value else "shadow",
        "created_at": at,
    },
}


@pytest.mark.parametrize("name", DATED)
@pytest.mark.parametrize("listed", [(EARLY, LATE), (LATE, EARLY)])
def test_the_latest_score_counts_in_whichever_order_they_are_listed(name, listed):
    scores = Scores()
    for at in listed:
        scores.add(source_of(name).scores(DATED[name](1.0 if at == LATE else 0.0, at)))
    assert scores.reward_of(ImportedCall(("c-1",), "m")) == 1.0


def test_of_scores_without_a_time_the_last_counts():
    scores = Scores()
    for value, at in ((0.0, LATE), (1.0, None), (0.5, None)):
        scores.add(source_of("langfuse").scores(DATED["langfuse"](value, at)))
    assert scores.reward_of(ImportedCall(("c-1",), "m")) == 0.5


@pytest.mark.parametrize(
    ("fields", "reward"),
    [
        ({"dataType": "CATEGORICAL", "value": 0, "stringValue": "good"}, 1.0),
        ({"data_type": "CATEGORICAL", "value": 1, "string_value": "thumbs down"}, 0.0),
        ({"dataType": "CATEGORICAL", "value": "bad"}, 0.0),
        ({"dataType": "CATEGORICAL", "value": 1, "stringValue": "off-topic"}, None),
        ({"dataType": "CATEGORICAL", "value": 0, "stringValue": None}, None),
        ({"dataType": "CORRECTION", "value": "No"}, None),
        ({"dataType": "BOOLEAN", "value": 0, "stringValue": "False"}, 0.0),
        ({"dataType": "NUMERIC", "value": 0.25, "stringValue": None}, 0.25),
    ],
)
def test_a_categorical_score_of_langfuse_counts_by_its_word(fields, reward):
    scores = Scores()
    scores.add(source_of("langfuse").scores({"traceId": "t-1", "name": "helpful", **fields}))
    assert scores.reward_of(ImportedCall(("t-1",), "m")) == reward
    assert scores.refused == (reward is None)


@pytest.mark.parametrize("rated", ["0123456789abcdef", "00000000000000ff"])
def test_mlflow_names_a_span_in_base64_and_its_assessments_name_it_in_hex(rated):
    encoded = {"0123456789abcdef": "ASNFZ4mrze8=", "00000000000000ff": "AAAAAAAAAP8="}  # as of Span.to_dict
    attributes = {"mlflow.spanType": '"LLM"', "mlflow.llm.model": '"m"', "mlflow.spanInputs": '"hi"'}
    span = {"span_id": encoded["0123456789abcdef"], "parent_span_id": encoded["00000000000000ff"]}
    assessment = {"assessment_name": "helpful", "span_id": rated, "feedback": {"value": True}}
    info = {"trace_id": "tr-1", "assessments": [assessment]}
    trace = {"info": info, "data": {"spans": [{**span, "attributes": attributes}]}}
    scores, reader = Scores(), source_of("mlflow")
    scores.add(reader.scores(trace))
    (call,) = reader.calls(trace)
    assert call.ids == ("0123456789abcdef", "00000000000000ff", "tr-1")
    assert scores.reward_of(call) == 1.0


def test_of_several_metrics_one_has_to_be_named():
    scores, named = Scores(), Scores("b")
    reader = source_of("langsmith")
    for one in (scores, named):
        for key in "ab":
            one.add(reader.scores({"run_id": "r", "key": key, "score": 1.0}))
    with pytest.raises(InvalidInput, match=r"scores of a \(1\), b \(1\): say which, with --score NAME"):
        scores.check()
    named.check()
    assert named.reward_of(ImportedCall(("r",), "m")) == 1.0
    with pytest.raises(InvalidInput, match="a score must be named 'c', got none"):
        Scores("c").check()
