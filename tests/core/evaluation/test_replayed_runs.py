"""Logs whose rows are the calls of runs: each run is replayed as one query."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from wiserouter.cli import app
from wiserouter.evaluation.replay import complete_queries, open_log, table_of

LONG = {
    "conversation": ["a", "a", "a", "b", "b", "a"],
    "prompt": ["fix it", "went on", "fix it", "explain", "explain", "went on"],
    "model": ["small", "small", "large", "small", "large", "large"],
    "reward": [0.0, 0.0, 1.0, 1.0, 0.5, None],
    "cost_usd": [0.1, 0.2, 2.0, 0.3, 4.0, 1.0],
}


def read(frame, path):
    pl.DataFrame(frame).write_parquet(path)
    return complete_queries(table_of(open_log(path)))


def test_the_calls_of_a_run_are_one_query_at_their_total_cost(tmp_path):
    table, dropped = read(LONG, tmp_path / "log.parquet")
    assert dropped == 0
    assert table.models == ("large", "small")
    assert table.prompts == ["fix it", "explain"]
    assert np.allclose(table.cost_usd, [[3.0, 0.3], [4.0, 0.3]])
    assert table.reward.tolist() == [[1.0, 0.0], [0.5, 1.0]]


def test_a_run_with_a_call_of_unknown_cost_is_left_out(tmp_path):
    table, dropped = read({**LONG, "cost_usd": [0.1, None, 2.0, 0.3, 4.0, 1.0]}, tmp_path / "log.parquet")
    assert (table.prompts, dropped) == (["explain"], 1)


def test_a_log_without_the_column_is_read_as_before(tmp_path):
    table, _ = read(
        {name: values[:1] for name, values in LONG.items() if name != "conversation"}, tmp_path / "l.parquet"
    )
    assert table.cost_usd.tolist() == [[0.1]]


@pytest.mark.parametrize("missing", [False, True])
def test_a_wide_log_of_runs_sums_the_costs_of_each_model(tmp_path, missing):
    wide = {
        "conversation": ["a", "b", "a"],
        "prompt": ["first", "other", "second"],
        "score|small": [0.0, 1.0, 0.0],
        "cost|small": [0.1, 0.2, 0.3],
        "score|large": [1.0, 1.0, 1.0],
        "cost|large": [1.0, 2.0, None if missing else 3.0],
    }
    table, dropped = read(wide, tmp_path / "wide.parquet")
    assert dropped == missing
    expected = {"other": [0.2, 2.0]} if missing else {"first": [0.4, 4.0], "other": [0.2, 2.0]}
    assert dict(zip(table.prompts, table.cost_usd.round(9).tolist(), strict=True)) == expected


def test_the_command_decides_once_per_run(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(60):
        for model, calls, usd in (("small", 4, 0.01), ("large", 2, 0.1)):
            call = {"conversation": f"run-{i}", "prompt": f"task {i % 3}", "model": model, "cost_usd": usd}
            rows += [{**call, "reward": float(rng.random() < 0.5)}] * calls
    pl.DataFrame(rows).write_parquet(tmp_path / "runs.parquet")
    arguments = [tmp_path / "runs.parquet", "--budget-per-query", 0.1, "--contexts", 2, "--json"]
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    run = json.loads(result.output)
    assert run["queries"] == run["served"] == 30
    assert run["naive"]["always-cheapest"]["spend_usd"] == pytest.approx(30 * 0.04)


@pytest.mark.parametrize("missing", [None, ""])
def test_a_call_without_a_conversation_is_a_run_of_its_own(tmp_path, missing):
    ids = ["a", missing, "a", "b", missing, missing]
    long = {
        "conversation": ids,
        "prompt": list("pqrstu"),
        "model": ["small"] * 6,
        "reward": [1.0] * 6,
        "cost_usd": [0.1] * 6,
    }
    table, dropped = read(long, tmp_path / "log.parquet")
    assert (table.prompts, dropped) == (list("pqstu"), 0)
    assert table.cost_usd[:, 0].tolist() == pytest.approx([0.2, 0.1, 0.1, 0.1, 0.1])
    wide = {"conversation": ids, "prompt": list("pqrstu"), "score|small": [1.0] * 6, "cost|small": [0.1] * 6}
    assert read(wide, tmp_path / "wide.parquet")[0].prompts == list("pqstu")
