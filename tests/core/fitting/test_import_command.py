"""`wiserouter log import`: files, options, what is counted, and what is refused."""

import gzip
import json

import polars as pl
import pytest
from typer.testing import CliRunner

from support.recorded_calls import BEGAN_S, OBSERVATION, OBSERVATION_V2, PAYLOAD, PHOENIX_SPAN, write_lines
from wiserouter import WiseRouter
from wiserouter.cli import app
from wiserouter.errors import InvalidInput, LogError


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


def test_a_call_in_two_exports_that_overlap_counts_once(tmp_path):
    calls = [{**PAYLOAD, "id": f"i-{n}", "litellm_call_id": f"c-{n}", "startTime": BEGAN_S + n} for n in range(30)]
    write_lines(tmp_path / "june.jsonl", calls[:20])
    write_lines(tmp_path / "july.jsonl", [*calls[15:], {**calls[0], "startTime": BEGAN_S + 99}])
    log = tmp_path / "log.parquet"
    done = run("litellm-payloads", tmp_path / "june.jsonl", tmp_path / "july.jsonl", "-o", log)
    assert "31 calls in" in done.stdout
    assert "5 left out: found once more" in done.stdout
    assert pl.read_parquet(log).height == 31


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


def test_a_table_of_annotations_of_phoenix_is_read(tmp_path):
    write_lines(tmp_path / "a.jsonl", [PHOENIX_SPAN])
    columns = "span_id,annotation_name,annotator_kind,result.score,result.label,created_at"
    rows = ("c-1,good,HUMAN,0.25,fair,2026-11-01 00:00:00+00:00", "c-1,good,LLM,,good,2026-11-02 00:00:00+00:00")
    (tmp_path / "s.csv").write_text("\n".join([columns, *rows, "c-1,other,LLM,0,bad,"]) + "\n")
    scored = (tmp_path / "a.jsonl", "-o", tmp_path / "b.parquet", "--scores", tmp_path / "s.csv")
    assert run("phoenix", *scored, "--score", "good").exit_code == 0
    assert pl.read_parquet(tmp_path / "b.parquet")["reward"].to_list() == [1.0]
    assert "scores of good (2), other (1)" in str(run("phoenix", *scored).exception)


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
        (("otel", "missing.jsonl", "-o", "b.parquet"), "missing.jsonl: no such file: correct the path"),
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


def test_a_call_is_priced_as_at_its_time(tmp_path):
    began = ["2026-01-15T12:00:00Z", "2026-02-15T12:00:00Z", "2026-03-15T12:00:00Z"]
    unpriced = {name: value for name, value in OBSERVATION.items() if name != "costDetails"}
    write_lines(tmp_path / "a.jsonl", [{**unpriced, "id": f"c-{at}", "startTime": at} for at in began])
    former = [
        {"before": "2026-03-01", "price": {"input": 2e-6, "output": 0.0}},
        {"before": "2026-02-01", "price": {"input": 3e-6, "output": 0.0}},
    ]
    prices = {"gpt-mini": {"price": {"input": 1e-6, "output": 0.0}, "former_prices": former}}
    (tmp_path / "prices.json").write_text(json.dumps(prices))
    done = run("langfuse", tmp_path / "a.jsonl", "--prices", tmp_path / "prices.json", "-o", tmp_path / "log.parquet")
    assert done.exit_code == 0, done.output
    costs = pl.read_parquet(tmp_path / "log.parquet")["cost_usd"].to_list()
    assert costs == pytest.approx([300e-6, 200e-6, 100e-6])


@pytest.mark.parametrize(
    ("former", "says"),
    [
        ({"before": "2026-03-01"}, "must be a list"),
        ([{"before": "last year", "price": {"input": 1e-6, "output": 1e-6}}], "must read"),
        ([{"before": "2026-03-01", "price": {"input": 3.0, "output": 1e-6}}], "must be at most 0.001 USD per token"),
    ],
)
def test_former_prices_that_make_no_sense_are_refused(former, says, tmp_path):
    write_lines(tmp_path / "a.jsonl", [OBSERVATION])
    prices = {"gpt-mini": {"price": {"input": 1e-6, "output": 1e-6}, "former_prices": former}}
    (tmp_path / "prices.json").write_text(json.dumps(prices))
    options = ("--prices", tmp_path / "prices.json", "-o", tmp_path / "log.parquet")
    refused = run("langfuse", tmp_path / "a.jsonl", *options)
    assert says in str(refused.exception)
