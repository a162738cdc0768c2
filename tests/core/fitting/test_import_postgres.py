"""An import from LiteLLM's own tables in a real Postgres: its migrations, its rows, a stop in the middle."""

import json
from datetime import timedelta

import polars as pl
import pytest

from support.postgres import psycopg
from support.spend_rows import START, fill, row, spend_database
from wiserouter import WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.fitting.imports import log_writer, postgres
from wiserouter.fitting.imports.log_writer import LogWriter
from wiserouter.fitting.imports.postgres import SpendTables
from wiserouter.fitting.imports.run_import import Wanted, import_tables
from wiserouter.fitting.imports.scores import Scores
from wiserouter.fitting.imports.sources import source_of

pytestmark = [pytest.mark.slow, pytest.mark.enable_socket]


@pytest.fixture(scope="module")
def url():
    """Yield a database whose tables LiteLLM's migrations have made."""
    with spend_database() as url:
        yield url


EVERY = Wanted()


def imported(url, path, scores=None, wanted=EVERY, log=None):
    tables = SpendTables(url)
    log = log or LogWriter(path, {}, "litellm_truncated", request={"source": "litellm"})
    try:
        return import_tables(source_of("litellm"), tables, (), scores or Scores(), wanted, log, lambda *_: None)
    finally:
        tables.close()


def test_efforts_and_the_prompts_of_gemini_are_read_of_the_request(url, tmp_path):
    asked = [{"role": "user", "content": "hi"}]
    requests = [
        {"messages": asked, "reasoning_effort": "low"},
        {"input": "hi", "reasoning": {"effort": "high"}},
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    ]
    rows = [row(n, model="gpt", proxy_server_request=json.dumps(request)) for n, request in enumerate(requests)]
    fill(url, rows)
    imported(url, tmp_path / "calls.parquet")
    log = pl.read_parquet(tmp_path / "calls.parquet")
    assert log.select("prompt", "model").rows() == [("hi", "gpt@low"), ("hi", "gpt@high"), ("hi", "gpt")]


def test_rows_of_the_spend_log_become_calls(url, tmp_path):
    cut = [{"role": "user", "content": "long ... (litellm_truncated skipped 9 chars. ...) end"}]
    rows = [
        *(row(n) for n in range(20)),
        row(20, proxy_server_request="{}"),
        row(21, status="failure"),
        row(22, cache_hit="True"),
        row(23, proxy_server_request=json.dumps({"messages": cut})),
        row(24, call_type="aembedding", proxy_server_request=json.dumps({"input": "a text to embed"})),
        row(25, status=None, metadata=json.dumps({"status": "failure"})),
    ]
    fill(url, rows)
    with psycopg.connect(url) as connection:
        connection.execute(
            'INSERT INTO "LiteLLM_ShadowEvalAttempt" (id, job_id, request_id, outcome) VALUES '
            "('a', 'j', 'c-3', 'real'), ('b', 'j', 'c-4', 'shadow'), ('c', 'j', 'r-0000005', 'tie')"
        )
    counts = imported(url, tmp_path / "calls.parquet")
    assert (counts.calls, counts.no_prompt, counts.cut_prompt, counts.failed, counts.no_score) == (21, 1, 1, 3, 18)
    log = pl.read_parquet(tmp_path / "calls.parquet")
    assert log["prompt"][3] == "question 3"
    assert log["reward"][3:6].to_list() == [1.0, 0.0, 0.5]
    assert log.select("model", "cost_usd", "input_tokens", "cached_tokens", "latency_s", "conversation").row(3) == (
        "openai/large",
        0.003,
        103,
        40,
        1.5,
        "s-0",
    )
    assert log["started_s"][3] == (START + timedelta(seconds=3)).timestamp()
    assert not (tmp_path / "calls.parquet.parts").exists()


def test_since_and_group_choose_the_calls(url, tmp_path):
    fill(url, [row(n) for n in range(100)])
    wanted = Wanted((START + timedelta(seconds=50)).timestamp(), "wise")
    counts = imported(url, tmp_path / "calls.parquet", wanted=wanted)
    assert (counts.calls, counts.other_group, counts.older) == (25, 25, 0)


@pytest.mark.parametrize("stop_at", [0, 1_499, 2_600])
def test_an_import_that_was_stopped_goes_on_and_counts_no_call_twice(url, tmp_path, monkeypatch, stop_at):
    monkeypatch.setattr(postgres, "PAGE_ROWS", 200)
    monkeypatch.setattr(log_writer, "PART_ROWS", 500)
    same_time = {"startTime": START.replace(tzinfo=None)}  # pages end between calls of one time
    fill(url, [row(n, **(same_time if n < 700 else {})) for n in range(3_000)])
    whole = tmp_path / "whole.parquet"
    imported(url, whole)

    class Stopped(Exception):
        pass

    class StoppingWriter(LogWriter):
        def add(self, call, reward):
            if self.counts.calls == stop_at:
                raise Stopped
            super().add(call, reward)

    path = tmp_path / "calls.parquet"
    with pytest.raises(Stopped):
        imported(url, path, log=StoppingWriter(path, {}, request={"source": "litellm"}))
    assert not path.exists()
    counts = imported(url, path)
    assert counts.calls == 3_000
    assert pl.read_parquet(path).equals(pl.read_parquet(whole))


def test_another_import_into_the_same_file_is_refused(url, tmp_path, monkeypatch):
    monkeypatch.setattr(log_writer, "PART_ROWS", 5)
    fill(url, [row(n) for n in range(10)])
    log = LogWriter(tmp_path / "calls.parquet", {}, request={"source": "litellm"})
    tables = SpendTables(url)
    for rows, place in tables.pages(None, None):
        for one in rows:
            for call in source_of("litellm").calls(one):
                log.add(call, None)
        log.save(place)
    tables.close()
    with pytest.raises(InvalidInput, match="holds another import that was stopped"):
        LogWriter(tmp_path / "calls.parquet", {}, request={"source": "otel"})


def test_a_router_is_fitted_on_the_imported_log(url, tmp_path):
    fill(url, [row(n) for n in range(200)])
    imported(url, tmp_path / "calls.parquet")
    router = WiseRouter.fit(tmp_path / "calls.parquet", n_contexts=2)
    assert {model.name for model in router.parts().models} == {"openai/small", "openai/large"}


def test_a_database_without_the_table_or_without_an_answer_is_refused_in_one_line(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE empty")
    with pytest.raises(InvalidInput, match="has no table LiteLLM_SpendLogs"):
        SpendTables(url.replace("/postgres", "/empty"))
    with pytest.raises(InvalidInput, match=r"the database 127\.0\.0\.1:1/x must answer") as refused:
        SpendTables("postgresql://user:secret@127.0.0.1:1/x")
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)
