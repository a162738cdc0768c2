"""`wiserouter shadow report --judge`: would-be answers, made and judged within a budget that is stated beforehand."""

import fcntl
import json
import threading

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from wiserouter import Budget, Contexts, Estimates, Model, Offline, Price, Shadow, WiseRouter
from wiserouter.cli import app
from wiserouter.errors import InvalidInput, LogError

FUNCTIONS = """
def answers(model, prompt):
    assert prompt == "2 + 2?"
    return {"large": "4", "small": "5"}[model], 0.02

def judge(prompt, first, second):
    return {"score": "tie" if first == second else "first" if first == "4" else "second", "cost_usd": 0.01}
"""
OPTIONS = ("--judge", "mine:judge", "--answers", "mine:answers", "--texts", "texts.parquet")
BOUNDS = ("--budget", "1.0", "--answer-cost", "0.05", "--judge-cost", "0.05")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    estimates = Estimates(1, 2)
    estimates.add_table(np.zeros(2, dtype=np.int64), [[0.2, 0.9]] * 2, [[0.01, 0.02]] * 2)
    router = WiseRouter(
        [Model("small", Price(1e-6, 1e-6)), Model("large", Price(3e-6, 3e-6))],
        Contexts.single(),
        estimates=estimates,
        policy=Offline(),
        seed=0,
    )
    router.shadow = Shadow()
    router.start(Budget(20.0, 1_000))
    journal, ids = router.journal_to("decisions.jsonl"), []
    for i in range(30):
        decision = router.observe("2 + 2?", incumbent="small" if i % 3 else "large", call_id=f"call {i}")
        router.charge(decision, cost_usd=0.01)
        ids.append(decision.id)
    journal.flush()
    journal.close()
    rows = {"call_id": [f"call {i}" if i % 2 else ids[i] for i in range(28)], "prompt": ["2 + 2?"] * 28}
    pl.DataFrame({**rows, "answer": ["5"] * 26 + ["", None]}).write_parquet("texts.parquet")
    return tmp_path


def run(*options):
    result = CliRunner().invoke(app, ["shadow", "report", "decisions.jsonl", *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_would_be_answers_are_judged_within_the_stated_cost(folder):
    result = run(*OPTIONS, *BOUNDS, "--verdicts", "v.jsonl", "--json")
    found = json.loads(result.stdout)["judged"]
    assert (found["observed"], found["differing"], found["with_texts"], found["sampled"]) == (30, 20, 17, 10)
    assert (found["judged"], found["failed"], found["better"]) == (10, 0, 1.0)
    assert found["most_usd"] == pytest.approx(1.0)
    assert found["spent_usd"] == pytest.approx(0.3)
    assert found["cost_usd"]["mean"] == pytest.approx(0.01 * 2 / 3)
    assert found["reward"]["low"] < 2 / 3 <= found["reward"]["high"]
    assert "at most $1.00" in result.stderr
    again = json.loads(run(*OPTIONS, *BOUNDS, "--verdicts", "v.jsonl", "--json").stdout)["judged"]
    assert (again["judged"], again["former_usd"]) == (17, pytest.approx(0.3))
    assert again["spent_usd"] == pytest.approx(0.21)


def test_a_dry_run_states_the_cost_and_asks_nothing(folder):
    (folder / "mine.py").write_text("def answers(*texts): raise SystemExit(9)\njudge = answers\n")
    result = run(*OPTIONS, *BOUNDS, "--share", "0.2", "--dry-run")
    assert "Judging 4 of 20 would-be answers" in result.stderr
    assert "at most $0.400" in result.stderr
    assert "No would-be answer was judged" in result.stdout


def test_the_report_says_what_the_judge_saw(folder):
    shown = run(*OPTIONS, *BOUNDS).stdout
    assert "Judged: 10 would-be answers, 0 others could not be judged: 100% better" in shown
    assert "Only 17 of 20 calls whose choice differs have texts" in shown
    assert "Spend per call by the costs of these answers: +0.0066" in shown


def test_mistakes_are_named(folder):
    with pytest.raises(InvalidInput, match="--judge needs --answers, --texts and --budget"):
        run("--judge", "mine:judge")
    with pytest.raises(InvalidInput, match="need --judge"):
        run("--budget", "1")
    with pytest.raises(InvalidInput, match="must be bounded: give answer_usd"):
        run(*OPTIONS, "--budget", "1.0")
    with pytest.raises(InvalidInput, match="--answers must name a function"):
        run("--judge", "mine:judge", "--answers", "mine:none", "--texts", "texts.parquet", "--budget", "1.0")
    with pytest.raises(LogError, match="need a column 'reply'"):
        run(*OPTIONS, *BOUNDS, "--answer", "reply")
    pl.DataFrame({"prompt": ["a"], "answer": ["b"]}).write_parquet("bare.parquet")
    with pytest.raises(LogError, match="need a column of ids"):
        run("--judge", "mine:judge", "--answers", "mine:answers", "--texts", "bare.parquet", *BOUNDS)


def test_a_run_waits_for_another_one_with_the_same_verdicts(folder):
    held = (folder / "v.jsonl").open("ab")
    fcntl.flock(held, fcntl.LOCK_EX)
    threading.Timer(1.0, held.close).start()
    assert "waiting for another command that changes v.jsonl" in run(*OPTIONS, *BOUNDS, "--verdicts", "v.jsonl").stderr
