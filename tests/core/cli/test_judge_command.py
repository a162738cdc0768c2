"""`wiserouter judge`: a log of answers in, a score per line out."""

import fcntl
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from wiserouter.cli import app
from wiserouter.errors import InvalidInput, LogError
from wiserouter.fitting.log import LogColumns, RoutingLog

JUDGE = """
def right(prompt, answer):
    return {"score": float(answer == "4"), "cost_usd": 0.01}

def strict(prompt, answer):
    return 0.25

def broken(prompt, answer):
    raise ValueError(prompt)

def by_length(prompt, answer):
    return len(answer) / 100

number = 7
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_judges.py").write_text(JUDGE)
    rows = {"id": [f"c{i}" for i in range(40)], "model": ["small", "large"] * 20, "prompt": ["2 + 2?"] * 40}
    pl.DataFrame({**rows, "answer": ["4", "5", None, ""] * 10}).write_parquet("calls.parquet")
    return tmp_path


def run(*options, log="calls.parquet"):
    result = CliRunner().invoke(app, ["judge", log, "-o", "scores.jsonl", "--json", *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return json.loads(result.stdout)


def test_each_answer_is_scored_by_id(folder):
    counts = run("--with", "my_judges:right")
    lines = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    assert (counts["offered"], counts["judged"], counts["spent_usd"]) == (20, 20, pytest.approx(0.2))
    assert counts["incomplete"] == 20
    assert {line["id"] for line in lines} == {f"c{i}" for i in range(40) if i % 4 < 2}
    assert all(line["score"] == (line["model"] == "small") and line["source"] == "judge:default" for line in lines)


def test_share_and_budget_bound_the_judge(folder):
    assert run("--with", "my_judges:right", "--share", "0.25")["judged"] in {4, 5, 6}
    paid = ("--budget", "0.051", "--cost", "0.01", "--concurrency", "1", "-o", "others.jsonl")
    counts = run("--with", "my_judges:right", *paid)
    assert (counts["judged"], counts["unpaid"]) == (5, 15)
    assert counts["spent_usd"] == pytest.approx(0.05)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def calls(folder, n, **columns):
    """Write a log of calls, whose answers have different lengths, and return its path."""
    rows = [
        {"prompt": f"q {i}", "answer": "x" * (i + 1), "model": ["small", "large"][i % 2], "cost_usd": 0.001}
        for i in range(n)
    ]
    frame = pl.DataFrame(rows).with_columns(**{name: pl.Series(values) for name, values in columns.items()})
    frame.write_ndjson(folder / "log.jsonl")
    return "log.jsonl"


@pytest.mark.parametrize(
    "mistake",
    [("--with", "my_judges:gone"), ("--answer", "reply"), ("--share", "2"), ("--name", "other"), ("--model", "prompt")],
)
def test_a_mistake_leaves_the_scores_that_were_paid_for(folder, mistake):
    run("--with", "my_judges:right")
    before = (folder / "scores.jsonl").read_bytes()
    with pytest.raises(InvalidInput):
        run("--with", "my_judges:right", *mistake)
    assert (folder / "scores.jsonl").read_bytes() == before


def test_a_run_that_was_stopped_goes_on_and_pays_for_nothing_twice(folder):
    first = run("--with", "my_judges:right", "--budget", "0.051", "--cost", "0.01", "--concurrency", "1")
    more = run("--with", "my_judges:right")
    assert (first["judged"], more["before"], more["judged"]) == (5, 5, 15)
    assert len({line["id"] for line in lines_of(folder / "scores.jsonl")}) == 20
    again = run("--with", "my_judges:right")
    assert (again["before"], again["judged"], again["failed"]) == (20, 0, 0)


def test_two_runs_at_once_pay_for_each_score_once(folder):
    (folder / "slow.py").write_text(
        "import time\n\ndef grade(prompt, answer):\n    time.sleep(0.1)\n    return {'score': 1.0, 'cost_usd': 0.01}\n"
    )
    command = [sys.executable, "-m", "wiserouter.cli", "judge", "calls.parquet", "-o", "scores.jsonl"]
    both = [subprocess.Popen([*command, "--with", "slow:grade", "--json"], stdout=subprocess.PIPE) for _ in range(2)]
    counts = [json.loads(one.communicate(timeout=120)[0]) for one in both]
    assert sorted((one["judged"], one["before"]) for one in counts) == [(0, 20), (20, 0)]
    assert len(lines_of(folder / "scores.jsonl")) == 20


def test_ctrl_c_ends_a_run_that_waits_for_another_one(folder):
    command = [sys.executable, "-m", "wiserouter.cli", "judge", "calls.parquet", "-o", "scores.jsonl"]
    with (folder / "scores.jsonl").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen([*command, "--with", "my_judges:right"], stderr=subprocess.PIPE, text=True) as waits:
            try:
                assert waits.stderr.readline() == "waiting for another command that changes scores.jsonl\n"
                waits.send_signal(signal.SIGINT)
                waits.communicate(timeout=30)
            finally:
                waits.kill()
    assert waits.returncode == 130


def test_a_file_that_holds_no_scores_of_this_judge_is_left_as_it_is(folder):
    for text in ('{"id": "c0", "score": 1}\n', "notes\n", '{"id": "c0"'):
        (folder / "scores.jsonl").write_text(text)
        with pytest.raises(InvalidInput, match=r"scores\.jsonl"):
            run("--with", "my_judges:right")
        assert (folder / "scores.jsonl").read_text() == text


@pytest.mark.parametrize("ids", [{}, {"query_id": [i // 2 for i in range(30)]}, {"custom_id": list(range(30))}])
@pytest.mark.parametrize("share", [1.0, 0.1])
def test_a_fit_learns_the_scores_of_a_log_with_and_without_ids(folder, ids, share):
    log = calls(folder, 30, **ids)
    judged = run("--with", "my_judges:by_length", "--share", str(share), log=log)["judged"]
    table = RoutingLog.read(log, joined=["scores.jsonl"], columns=LogColumns(reward="score")).table()
    scored = np.argwhere(~np.isnan(table.reward))
    assert len(scored) == judged > 0
    for row, model in scored:  # the answer to "q 4" has five characters
        call = row if len(table.prompts) == 30 else 2 * row + (model == 0)  # the first model is the large one
        assert table.reward[row, model] == pytest.approx((call + 1) / 100)


def test_scores_of_rows_are_not_joined_to_another_log(folder):
    log = calls(folder, 30)
    run("--with", "my_judges:by_length", log=log)
    whole = pl.read_ndjson(log)
    for name, other in (("shifted", whole[1:]), ("short", whole[:-2])):
        other.write_ndjson(folder / f"{name}.jsonl")
        with pytest.raises(LogError, match="must be of a row of the log"):
            RoutingLog.read(folder / f"{name}.jsonl", joined=["scores.jsonl"], columns=LogColumns(reward="score"))
    with pytest.raises(LogError, match="a log of one file"):
        RoutingLog.read([log, log], joined=["scores.jsonl"], columns=LogColumns(reward="score"))


@pytest.mark.parametrize("ids", [{}, {"id": ["a", "b"]}])
@pytest.mark.parametrize("column", ["prompt", "answer"])
def test_a_file_with_scores_of_other_texts_is_refused(folder, ids, column):
    log = calls(folder, 2, **ids)
    run("--with", "my_judges:by_length", log=log)
    before = (folder / "scores.jsonl").read_bytes()
    calls(folder, 2, **ids, **{column: ["q 0", "another"] if column == "prompt" else ["x", "another"]})
    named = "id b" if ids else "log_row 2"
    with pytest.raises(InvalidInput, match=f"for {named} that of another {column}: choose another file, or delete it"):
        run("--with", "my_judges:by_length", "--share", "0.5", log=log)
    assert (folder / "scores.jsonl").read_bytes() == before


def test_a_file_with_scores_by_another_function_is_refused(folder):
    log = calls(folder, 2)
    run("--with", "my_judges:by_length", log=log)
    with pytest.raises(
        InvalidInput, match="line 1 must be a score by my_judges:strict, got one by my_judges:by_length"
    ):
        run("--with", "my_judges:strict", log=log)


@pytest.mark.parametrize("column", ["prompt", "answer"])
def test_scores_of_rows_are_not_joined_to_other_texts(folder, column):
    log = calls(folder, 2)
    run("--with", "my_judges:by_length", log=log)
    calls(folder, 2, **{column: ["q 0", "another"] if column == "prompt" else ["x", "another"]})
    with pytest.raises(LogError, match="row 2 is another one"):
        RoutingLog.read(log, joined=["scores.jsonl"], columns=LogColumns(reward="score"))


def test_scores_of_rows_whose_prompts_are_messages_are_joined(folder):
    log = calls(folder, 2, prompt=[[{"role": "user", "content": text}] for text in ("hi", "hö")])
    run("--with", "my_judges:by_length", log=log)
    pl.read_ndjson(log).write_parquet("log.parquet")
    run("--with", "my_judges:by_length", "-o", "others.jsonl", log="log.parquet")
    for one, scores in ((log, "scores.jsonl"), ("log.parquet", "others.jsonl")):
        table = RoutingLog.read(one, joined=[scores], columns=LogColumns(reward="score")).table()
        assert np.nansum(table.reward) == pytest.approx(0.03)


def test_scores_by_two_judges_are_joined_to_the_same_rows(folder):
    log = calls(folder, 30)
    strict = run("--with", "my_judges:strict", "--name", "strict", "-o", "strict.jsonl", "--share", "0.1", log=log)
    run("--with", "my_judges:by_length", log=log)
    joined = RoutingLog.read(log, joined=["strict.jsonl", "scores.jsonl"], columns=LogColumns(reward="score"))
    other = np.arange(1, 31) / 100  # by length; the call of 25 characters has 0.25 from either
    reward = np.nansum(joined.table().reward, axis=1)
    of_strict = {line["log_row"] for line in lines_of(folder / "strict.jsonl")}
    assert len(of_strict) == strict["judged"] > 0
    assert reward == pytest.approx([0.25 if row in of_strict else other[row - 1] for row in range(1, 31)])
    assert not [name for name in joined.columns() if name.startswith("sha256")]


def test_scores_of_rows_without_digests_are_joined(folder):
    log = calls(folder, 2)
    (folder / "scores.jsonl").write_text('{"log_row": 1, "score": 0.5}\n{"log_row": 2, "score": 0.25}\n')
    table = RoutingLog.read(log, joined=["scores.jsonl"], columns=LogColumns(reward="score")).table()
    assert np.nansum(table.reward) == 0.75


def test_answers_that_are_lists_are_judged_as_json(folder):
    answers = [[{"role": "assistant", "content": "4"}]] * 3 + [[]]
    rows = {"id": list("abcd"), "model": ["small"] * 4, "prompt": ["2 + 2?"] * 4, "answer": answers}
    pl.DataFrame(rows).write_parquet("calls.parquet")
    counts = run("--with", "my_judges:by_length")
    assert (counts["judged"], counts["incomplete"]) == (3, 1)
    score = len('[{"role": "assistant", "content": "4"}]') / 100
    assert {line["score"] for line in lines_of(folder / "scores.jsonl")} == {score}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk_ends_the_run_before_more_is_paid_for(folder):
    (folder / "my_judges.py").write_text(
        JUDGE + "\nasked = []\ndef slow(p, a):\n    import time\n    asked.append(p)\n"
        "    time.sleep(0.5)\n    return 1.0\n"
    )
    log = calls(folder, 400)
    ended = subprocess.run(
        [sys.executable, "-c", "import atexit, my_judges; atexit.register(lambda: print(len(my_judges.asked)))\n"
         "from wiserouter.cli import main; main()",
         "judge", log, "--with", "my_judges:slow", "-o", "/dev/full"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "no space left" in ended.stderr.splitlines()[-1]
    assert int(ended.stdout) < 40


def test_a_run_that_is_interrupted_keeps_what_it_has_paid_for(folder):
    (folder / "my_judges.py").write_text(
        JUDGE + "\ndef slow(p, a):\n    import time\n    open('asked.txt', 'a').write(p + '\\n')\n"
        "    time.sleep(0.5)\n    return 1.0\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
         "from wiserouter.cli import main; main()",
         "judge", calls(folder, 400), "--with", "my_judges:slow", "-o", "scores.jsonl"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (folder / "asked.txt").exists() and running.poll() is None:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    told = running.communicate(timeout=30)[1]
    assert running.returncode == 130
    asked = (folder / "asked.txt").read_text().splitlines()
    assert 0 < len(asked) < 400
    assert len(lines_of(folder / "scores.jsonl")) == len(asked)
    assert "under way" in told
    assert "failed" not in told


def test_a_judge_that_fails_for_all_calls_is_an_error(folder):
    with pytest.raises(InvalidInput, match="'my_judges:broken' failed for all 20"):
        run("--with", "my_judges:broken")


def test_mistakes_are_named(folder):
    for name in ("my_judges:none", "nowhere:right", "my_judges", "my_judges:number"):
        with pytest.raises(InvalidInput, match="--with must name a function"):
            run("--with", name)
    with pytest.raises(InvalidInput, match="--budget needs --cost"):
        run("--with", "my_judges:right", "--budget", "1")
    with pytest.raises(LogError, match="needs a column 'reply'"):
        run("--with", "my_judges:right", "--answer", "reply")
