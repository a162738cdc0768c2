"""Calls read through the HTTP interfaces of stand-ins of Langfuse and LangSmith, in their published formats."""

import json

import polars as pl
import pytest
from typer.testing import CliRunner

from support.recorded_platform import KEYS, serving
from wiserouter.cli import app
from wiserouter.errors import InvalidInput
from wiserouter.fitting.platforms.call_pages import call_pages
from wiserouter.fitting.platforms.score_pages import platform_of, score_pages

AT, END = "2026-11-01T12:00:00.000Z", "2026-11-01T12:00:02.000Z"


def observation(i):
    """Return a generation as Langfuse's observations have it."""
    return {
        "id": f"o{i}",
        "traceId": f"t{i}",
        "type": "GENERATION",
        "name": "wise",
        "startTime": AT,
        "endTime": END,
        "providedModelName": "gpt-mini",
        "input": json.dumps([{"role": "user", "content": f"question {i}"}]),
        "usageDetails": {"input": 10, "output": 5},
        "costDetails": {"total": 0.002},
        "totalCost": 0.002,
    }


def score(i):
    subject = {"kind": "observation", "id": f"o{i}", "traceId": f"t{i}"}
    return {
        "id": f"s{i}",
        "name": "helpful",
        "value": i % 2,
        "dataType": "NUMERIC",
        "updatedAt": AT,
        "subject": subject,
    }


def langfuse(path, query, body):
    if path == "/api/public/v3/scores":
        return 200, {"data": [score(0), score(1)], "meta": {"limit": 100}}
    assert path == "/api/public/v2/observations"
    assert (query["type"], query["fromStartTime"]) == ("GENERATION", "2026-11-01T00:00:00Z")
    if "cursor" not in query:
        return 200, {"data": [observation(0), observation(1)], "meta": {"cursor": "next"}}
    return 200, {"data": [observation(2)], "meta": {}}


def older_langfuse(path, query, body):
    if path != "/api/public/observations":
        return 404, {}
    number = int(query["page"])
    return 200, {"data": [observation(number)], "meta": {"page": number, "totalPages": 3}}


def older_langsmith(path, query, body):
    if path == "/api/v2/runs/query":
        return 404, {"detail": "Not Found"}
    if path == "/api/v1/feedback":
        row = {"id": "f", "run_id": "r1", "trace_id": "t1", "key": "user_score", "score": 1.0, "modified_at": AT}
        return 200, [row]
    assert (path, body["session"], body["run_type"]) == ("/api/v1/runs/query", ["p"], "llm")
    number = 2 if body.get("cursor") == "two" else 1
    run = {
        "id": f"r{number}",
        "trace_id": f"t{number}",
        "run_type": "llm",
        "name": "ChatOpenAI",
        "start_time": AT,
        "end_time": END,
        "inputs": {"messages": [{"role": "user", "content": "hi"}]},
        "extra": {"metadata": {"ls_model_name": "gpt-mini"}},
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_cost": "0.001",
    }
    return 200, {"runs": [run], "cursors": {"next": "two"} if number == 1 else {}}


def langsmith(path, query, body):
    if path != "/api/v2/runs/query":
        return older_langsmith(path, query, body)
    assert (body["project_ids"], body["run_type"], body["page_size"]) == (["p"], "LLM", 100)
    number = 2 if body.get("cursor") == "two" else 1
    run = {
        "id": f"r{number}",
        "trace_id": f"t{number}",
        "run_type": "LLM",
        "name": "ChatOpenAI",
        "start_time": AT,
        "end_time": END,
        "inputs": {"messages": [{"role": "user", "content": "hi"}]},
        "metadata": {"ls_model_name": "gpt-mini"},
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_cost": 0.001,
    }
    selected = {name: value for name, value in run.items() if name.upper() in body["selects"]}
    return 200, {"items": [selected], "next_cursor": "two" if number == 1 else None}


@pytest.mark.parametrize(
    ("name", "reply", "calls", "rewards"),
    [
        ("langfuse", langfuse, 3, [0.0, 1.0, None]),
        ("langsmith", langsmith, 2, [1.0, None]),
        ("langsmith", older_langsmith, 2, [1.0, None]),
    ],
)
def test_the_command_reads_calls_and_scores_of_an_address(name, reply, calls, rewards, tmp_path, monkeypatch):
    for variable, value in KEYS.items():
        monkeypatch.setenv(variable, value)
    log = tmp_path / "calls.parquet"
    with serving(reply) as server:
        asked = ["log", "import", name, server.url, "-o", str(log), "--since", "2026-11-01", "--project", "p", "--json"]
        told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0, told.output
    assert json.loads(told.output)["calls"] == calls
    rows = pl.read_parquet(log)
    assert rows["reward"].to_list() == rewards
    assert rows["model"].to_list() == ["gpt-mini"] * calls


def test_an_older_langfuse_is_read_by_page_and_from_any_page_on():
    with serving(older_langfuse) as server:
        platform = platform_of("langfuse", KEYS, server.url)
        pages = list(call_pages(platform, 0.0, 1.0))
        rest = list(call_pages(platform, 0.0, 60.0, ["v1", "3", "1970-01-01T00:00:01Z"]))
        ends = {query["toStartTime"] for _, query, *_ in server.asked}
    until = "1970-01-01T00:00:01Z"
    assert [page.cursor for page in pages] == [["v1", "2", until], ["v1", "3", until], None]
    assert [page.records[0]["id"] for page in rest] == ["o3"]
    assert ends == {until}  # later calls would move each page by their number


def test_what_has_no_pages_is_named():
    with pytest.raises(InvalidInput, match="read from files"):
        next(call_pages(platform_of("mlflow", KEYS, "http://a", "7"), 0.0, 1.0))
    with pytest.raises(InvalidInput, match="project"):
        next(call_pages(platform_of("langsmith", KEYS, "http://a"), 0.0, 1.0))


@pytest.mark.parametrize(("cursor", "version"), [(["a"], "v1"), (["v1", "a"], "v1"), (["v2", "a"], "v2")])
def test_a_stopped_import_of_langsmith_goes_on_in_the_version_in_which_it_began(cursor, version):
    asked = []
    fetch = lambda url, body, **_: asked.append((url, body["cursor"])) or {}  # noqa: E731
    list(call_pages(platform_of("langsmith", KEYS, "http://a", "p"), 0.0, 1.0, cursor, fetch))
    assert asked == [(f"http://a/api/{version}/runs/query", "a")]


@pytest.mark.parametrize("name", ["mlflow", "phoenix", "otel", "litellm-payloads"])
def test_the_command_says_which_systems_have_no_address(name, tmp_path):
    told = CliRunner().invoke(app, ["log", "import", name, "http://127.0.0.1:9", "-o", str(tmp_path / "a.parquet")])
    assert str(told.exception).startswith(f"calls of {name} are read from files, got an address: export them")


def test_a_server_that_gives_the_same_place_again_is_not_asked_without_end():
    fetch = lambda *_, **__: {"data": [], "meta": {"cursor": "same"}}  # noqa: E731
    platform = platform_of("langfuse", KEYS, "http://a")
    with pytest.raises(InvalidInput, match="must go on after each page"):
        list(score_pages(platform, 0.0, fetch=fetch))
    with pytest.raises(InvalidInput, match="must go on after each page"):
        list(call_pages(platform, 0.0, 1.0, fetch=fetch))


@pytest.mark.parametrize(
    ("name", "answer"), [("langfuse", [1]), ("langfuse", "ok"), ("langsmith", None), ("mlflow", 3)]
)
def test_an_answer_of_another_kind_is_named_with_the_address(name, answer):
    platform = platform_of(name, KEYS, "http://gateway", "7")
    fetch = lambda *_, **__: answer  # noqa: E731
    with pytest.raises(InvalidInput, match=f"{name} must answer with .*got .*: check the address http://gateway"):
        next(score_pages(platform, 0.0, fetch=fetch))
    if name != "mlflow":  # its calls are read from files
        with pytest.raises(InvalidInput, match="must answer with an object"):
            next(call_pages(platform, 0.0, 1.0, fetch=fetch))
