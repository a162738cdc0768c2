"""`wiserouter judge`: a log of answers in, a score per line out."""

import json

import polars as pl
import pytest
from typer.testing import CliRunner

from wiserouter.cli import app
from wiserouter.errors import InvalidInput, LogError

JUDGE = """
def right(prompt, answer):
    return {"score": float(answer == "4"), "cost_usd": 0.01}

def broken(prompt, answer):
    raise ValueError(prompt)

number = 7
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_judges.py").write_text(JUDGE)
    rows = {"id": [f"c{i}" for i in range(40)], "model": ["small", "large"] * 20, "prompt": ["2 + 2?"] * 40}
    pl.DataFrame({**rows, "answer": ["4", "5", None, ""] * 10}).write_parquet("calls.parquet")
    return tmp_path


def run(*options):
    result = CliRunner().invoke(app, ["judge", "calls.parquet", "-o", "scores.jsonl", "--json", *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return json.loads(result.stdout)


def test_each_answer_is_scored_by_id(folder):
    counts = run("--with", "my_judges:right")
    lines = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    assert (counts["offered"], counts["judged"], counts["spent_usd"]) == (20, 20, pytest.approx(0.2))
    assert {line["id"] for line in lines} == {f"c{i}" for i in range(40) if i % 4 < 2}
    assert all(line["score"] == (line["model"] == "small") and line["source"] == "judge:default" for line in lines)


def test_share_and_budget_bound_the_judge(folder):
    assert run("--with", "my_judges:right", "--share", "0.25")["judged"] in {4, 5, 6}
    counts = run("--with", "my_judges:right", "--budget", "0.051", "--cost", "0.01", "--concurrency", "1")
    assert (counts["judged"], counts["unpaid"]) == (5, 15)
    assert counts["spent_usd"] == pytest.approx(0.05)


def test_mistakes_are_named(folder):
    for name in ("my_judges:none", "nowhere:right", "my_judges", "my_judges:number"):
        with pytest.raises(InvalidInput, match="--with must name a function"):
            run("--with", name)
    with pytest.raises(InvalidInput, match="--budget needs --cost"):
        run("--with", "my_judges:right", "--budget", "1")
    with pytest.raises(LogError, match="needs a column 'reply'"):
        run("--with", "my_judges:right", "--answer", "reply")
