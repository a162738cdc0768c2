"""Public sets as wide tables, refusals with their row and column, and tables as arrays."""

import hashlib
import json
import re
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

from support.frames import MODELS, routerbench_like
from support.tables import FOLDER, PARETO, ROUTERBENCH, SWEBENCH, needs_tables
from support.tables import read as read_shared
from wiserouter import RoutingLog
from wiserouter.errors import LogError, MissingExtra
from wiserouter.evaluation.datasets import open_table, paretobandit, routerbench, summary, swebench
from wiserouter.evaluation.datasets.download import from_hub
from wiserouter.evaluation.datasets.wide_table import series, write
from wiserouter.evaluation.errors import HashMismatch, MissingTable


def pickled(frame, folder, name="table.pkl"):
    file = folder / name
    frame.to_pickle(file)
    return file


def changed(column, row, value):
    frame = routerbench_like()
    frame[column] = frame[column].astype(object)
    frame.loc[row, column] = value
    return frame


# RouterBench


def test_routerbench_becomes_a_table_that_the_log_reads(tmp_path):
    table = routerbench.read(pickled(routerbench_like(), tmp_path))
    assert table.models == ("small", "large")
    assert (table.incomplete, table.repeated) == (0, 0)
    assert table.frame.columns == [
        *("sample_id", "eval_name", "prompt", "rb_row"),
        *("score|small", "cost|small", "score|large", "cost|large"),
    ]
    write(table, tmp_path / "new" / "table.parquet")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["table.parquet"]
    batch = RoutingLog.read(tmp_path / "new" / "table.parquet").table()
    wanted = routerbench_like()
    assert batch.prompts == [f"Question {i}?\nAnswer:" for i in range(5)]
    np.testing.assert_array_equal(batch.reward, wanted[list(MODELS)].astype(float))
    np.testing.assert_array_equal(batch.cost_usd, wanted[[f"{name}|total_cost" for name in MODELS]])


@pytest.mark.parametrize(
    ("frame", "row", "column", "says"),
    [
        (routerbench_like().drop(columns="large|total_cost"), None, "large|total_cost", "the column is missing"),
        (routerbench_like().drop(columns="large"), None, "large", "the column is missing"),
        (routerbench_like().drop(columns="prompt"), None, "prompt", "the column is missing"),
        (routerbench_like().drop(columns="sample_id"), None, "sample_id", "the column is missing"),
        (
            pd.DataFrame({"sample_id": ["a"], "prompt": ["b"], "eval_name": ["c"]}),
            None,
            "<model>|total_cost",
            "missing",
        ),
        (changed("large", 2, "n/a"), 3, "large", "must lie in [0, 1], got 'n/a'"),
        (changed("large", 2, 1.5), 3, "large", "must lie in [0, 1], got 1.5"),
        (changed("large", 1, -0.5), 2, "large", "must lie in [0, 1], got -0.5"),
        (changed("large", 1, None), 2, "large", "the score or cost of 'made-up.1' is missing"),
        (changed("large", 1, float("nan")), 2, "large", "is missing"),
        (changed("large|total_cost", 4, -0.001), 5, "large|total_cost", "at most 1,000,000,000, got -0.001"),
        (changed("large|total_cost", 4, float("inf")), 5, "large|total_cost", "got inf"),
        (changed("large|total_cost", 4, float("nan")), 5, "large|total_cost", "is missing"),
        (changed("large|total_cost", 0, "free"), 1, "large|total_cost", "got 'free'"),
        (changed("large", 0, b"1"), 1, "large", "must be text or a number, got bytes"),
        (changed("large", 0, 10**400), 1, "large", "got a huge number"),
        (changed("prompt", 3, None), 4, "prompt", "text is missing"),
        (changed("prompt", 3, float("nan")), 4, "prompt", "text is missing"),
        (changed("prompt", 3, ["a"]), 4, "prompt", "must be text or a number, got list"),
        (changed("prompt", 3, "\ud800"), None, "prompt", "valid Unicode"),
        (changed("sample_id", 3, "made-up.1"), 4, "sample_id", "must be unique, got 'made-up.1' again"),
    ],
)
def test_damage_is_named_by_row_and_column(frame, row, column, says, tmp_path):
    file = pickled(frame, tmp_path)
    with pytest.raises(LogError, match=re.escape(says)) as caught:
        routerbench.read(file)
    assert (caught.value.file, caught.value.row, caught.value.column) == (file, row, column)
    assert [one.name for one in tmp_path.iterdir()] == ["table.pkl"]  # nor is its hash pinned


def test_the_long_file_is_recognised(tmp_path):
    long = pd.DataFrame({"sample_id": ["a"], "prompt": ["b"], "model_name": ["m"], "performance": [1.0], "cost": [0.1]})
    with pytest.raises(LogError, match="the long file of RouterBench, convert routerbench_0shot"):
        routerbench.read(pickled(long, tmp_path))


def test_faulty_rows_are_left_out_on_request(tmp_path):
    frame = pd.concat([changed("large", 1, None), routerbench_like()[3:4]], ignore_index=True)
    table = routerbench.read(pickled(frame, tmp_path), drop_faulty=True)
    assert (table.incomplete, table.repeated) == (1, 1)
    assert table.frame["sample_id"].to_list() == [f"made-up.{i}" for i in (0, 2, 3, 4)]
    assert table.frame["rb_row"].to_list() == [0, 2, 3, 4]


def test_a_table_without_a_complete_row(tmp_path):
    frame = routerbench_like().assign(large=None)
    with pytest.raises(LogError, match="at least one complete row"):
        routerbench.read(pickled(frame, tmp_path), drop_faulty=True)


def test_a_published_file_is_known_by_its_hash_and_so_are_its_faults(tmp_path, monkeypatch):
    file = pickled(changed("large", 1, None), tmp_path, "routerbench_5shot.pkl")
    with pytest.raises(HashMismatch, match="fbd7d3d16fba") as caught:
        routerbench.read(file)
    assert caught.value.got == hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setitem(routerbench.KNOWN, file.name, caught.value.got)
    assert routerbench.read(file).incomplete == 1
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_a_hash_that_does_not_match_is_refused_before_anything_is_read(tmp_path):
    file = tmp_path / "table.pkl"
    file.write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(HashMismatch, match="must be " + 64 * "0"):
        routerbench.read(file, sha256="0" * 64)


def test_the_first_use_pins_the_hash(tmp_path):
    file = pickled(routerbench_like(), tmp_path)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    routerbench.read(file, sha256=digest.upper())
    assert not (tmp_path / "table.pkl.sha256").exists()
    routerbench.read(file)
    assert (tmp_path / "table.pkl.sha256").read_text() == f"{digest}  table.pkl\n"
    routerbench.read(file)
    pickled(routerbench_like(6), tmp_path)
    with pytest.raises(HashMismatch, match=digest) as caught:
        routerbench.read(file)
    routerbench.read(file, sha256=caught.value.got)  # explicitly requested: pinned again
    routerbench.read(file)


def test_a_file_too_large_to_be_the_set_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("wiserouter.evaluation.datasets.checksums.MOST_BYTES", 100)
    with pytest.raises(LogError, match="at most 100 bytes"):
        routerbench.read(pickled(routerbench_like(), tmp_path))


def test_one_long_text_in_every_row_cannot_fill_the_memory(monkeypatch):
    monkeypatch.setattr("wiserouter.evaluation.datasets.wide_table.MOST_CHARACTERS", 1_000)
    with pytest.raises(LogError, match="at most 1000 characters are read, got 10000"):
        series("prompt", ["x" * 100] * 100)


def test_download_requests_the_published_file_and_returns_it(tmp_path):
    asked = []
    file = routerbench.download("0shot", lambda *what: asked.append(what) or tmp_path)
    assert file == tmp_path
    assert asked == [("withmartian/routerbench", "routerbench_0shot.pkl", routerbench.REVISION)]


def test_the_hub_is_asked_for_a_data_set(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *a, **k: asked.update(a=a, **k) or str(tmp_path))
    assert from_hub("who/what", "file", "1234") == tmp_path
    assert asked == {"a": ("who/what", "file"), "repo_type": "dataset", "revision": "1234"}


def test_a_failed_download_names_the_command_that_gets_the_file(monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("no route to host\nmore")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    with pytest.raises(
        MissingTable, match=r"could not be fetched \(no route to host\); get it with: hf download who/what"
    ):
        from_hub("who/what", "file", "1234")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'wiserouter[bench]'")):
        from_hub("who/what", "file", "1234")


# SWE-bench

RUN = {
    "made__up-1": {"resolved": True, "cost": 0.5, "api_calls": 3},
    "made__up-2": {"resolved": False, "cost": 0.25, "api_calls": 9},
}
CHEAP = {name: {**one, "cost": one["cost"] / 10} for name, one in RUN.items()}


def as_json(content, file):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    return file


def board(*entries, name="bash-only"):
    return {"leaderboards": [{"name": "Test", "results": []}, {"name": name, "results": list(entries)}]}


def entry(name, run, **more):
    return {
        "name": name,
        "tags": [f"Model: {name.lower()}"],
        "folder": f"2025_{name}",
        "per_instance_details": run,
        **more,
    }


def test_three_structures_of_runs_give_the_same_table(tmp_path):
    results = [{"name": "no details", "resolved": 1.0}, entry("Big", RUN), entry("Tiny", CHEAP)]
    leaderboard = as_json(board(*results), tmp_path / "leaderboards.json")
    by_model = as_json({"big": RUN, "tiny": CHEAP}, tmp_path / "models.json")
    as_json(RUN, tmp_path / "runs" / "20250807_mini-v1.7.0_big" / "per_instance_details.json")
    as_json(CHEAP, tmp_path / "runs" / "20250808_mini-v1.7.0_tiny" / "per_instance_details.json")
    tables = [swebench.read([path]) for path in (leaderboard, by_model, tmp_path / "runs")]
    assert {table.models for table in tables} == {("big", "tiny")}
    wanted = {
        "sample_id": ["made__up-1", "made__up-2"],
        "source": ["swe-bench"] * 2,
        "prompt": ["made__up-1", "made__up-2"],
        "score|big": [1.0, 0.0],
        "cost|big": [0.5, 0.25],
        "score|tiny": [1.0, 0.0],
        "cost|tiny": [0.05, 0.025],
    }
    for table in tables:
        assert table.frame.to_dict(as_series=False) == wanted


def test_problem_statements_become_the_prompts(tmp_path):
    runs = as_json({"big": RUN}, tmp_path / "runs.json")
    problems = pl.DataFrame(
        {"instance_id": list(RUN), "problem_statement": ["It breaks.", "So does it."], "repo": ["a"] * 2}
    )
    problems.write_parquet(tmp_path / "problems.parquet")
    table = swebench.read([runs], problems=tmp_path / "problems.parquet")
    assert table.frame["prompt"].to_list() == ["It breaks.", "So does it."]
    assert "repo" in table.frame.columns
    problems[:1].write_parquet(tmp_path / "problems.parquet")
    with pytest.raises(LogError, match="row 2, column 'prompt': text is missing"):
        swebench.read([runs], problems=tmp_path / "problems.parquet")
    problems.drop("problem_statement").write_parquet(tmp_path / "problems.parquet")
    with pytest.raises(LogError, match="column 'problem_statement': the column is missing"):
        swebench.read([runs], problems=tmp_path / "problems.parquet")


def test_runs_of_one_model_are_named_by_a_unique_name(tmp_path):
    entries = [entry("A", RUN), entry("B", CHEAP, tags=["Model: a"]), entry("B", CHEAP, folder="f", tags=["Model: a"])]
    assert swebench.read([as_json(board(*entries), tmp_path / "b.json")]).models == ("A", "2025_B", "f")


def test_models_are_chosen_and_ordered(tmp_path):
    runs = as_json({"big": RUN, "tiny": CHEAP, "lacks one": {"made__up-1": RUN["made__up-1"]}}, tmp_path / "runs.json")
    assert swebench.read([runs], models=["tiny", "big"]).models == ("tiny", "big")
    with pytest.raises(LogError, match="a run must be one of big, tiny, lacks one; got 'huge'"):
        swebench.read([runs], models=["huge"])
    with pytest.raises(
        LogError, match=r"row 2, column 'score\|lacks one': the score or cost of 'made__up-2' is missing"
    ):
        swebench.read([runs])
    table = swebench.read([runs], drop_faulty=True)
    assert (table.frame.height, table.incomplete) == (1, 1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "must hold a leaderboard, a run"),
        ({"made__up-1": {"cost": 1}}, "must hold a leaderboard, a run"),
        (board(name="Verified"), "board must be one of Test, Verified, got 'bash-only'"),
        (board(), "no run with results per instance"),
        ({"big": {"made__up-1": {"resolved": True, "cost": -1}}}, "column 'cost|big': a cost in USD"),
        ({"big": {"made__up-1": {"resolved": "maybe", "cost": 1}}}, "column 'score|big': a reward must lie"),
        ({"big": {"made__up-1": {"resolved": True, "cost": None}}}, "column 'cost|big': the score or cost of"),
        ({"big": {"made__up-1": {"resolved": True, "cost": {}}}}, "column 'cost|big': a cell must be text or a number"),
    ],
)
def test_runs_of_another_structure_are_refused(content, says, tmp_path):
    with pytest.raises(LogError, match=re.escape(says)):
        swebench.read([as_json(content, tmp_path / "runs.json")])


def test_runs_that_are_missing_or_not_json_or_repeated(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        swebench.read([tmp_path / "nowhere"])
    with pytest.raises(LogError, match="no run with results per instance was found in no file"):
        swebench.read([tmp_path])
    (tmp_path / "runs.json").write_text("{")
    with pytest.raises(LogError, match="damaged or not JSON"):
        swebench.read([tmp_path / "runs.json"])
    runs = as_json({"big": RUN}, tmp_path / "runs.json")
    with pytest.raises(LogError, match="got 'big' again"):
        swebench.read([runs, runs])


# ParetoBandit


def line(reward=0.5, **more):
    arms = {"maker/a": {"reward": reward, "cost": 0.1, "near_best": True}, "maker/b": {"reward": 1.0, "cost": 0.2}}
    return {"prompt": "Hm?", "source": "made-up", "arms": arms, **more}


def as_jsonl(lines, file):
    file.write_text("\n".join(json.dumps(one) for one in lines) + "\n\n")
    return file


def test_paretobandit_becomes_a_table(tmp_path):
    first = as_jsonl([line(), line(0.25)], tmp_path / "val.jsonl")
    second = as_jsonl([line(0.75)], tmp_path / "test.jsonl")
    table = paretobandit.read([first, second])
    assert table.models == ("a", "b")
    assert table.frame["sample_id"].to_list() == ["val-00000", "val-00001", "test-00000"]
    assert table.frame["score|a"].to_list() == [0.5, 0.25, 0.75]
    assert table.frame["cost|b"].to_list() == [0.2] * 3


@pytest.mark.parametrize(
    ("lines", "row", "column", "says"),
    [
        ([line(), {"arms": {}}], 2, "prompt", "a str is wanted, got None"),
        ([line(), [1]], 2, "prompt", "a str is wanted"),
        ([line(arms=3)], 1, "arms", "a dict is wanted, got 3"),
        ([line(arms={"a": {"reward": 1}})], 1, "arms.a.cost", "cost is missing"),
        ([line(arms={"a": 1})], 1, "arms.a.reward", "reward is missing"),
        ([line(), line(1.5)], 2, "arms.maker/a.reward", "must lie in [0, 1], got 1.5"),
        ([line(), line(None)], 2, "arms.maker/a.reward", "is missing"),
        ([line(), line(arms={"maker/a": {"reward": 1, "cost": 1}})], 2, "arms.maker/b.reward", "is missing"),
        ([], None, None, "no query was found"),
    ],
)
def test_a_damaged_line_is_named(lines, row, column, says, tmp_path):
    with pytest.raises(LogError, match=re.escape(says)) as caught:
        paretobandit.read([as_jsonl(lines, tmp_path / "val.jsonl")])
    assert (caught.value.row, caught.value.column) == (row, column)


def test_a_line_that_is_not_json(tmp_path):
    (tmp_path / "val.jsonl").write_text(json.dumps(line()) + "\n{oh\n")
    with pytest.raises(LogError, match=r"row 2: a line must be one JSON object, got '\{oh"):
        paretobandit.read([tmp_path / "val.jsonl"])


# tables as arrays

WIDE = {
    "sample_id": ["x", "y", "z"],
    "prompt": ["a", "b", "c"],
    "score|m": [1.0, 0.5, None],
    "cost|m": [0.1, 0.2, 0.3],
    "score|n": [0.0, 0.25, 1.0],
    "cost|n": [0.5, 0.5, 0.5],
}


def test_open_table_gives_dense_arrays(tmp_path, monkeypatch):
    pl.DataFrame(WIDE).write_parquet(tmp_path / "mine.parquet")
    opened = open_table("mine", folder=tmp_path)
    assert (opened.name, opened.ids, opened.dropped, opened.embeddings) == ("mine", ["x", "y"], 1, None)
    assert opened.table.prompts == ["a", "b"]
    assert opened.table.models == ("m", "n")
    np.testing.assert_array_equal(opened.table.reward, [[1.0, 0.0], [0.5, 0.25]])
    np.testing.assert_array_equal(opened.table.cost_usd, [[0.1, 0.5], [0.2, 0.5]])
    monkeypatch.setenv("WISEROUTER_DATA", str(tmp_path))
    for same in (open_table("mine"), open_table(tmp_path / "mine.parquet")):
        assert same.sha256 == opened.sha256


def test_the_hash_is_that_of_the_content(tmp_path):
    frame = pl.DataFrame(WIDE)
    frame.write_parquet(tmp_path / "a.parquet", compression="uncompressed")
    frame.write_csv(tmp_path / "b.csv")
    frame.write_ndjson(tmp_path / "c.jsonl")
    same = {summary(tmp_path / name).sha256 for name in ("a.parquet", "b.csv", "c.jsonl")}
    assert len(same) == 1
    for column, value in (("score|m", 0.875), ("cost|n", 0.25), ("prompt", "other")):
        other = frame.with_columns(pl.Series(column, [value, *WIDE[column][1:]]))
        other.write_parquet(tmp_path / "other.parquet")
        assert summary(tmp_path / "other.parquet").sha256 not in same
    frame.with_columns(embedding=pl.Series([[1.0], [2.0], [3.0]])).write_parquet(tmp_path / "other.parquet")
    assert summary(tmp_path / "other.parquet").sha256 not in same


@pytest.mark.parametrize("dtype", [pl.List(pl.Float64), pl.Array(pl.Float32, 2)])
def test_embeddings_are_part_of_the_table(tmp_path, dtype):
    rows = pl.Series([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=dtype)
    pl.DataFrame(WIDE).with_columns(embedding=rows).write_parquet(tmp_path / "mine.parquet")
    np.testing.assert_array_equal(open_table("mine", folder=tmp_path).embeddings, [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    "rows", [[[1.0], [2.0, 3.0], [4.0]], [[1.0], [float("nan")], [1.0]], ["a", "b", "c"], [1.0, 2.0, 3.0]]
)
def test_embeddings_that_are_not_rows_of_numbers(tmp_path, rows):
    pl.DataFrame(WIDE).with_columns(embedding=pl.Series(rows)).write_parquet(tmp_path / "mine.parquet")
    with pytest.raises(LogError, match="column 'embedding': an embedding must be a list"):
        open_table("mine", folder=tmp_path)


def test_a_long_log_is_opened_too(tmp_path):
    rows = [("q", "a", "m", 1.0, 0.1), ("q", "a", "n", 0.0, 0.2), ("r", "b", "m", 1.0, 0.1)]
    columns = ("query_id", "prompt", "model", "reward", "cost_usd")
    pl.DataFrame(rows, columns, orient="row").write_csv(tmp_path / "long.csv")
    opened = open_table(tmp_path / "long.csv")
    assert (opened.ids, opened.dropped, opened.table.models) == (["1"], 1, ("m", "n"))
    found = summary(tmp_path / "long.csv")
    assert (found.queries, found.rows) == (2, 3)


def test_a_repeated_id_is_refused_unless_another_key_is_unique(tmp_path):
    frame = pl.DataFrame(WIDE | {"sample_id": ["x", "y", "x"]})
    frame.write_parquet(tmp_path / "mine.parquet")
    with pytest.raises(LogError, match="row 3, column 'sample_id': an id must be unique, got 'x' again"):
        open_table("mine", folder=tmp_path)
    frame.with_columns(rb_row=pl.Series([7, 8, 9])).write_parquet(tmp_path / "mine.parquet")
    assert open_table("mine", folder=tmp_path).ids == ["x", "y"]


def test_a_table_with_no_complete_query(tmp_path):
    pl.DataFrame(WIDE | {"score|m": [None] * 3}).cast({"score|m": pl.Float64}).write_parquet(tmp_path / "mine.parquet")
    with pytest.raises(LogError, match="every model answered, got none"):
        open_table("mine", folder=tmp_path)
    found = summary("mine", folder=tmp_path)
    assert np.isnan(found.mean_reward[0])
    assert found.missing_reward.tolist() == [3, 0]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("routerbench_5shot", "get it with: wiserouter data routerbench"),
        ("data/routerbench_0shot.parquet", "wiserouter data routerbench --release 0shot"),
        ("swebench", "wiserouter data swebench swe-bench.github.io/data/leaderboards.json"),
        ("paretobandit", "wiserouter data paretobandit"),
        ("something", "wiserouter data --help"),
    ],
)
def test_a_missing_table_names_the_command_that_gets_it(name, command, tmp_path):
    with pytest.raises(MissingTable, match=re.escape(command)) as caught:
        open_table(name, folder=tmp_path)
    assert isinstance(caught.value, FileNotFoundError)
    assert str(caught.value).startswith(f"table {name!r} does not exist")


def test_summary_of_a_table(tmp_path):
    pl.DataFrame(WIDE).write_parquet(tmp_path / "mine.parquet")
    found = summary("mine", folder=tmp_path)
    assert (found.queries, found.rows, found.models) == (3, 3, ("m", "n"))
    np.testing.assert_allclose(found.mean_reward, [0.75, 1.25 / 3])
    np.testing.assert_allclose(found.mean_cost_usd, [0.2, 0.5])
    assert (found.missing_reward.tolist(), found.missing_cost.tolist()) == ([1, 0], [0, 0])
    assert found.flat_cost == ("n",)


# the public tables themselves


@needs_tables
@pytest.mark.parametrize(("name", "dropped"), [(ROUTERBENCH, 28), (PARETO, 0), (SWEBENCH, 0)])
def test_the_public_tables_open_as_the_replay_reads_them(name, dropped):
    opened, wanted = open_table(name, folder=FOLDER), read_shared(name)
    assert opened.dropped == dropped
    assert opened.table.prompts == wanted.prompts
    assert opened.table.models == wanted.models
    np.testing.assert_array_equal(opened.table.reward, wanted.reward)
    np.testing.assert_array_equal(opened.table.cost_usd, wanted.cost_usd)
    assert len(set(opened.ids)) == len(opened.ids)


@needs_tables
def test_a_pickle_of_the_public_slice_becomes_the_slice_again(tmp_path):
    """In RouterBench's own layout: scores as objects with None, prompts as text of lists, costs as floats."""
    original = pl.read_parquet(FOLDER / f"{ROUTERBENCH}.parquet")
    models = [name.removeprefix("score|") for name in original.columns if name.startswith("score|")]
    frame = {name: original[name].to_list() for name in ("sample_id", "prompt", "eval_name")}
    frame["prompt"] = [repr([prompt]) for prompt in frame["prompt"]]
    frame |= {name: pd.Series(original[f"score|{name}"].to_list(), dtype=object) for name in models}
    frame |= {f"{name}|total_cost": original[f"cost|{name}"].to_list() for name in models}
    file = pickled(pd.DataFrame(frame), tmp_path)
    with pytest.raises(LogError, match="is missing: correct the file, or pass --drop-faulty"):
        routerbench.read(file)
    table = routerbench.read(file, drop_faulty=True)
    assert (table.incomplete, table.repeated, table.frame.height) == (28, 0, 3_150)
    write(table, tmp_path / "slice.parquet")
    again, wanted = open_table("slice", folder=tmp_path).table, read_shared(ROUTERBENCH)
    assert (again.prompts, again.models) == (wanted.prompts, wanted.models)
    np.testing.assert_array_equal(again.reward, wanted.reward)
    np.testing.assert_array_equal(again.cost_usd, wanted.cost_usd)
