import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from types import ModuleType

import numpy as np
import polars as pl
import pytest
from rich.progress import Progress
from typer.testing import CliRunner

from wiserouter import Budget, ExploreShare, WiseRouter
from wiserouter.cli import app, main
from wiserouter.cli.output import reporter
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.datasets.synthetic import make_table

TABLE = make_table(300, np.random.default_rng(0))


def wiserouter(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def process(*arguments):
    command = [sys.executable, "-m", "wiserouter.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_demo_ends_in_a_table_and_a_picture(tmp_path):
    printed = wiserouter("demo", "--queries", 200, "--plot", tmp_path / "demo.png")
    assert "per 1,000 correct" in printed
    assert "WISERouter spent" in printed
    assert (tmp_path / "demo.png").stat().st_size > 4_000


def test_demo_without_a_budget_names_its_spend(tmp_path):
    printed = wiserouter("demo", "--queries", 20, "--budget", 0, "--plot", tmp_path / "demo.png")
    assert "on a budget of $0.00. It got" in " ".join(printed.split())
    assert "100.0%" not in printed.partition("WISERouter spent")[2]


def test_a_plan_needs_a_request(shell, log):
    failed = shell("plan", log, "--budget", 5, "--requests", 0)
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr
    assert "--requests" in failed.stderr


def test_the_command_that_is_next_is_quoted_for_the_shell(log, tmp_path):
    parts = [tmp_path / f"a router {i}.wise" for i in range(2)]
    assert f"Next: wiserouter plan '{parts[0]}'" in wiserouter("fit", log, "-o", parts[0], "--contexts", 2)
    wiserouter("fit", log, "-o", parts[1], "--contexts-of", parts[0], "--seed", 1, "--models", "nano")
    assert "Next: wiserouter plan '" in wiserouter("merge", *parts, "-o", tmp_path / "both routers.wise")


def test_a_plan_says_the_least_budget(shell, log, tmp_path):
    assert shell("fit", log, "-o", tmp_path / "r.wise", "--contexts", 2).returncode == 0
    failed = shell("plan", tmp_path / "r.wise", "--budget", 1e-6, "--requests", 5_000)
    check_one_line(failed, "USD for 5,000 requests, each to its cheapest model, got 1e-06: raise it, or give fewer")
    least = failed.stderr.split("at least ")[1].split(" USD")[0]
    assert shell("plan", tmp_path / "r.wise", "--budget", 1.01 * float(least), "--requests", 5_000).returncode == 0


def test_demo_json_keeps_the_budget(tmp_path):
    figures = json.loads(wiserouter("demo", "--queries", 300, "--json", "--plot", tmp_path / "demo.svg"))
    assert figures["spend_ratio"] <= 1.02
    assert figures["quality"] > figures["naive"]["always nano (cheapest)"]["quality"]
    assert figures["queries"] == figures["served"] == 300


def test_fit_plan_and_replay(log, tmp_path):
    artifact = tmp_path / "r.wise"
    fitted = json.loads(wiserouter("fit", log, "-o", artifact, "--contexts", 6, "--json"))
    assert fitted["models"] == list(TABLE.models)
    assert len(fitted["sha256"]) == 64
    assert "Useful budgets" in wiserouter("fit", log, "-o", artifact, "--contexts", 6)

    what_if = json.loads(wiserouter("plan", artifact, "--budget", 1, "--requests", 500, "--points", 5, "--json"))
    budgets = [row["budget_usd"] for row in what_if["budgets"]]
    quality = [row["quality"] for row in what_if["budgets"]]
    assert budgets == sorted(budgets)
    assert 1.0 in budgets
    assert quality == sorted(quality)
    assert all(sum(row["models"].values()) == pytest.approx(1.0) for row in what_if["budgets"])
    assert "reward per extra USD" in wiserouter("plan", artifact, "--plot", tmp_path / "curve.png")
    assert (tmp_path / "curve.png").exists()
    assert "other.png" in wiserouter("plan", artifact, "--plot", tmp_path / "other").replace("\n", "")
    assert (tmp_path / "other.png").exists()

    run = json.loads(wiserouter("replay", log, "--budget", 0.2, "--router", artifact, "--json"))
    assert (run["queries"], run["budget_usd"]) == (300, 0.2)


def test_the_exploration_length_of_an_artifact(log, tmp_path):
    artifact = tmp_path / "r.wise"
    wiserouter("fit", log, "-o", artifact, "--contexts", 6, "--json")
    figures = json.loads(
        wiserouter("paper", "exploration-length", artifact, "--horizon", 5_000, "--delta", 0.5, "--json")
    )
    n_models = len(TABLE.models)
    assert (figures["horizon"], figures["delta"], figures["contexts"]) == (5_000, 0.5, 6)
    assert (figures["models"], figures["default_length"]) == (n_models, 4 * 6 * n_models)
    assert figures["separation"] == pytest.approx(figures["cost_gap"] ** 2 * figures["ratio_gap"])
    assert figures["exceeds_horizon"]
    best = json.loads(wiserouter("paper", "exploration-length", artifact, "--horizon", 5_000, "--json"))
    assert best["length"] < figures["length"]
    without_null = json.loads(
        wiserouter("paper", "exploration-length", artifact, "--horizon", 5_000, "--no-skip", "--json")
    )
    assert without_null["length"] <= best["length"]
    printed = " ".join(wiserouter("paper", "exploration-length", artifact, "--horizon", 5_000).split())
    assert "more than the horizon of 5,000" in printed
    assert f"The default explores {4 * 6 * n_models}" in printed


def test_the_exploration_length_of_gaps():
    gaps = ("--cost-gap", 0.5, "--ratio-gap", 1, "--min-freq", 0.25, "--models", 2)
    figures = json.loads(
        wiserouter("paper", "exploration-length", *gaps, "--horizon", 10_000_000, "--delta", 0.5, "--json")
    )
    assert figures == {
        "horizon": 10_000_000,
        "length": 528_174,  # ceil(2 / .125 + log(1e7) x 128 x 2 / (.125 x .25^2))
        "delta": 0.5,
        "cost_gap": 0.5,
        "ratio_gap": 1.0,
        "min_freq": 0.25,
        "separation": 0.25,
        "exceeds_horizon": False,
        "default_length": 32,
        "contexts": 4,
        "models": 2,
    }
    assert "requests suffice" in wiserouter("paper", "exploration-length", *gaps, "--horizon", 10_000_000)


def test_replay_prints_one_object_per_run(log):
    lines = wiserouter("replay", log, "--budget-per-query", 1e-3, "--seeds", 2, "--contexts", 6, "--json").splitlines()
    runs = [json.loads(line) for line in lines]
    assert [run["seed"] for run in runs] == [0, 1]
    for run in runs:
        for figures in (run, *run["naive"].values()):
            assert {"queries", "quality", "spend_usd", "budget_usd", "seed", "models"} <= figures.keys()
        assert set(run["naive"]) == {"always-cheapest", "always-best", "single-best", "oracle"}
        assert run["budget_usd"] == pytest.approx(0.15)


def test_replay_prints_tables_and_saves_a_picture(log, tmp_path):
    one = wiserouter("replay", log, "--budget", 0.15, "--contexts", 6, "--plot", tmp_path / "r.png")
    assert "always-cheapest" in one
    assert (tmp_path / "r.png").exists()
    several = wiserouter("replay", log, "--budget", 0.15, "--contexts", 6, "--seeds", 2, "--limit", "hard")
    assert "2 seeds" in several


@pytest.fixture
def sparse(log, tmp_path):
    table, drawn = make_table(1_200, np.random.default_rng(0)), np.random.default_rng(1).integers(4, size=1_200)
    rows = range(1_200)
    columns = {"prompt": table.prompts, "model": [table.models[k] for k in drawn]}
    columns |= {"reward": table.reward[rows, drawn], "cost_usd": table.cost_usd[rows, drawn]}
    pl.DataFrame(columns).write_parquet(tmp_path / "sparse.parquet")
    return tmp_path / "sparse.parquet"


def test_replay_of_a_sparse_log_estimates_the_outcome_from_its_calls(sparse, log, tmp_path):
    options = ("--budget", 1.2, "--contexts", 2)
    run = json.loads(wiserouter("replay", sparse, *options, "--json"))
    assert (run["method"], run["queries"], run["budget_usd"], run["level"]) == ("wiserouter", 1_200, 1.2, 0.95)
    assert run["reward"]["low"] < run["reward"]["mean"] < run["reward"]["high"]
    assert run["cost_usd"]["worth"] > 100
    assert set(run["naive"]) == {"always-cheapest", "always-best", "as-logged"}
    printed = " ".join(wiserouter("replay", sparse, *options, "--seeds", 2).split())
    for part in ("always-best", "seed 1", "a column query_id would say which rows are of one query"):
        assert part in printed
    artifact = tmp_path / "r.wise"
    wiserouter("fit", log, "-o", artifact, "--contexts", 2)
    assert json.loads(wiserouter("replay", sparse, *options, "--router", artifact, "--json"))["queries"] == 1_200
    assert "naive" in json.loads(wiserouter("replay", log, *options, "--off-policy", "--json"))


def test_replay_reads_the_logs_that_fit_reads(sparse, tmp_path):
    tokens = pl.col("cost_usd") * 1e6
    stars = pl.read_parquet(sparse).select(
        "prompt", "model", (1 + 4 * pl.col("reward")).alias("stars"), tokens.round().cast(int).alias("prompt_tokens")
    )
    stars.with_columns(pl.lit(0).alias("completion_tokens")).write_parquet(tmp_path / "stars.parquet")
    prices = {name: {"price": {"input": 1e-6, "output": 1e-6}} for name in TABLE.models}
    (tmp_path / "prices.json").write_text(json.dumps(prices))
    options = ("--reward", "stars", "--scale", "1..5", "--prices", tmp_path / "prices.json")
    figures = [
        json.loads(wiserouter("replay", file, "--budget", 1.2, "--contexts", 2, "--json", *more))
        for file, more in ((sparse, ()), (tmp_path / "stars.parquet", options))
    ]
    for outcome in ("reward", "cost_usd"):
        assert figures[1][outcome]["mean"] == pytest.approx(figures[0][outcome]["mean"], rel=0.02)


def test_replay_of_a_log_without_scores_takes_the_priors_as_fit_does(tmp_path):
    rows = [{"prompt": f"{i}", "model": ("low", "high")[i % 2], "cost_usd": (1e-3, 1e-2)[i % 2]} for i in range(600)]
    pl.DataFrame(rows).write_parquet(tmp_path / "log.parquet")
    price = {"input": 1e-6, "output": 1e-6}
    for score, chosen in ((0.9, "high"), (0.1, "low")):
        known = {"low": {"price": price, "score": 0.5}, "high": {"price": price, "score": score}}
        (tmp_path / "prices.json").write_text(json.dumps(known))
        options = ("--prices", tmp_path / "prices.json", "--budget", 7.5, "--contexts", 1, "--json")
        assert json.loads(wiserouter("replay", tmp_path / "log.parquet", *options))["models"][chosen] == 1.0


@pytest.mark.parametrize(
    "option", [("--limit", "hard"), ("--accounting", "paper"), ("--estimator", "ridge"), ("--plot", "r.png")]
)
def test_replay_of_a_sparse_log_runs_nothing(shell, sparse, option):
    failed = shell("replay", sparse, "--budget", 1.2, *option)
    check_one_line(failed, f"{option[0]} needs queries with a score and a cost of every model")


def test_replay_routes_the_complete_queries_where_most_are(log, tmp_path):
    rows, score = pl.read_parquet(log), f"score|{TABLE.models[0]}"
    for n_complete, names in ((200, {"single-best"}), (100, {"as-logged"})):
        seen = pl.when(pl.int_range(pl.len()) < n_complete).then(pl.col(score)).alias(score)
        rows.with_columns(seen).write_parquet(tmp_path / "partly.parquet")
        run = json.loads(wiserouter("replay", tmp_path / "partly.parquet", "--budget", 0.2, "--contexts", 1, "--json"))
        assert names < set(run["naive"])


def test_replay_of_a_log_with_few_calls_says_what_it_lacks(shell, sparse, tmp_path):
    pl.read_parquet(sparse).head(60).write_parquet(tmp_path / "few.parquet")
    failed = shell("replay", tmp_path / "few.parquet", "--budget", 0.06, "--contexts", 1)
    check_one_line(failed, "the log cannot estimate the reward of this target")
    assert "fewer --contexts" not in failed.stderr
    failed = shell("replay", tmp_path / "few.parquet", "--budget", 0.06, "--contexts", 3)
    assert "fewer --contexts need fewer calls" in " ".join(failed.stderr.split())


@pytest.fixture
def journal(log, tmp_path):
    wiserouter("fit", log, "-o", tmp_path / "r.wise", "--contexts", 4, "--json")
    router = WiseRouter.load(tmp_path / "r.wise", seed=0)
    router.start(Budget(0.15, 300))
    kept = router.journal_to(tmp_path / "decisions.jsonl")
    decisions = [router.decide(prompt) for prompt in TABLE.prompts[:5]]
    router.charge(decisions[1], 0.0004)
    router.reward(decisions[1], 0.5)
    router.presume(decisions[2])
    kept.close()
    return tmp_path / "decisions.jsonl", router, decisions


def test_explain_equals_the_routers_explanation(journal):
    path, router, decisions = journal
    shown = json.loads(
        wiserouter("explain", decisions[1].id, "--journal", path, "--artifact", path.parent / "r.wise", "--json")
    )
    assert shown == router.explain(decisions[1]).as_dict()
    assert (shown["state"], shown["cost_usd"], shown["reward"]) == ("charged", 0.0004, 0.5)
    last = json.loads(wiserouter("explain", "last", "--journal", path, "--json"))
    assert (last["id"], last["state"]) == (decisions[-1].id, "in flight")
    assert last["context"].keys() == {"id", "share"}


def test_explain_prints_a_table(shell, journal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path, _, decisions = journal
    printed = wiserouter("explain", decisions[1].id, "--journal", path, "--artifact", path.parent / "r.wise")
    for part in (decisions[1].id, "nano", "drawn", "typical prompts: row", "about:", "reward per extra USD"):
        assert part in printed
    assert "since its outcome is unknown" in wiserouter("explain", decisions[2].id, "--journal", path)
    with path.open("a") as file:
        file.write('{"event": "dec')
    noted = shell("explain", "last", "--journal", path)
    assert noted.returncode == 0
    assert "skipped 1 lines that are truncated or damaged" in noted.stderr


@pytest.fixture
def explored(log, tmp_path):
    """Return a journal with a share of exploration, the artifact of its router, and the router."""
    wiserouter("fit", log, "-o", tmp_path / "r.wise", "--contexts", 4, "--json")
    router = WiseRouter.load(tmp_path / "r.wise", seed=0)
    router.explore = ExploreShare(0.5)
    router.start(Budget(3.0, 1_800))  # the end of a budget is cheap models only
    kept, rng = router.journal_to(tmp_path / "d.jsonl"), np.random.default_rng(0)
    for i in rng.integers(300, size=900):
        decision = router.decide(TABLE.prompts[i])
        k = router.pool.index(decision.model)
        router.charge(decision, float(TABLE.cost_usd[i, k]))
        router.reward(decision, float(TABLE.reward[i, k]))
    kept.close()
    return tmp_path / "d.jsonl", tmp_path / "r.wise", router


def test_evaluate_estimates_other_budgets(explored):
    journal, artifact, router = explored
    asked = ("--budget-per-query", 0.001, "--budget-per-query", 0.003, "--only", "max", "--requests", 10_000)
    shown = json.loads(wiserouter("evaluate", journal, "--artifact", artifact, *asked, "--json"))
    assert (
        shown["decisions"],
        shown["left_out"],
        shown["skipped_lines"],
        shown["requests"],
    ) == (900, 0, 0, 10_000)
    names = [target["target"] for target in shown["targets"]]
    assert names == ["as logged", "$0.001 per query", "$0.003 per query", "max alone"]
    logged = shown["targets"][0]["cost_usd"]
    assert logged["ips"]["mean"] == pytest.approx(router.status().spent_usd / 900)
    assert logged["overlap"]["effective"] == pytest.approx(900)
    for target, rate in zip(shown["targets"][1:3], (0.001, 0.003), strict=True):
        for name in ("ips", "snips", "dr"):
            one = target["cost_usd"][name]
            assert one["low"] <= one["mean"] <= one["high"]
            assert one["total"] == pytest.approx([10_000 * one[at] for at in ("mean", "low", "high")])
            assert abs(one["mean"] - rate) < 4 * one["se"]
    alone = shown["targets"][3]["reward"]["snips"]
    assert abs(alone["mean"] - TABLE.reward[:, TABLE.models.index("max")].mean()) < 4 * alone["se"]
    followed = json.loads(wiserouter("evaluate", journal, "--budget", 0.9, "--without", "nano", "--json"))
    assert followed["targets"][1]["target"] == "$0.001 per query without nano"
    assert 0 < followed["targets"][1]["reward"]["dr"]["mean"] < 1


def test_evaluate_prints_a_table_and_refusals(shell, explored, journal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "220")
    with explored[0].open("a") as file:
        file.write('{"event": "dec')
    printed = shell("evaluate", explored[0], "--budget-per-query", 0.001, "--only", "max")
    for part in ("900 decisions", "doubly robust", "$0.001 per query", "max alone", "reward", "USD", "worth"):
        assert part in printed.stdout
    assert "skipped 1 lines" in printed.stderr
    failed = shell("evaluate", journal[0], "--only", "max")
    assert failed.returncode == 2
    assert "the log cannot estimate the reward of this target" in failed.stderr
    short = r"a budget must be at least \S+ USD per query, .* got 1e-09: raise it, or give fewer --requests"
    refused = (
        (["--explored"], "--explored needs decisions"),
        ([], "evaluate needs --budget"),
        (["--budget", 0.001, "--requests", 1_000_000, "--artifact", explored[1]], short),
    )
    for options, says in refused:
        with pytest.raises(InvalidInput, match=says):
            wiserouter("evaluate", explored[0], *options)


def test_prices_reach_the_artifact(shell, log, tmp_path):
    prices = tmp_path / "prices.json"
    prices.write_text('{"nano": {"price": {"input": 1e-7, "output": 4e-7}, "max_output_tokens": 100}}')
    wiserouter("fit", log, "-o", tmp_path / "r.wise", "--contexts", 4, "--prices", prices, "--json")
    prices.write_text('{"nano": {"prize": 1}}')
    failed = shell("fit", log, "-o", tmp_path / "r.wise", "--prices", prices)
    assert failed.returncode == 2
    assert "prices must read" in failed.stderr
    prices.write_text('{"nano": {"price": {"input": 0.1, "output": 0.4}}}')
    failed = shell("fit", log, "-o", tmp_path / "r.wise", "--prices", prices)
    assert failed.returncode == 2
    told = " ".join(failed.stderr.split())
    assert "Price.input of 'nano' must be at most 0.001 USD per token, got 0.1" in told
    assert "give 1e-07 or Price.per_million" in told


def test_parts_are_fitted_in_the_same_contexts_and_merged(log, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    frame = pl.read_parquet(log)
    for name, part in (("a", frame[:200]), ("b", frame[200:])):
        part.write_parquet(tmp_path / f"{name}.parquet")
    a, b, merged, whole = (tmp_path / f"{name}.wise" for name in ("a", "b", "merged", "whole"))
    wiserouter("fit", tmp_path / "a.parquet", "-o", a, "--contexts", 4, "--json")
    wiserouter("fit", tmp_path / "b.parquet", "-o", b, "--contexts-of", a, "--json")
    wiserouter("fit", log, "-o", whole, "--contexts-of", a, "--json")
    shown = json.loads(wiserouter("merge", a, b, "-o", merged, "--json"))
    assert (shown["artifact"], shown["models"], len(shown["sha256"])) == (
        str(merged),
        list(TABLE.models),
        64,
    )
    assert [part["queries"] for part in shown["parts"]] == [200, 100]
    assert (shown["queries"], shown["costs"], shown["rewards"]) == (300, 1_200, 1_200)
    one, other = WiseRouter.load(merged), WiseRouter.load(whole)
    assert one.plan.value(one.plan.ceiling_usd) == pytest.approx(other.plan.value(one.plan.ceiling_usd), abs=1e-9)
    printed = wiserouter("merge", b, a, "-o", merged, "--prices-from", a)
    for figure in ("200", "100", "300", "1,200", shown["sha256"]):
        assert figure in printed


def test_a_bar_takes_its_total_from_the_pass_before():
    bars = Progress(disable=True)
    report = reporter(bars)
    for step, rows in (("reading", 30), ("reading", 20), ("clustering", 0), ("estimating", 30)):
        report(step, rows)
    assert [(task.description, task.completed, task.total) for task in bars.tasks] == [
        ("reading", 50, 50),
        ("clustering", 0, 0),
        ("estimating", 30, 50),
    ]


MISTAKES = [
    (("fit", "missing.csv"), "missing.csv: no such file: correct the path"),
    (("explain", "last", "--journal", "."), ".: is a directory: name a file"),
    (("explain", "last", "--journal", "none.jsonl"), "none.jsonl: no such file or directory: correct the path"),
    (("fit", ""), "a log must be named by the path of a file, a folder or a pattern, or a list of them, got ''"),
    (("plan", "LOG", "--budget", "-5"), "--budget must be a finite number of at least 0, got -5"),
    (("plan", "missing.wise"), "missing.wise"),
    (("merge", "missing.wise", "other.wise"), "missing.wise"),
    (("replay", "LOG"), "needs --budget"),
    (("replay", "LOG", "--budget", "-1"), "--budget must be a finite number of at least 0, got -1"),
    (("replay", "LOG", "--budget", "0"), "a budget to replay must be above 0, got 0"),
    (("replay", "LOG", "--budget", "1", "--limit", "soft"), "--limit must be one of expected, hard, got 'soft'"),
    (("replay", "LOG", "--budget", "1", "--models", "nano,gpt-9"), "got 'gpt-9'"),
    (("fit", "LOG", "--encoder", "bert"), "bert"),
    (("plan", "LOG"), "not a WISERouter artifact"),
    (("fit", "LOG", "-o", "/nonexistent/x.wise"), "/nonexistent/x.wise needs a folder that can be written to"),
    (("fit", "missing.csv", "-o", "."), ". must be a file, got a folder"),
    (("merge", "a.wise", "b.wise", "-o", "/nonexistent/x.wise"), "needs a folder that can be written to"),
    (("plan", "missing.wise", "--plot", ""), ". must be a file, got a folder"),
    (("plan", "missing.wise", "--plot", "/nonexistent/x.png"), "needs a folder that can be written to"),
    (("replay", "LOG", "--budget", "1", "--plot", "/nonexistent/x.png"), "needs a folder that can be written to"),
    (("simulate", "--plot", "/nonexistent/x.png"), "needs a folder that can be written to"),
    (("demo", "--plot", "/nonexistent/x.png"), "needs a folder that can be written to"),
    (("explain", "last", "--journal", "missing.jsonl"), "missing.jsonl"),
    (("explain", "unknown", "--journal", "LOG"), "decision 'unknown' is unknown"),
    (("report", "missing.jsonl"), "must be a URL or an existing file, got 'missing.jsonl': correct it"),
    (("report", ""), "must be a URL or an existing file, got '': correct it"),
    (("evaluate", "missing.jsonl", "--only", "a"), "missing.jsonl"),
    (
        (
            "paper",
            "exploration-length",
        ),
        "needs either an artifact, or --cost-gap",
    ),
    (("paper", "exploration-length", "LOG", "--models", 2), "needs either an artifact"),
    (
        ("paper", "exploration-length", "--cost-gap", 0, "--ratio-gap", 1, "--min-freq", 1, "--models", 2),
        "cost_gap must lie",
    ),
]


@pytest.mark.parametrize(("arguments", "says"), MISTAKES)
def test_mistakes_are_one_line_and_exit_code_2(shell, log, arguments, says):
    check_one_line(shell(*(log if a == "LOG" else a for a in arguments)), says)


@pytest.mark.parametrize(
    ("arguments", "example"),
    [
        (("fit",), "fit calls.parquet -o support.wise"),
        (("batch", "report"), "batch report night"),
        (("status",), "status --store sqlite:///budget.db"),
        (("arena", "export"), "--name wiserouter --cost 0.27 -o RouterArena"),
    ],
)
def test_a_missing_argument_shows_the_example_of_the_command(shell, monkeypatch, arguments, example):
    monkeypatch.delenv("WISEROUTER_STORE", raising=False)
    failed = shell(*arguments)
    assert failed.returncode == 2
    text = " ".join(failed.stderr.replace("│", " ").split())
    assert re.search(rf"Missing (argument|option) .*Example: wiserouter .*{re.escape(example)}", text), text


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a pipe that is a file")
@pytest.mark.parametrize(
    "arguments", [("fit", "LOG"), ("merge", "missing.wise", "other.wise"), ("log", "import", "otel", "LOG")]
)
def test_an_output_that_is_no_regular_file_is_refused_and_stays(shell, log, tmp_path, arguments):
    target = tmp_path / "pipe.parquet"
    os.mkfifo(target)
    failed = shell(*(log if a == "LOG" else a for a in arguments), "-o", target)
    check_one_line(failed, "pipe.parquet must be a regular file, got a folder, a device or a pipe")
    assert target.is_fifo()


def test_a_fit_writes_over_no_file_but_an_artifact(shell, log, tmp_path):
    notes = tmp_path / "notes.md"
    notes.write_text("mine")
    check_one_line(shell("fit", log, "-o", notes), "notes.md is there and no artifact")
    assert notes.read_text() == "mine"


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "LOG", "-o", "log.parquet"),
        ("fit", "LOG", "-o", "link.wise"),
        ("fit", "*.parquet", "-o", "log.parquet"),
        ("fit", "LOG", "--prices", "prices.json", "-o", "prices.json"),
        ("log", "import", "otel", "LOG", "-o", "log.parquet"),
        ("bench", "LOG", "--methods", "zero", "--seeds", 1, "--report", "."),
        ("report", "journal.jsonl", "--html", "journal.jsonl"),
        ("data", "routerarena", "answers.jsonl", "-o", "answers.jsonl"),
    ],
)
def test_a_file_that_is_read_is_not_replaced(shell, log, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.wise").symlink_to(log)
    (tmp_path / "prices.json").write_text("{}")
    (tmp_path / "journal.jsonl").touch()
    scored = {"score": 1.0, "inference_cost": 1e-4}
    answer = {"global_index": "AIME_1", "question": "q", "llm_selected": "small", "evaluation_result": scored}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer))
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    check_one_line(shell(*(log if a == "LOG" else a for a in arguments)), "must not be a file that is read")
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


ONE_OF_EACH_COMMAND = {each[0][0]: each for each in reversed(MISTAKES)}.values()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [pytest.param(*each, marks=[] if each is MISTAKES[0] else [pytest.mark.slow]) for each in ONE_OF_EACH_COMMAND],
)
def test_mistakes_of_a_process_are_one_line_and_exit_code_2(log, arguments, says):
    check_one_line(process(*(log if a == "LOG" else a for a in arguments)), says)


def check_one_line(failed, says):
    assert failed.returncode == 2
    assert says in failed.stderr
    assert failed.stderr.strip().count("\n") == 0, failed.stderr


class Interrupted(ModuleType):
    """The commands, at whose loading Ctrl-C comes."""

    def __getattr__(self, name):
        raise AttributeError(name) if name.startswith("__") else KeyboardInterrupt


def test_an_interruption_while_the_commands_load_has_no_traceback(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wiserouter.cli.commands", Interrupted("wiserouter.cli.commands"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "Aborted.\n")


def test_the_commands_are_loaded_by_the_program_alone():
    loaded = "import sys, wiserouter.cli; sys.exit('typer' in sys.modules or 'rich' in sys.modules)"
    subprocess.run([sys.executable, "-c", loaded], check=True)
    (program,) = (one for one in entry_points(group="console_scripts") if one.name == "wiserouter")
    assert program.load() is main


def test_version():
    assert wiserouter("--version").startswith("wiserouter 0.")
