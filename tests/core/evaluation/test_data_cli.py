"""`wiserouter data`: from a file of a set to a table that the other commands read."""

import json
import sys

import pytest
from typer.testing import CliRunner

from support.frames import routerbench_like
from wiserouter.cli import app, main
from wiserouter.evaluation.errors import HashMismatch


def wiserouter(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.fixture
def mistake(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["wiserouter", "data", *map(str, arguments)])
        with pytest.raises(SystemExit, match="2"):
            main()
        return capsys.readouterr().err.strip()

    return run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WISEROUTER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_routerbench_from_a_file_to_a_replay(folder):
    routerbench_like(40).to_pickle(folder / "mine.pkl")
    converted = json.loads(wiserouter("data", "routerbench", "--from", folder / "mine.pkl", "--json"))
    assert (converted["queries"], converted["incomplete"], converted["repeated"]) == (40, 0, 0)
    checked = json.loads(wiserouter("data", "check", "mine", "--json"))
    assert checked["sha256"] == converted["sha256"]
    assert checked["models"]["small"] == {
        "mean_score": 0.5,
        "mean_cost_usd": pytest.approx(0.0015),
        "missing_scores": 0,
        "missing_costs": 0,
        "flat_cost": False,
    }
    replayed = wiserouter("replay", folder / "data" / "mine.parquet", "--budget", 1, "--contexts", 2, "--json")
    assert json.loads(replayed)["queries"] == 20


def test_routerbench_is_downloaded_by_the_users_command(folder, monkeypatch):
    routerbench_like(6).to_pickle(folder / "routerbench_0shot.pkl")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *a, **k: str(folder / a[1]))
    with pytest.raises(HashMismatch) as caught:
        wiserouter("data", "routerbench", "--release", "0shot")
    assert not (folder / "data").exists()
    wiserouter("data", "routerbench", "--release", "0shot", "--sha256", caught.value.got)
    assert (folder / "data" / "routerbench_0shot.parquet").is_file()


def test_swebench_and_paretobandit(folder):
    run = {"made__up-1": {"resolved": True, "cost": 0.5}, "made__up-2": {"resolved": False, "cost": 0.25}}
    (folder / "runs.json").write_text(json.dumps({"big": run, "half": {"made__up-1": run["made__up-1"]}}))
    printed = wiserouter("data", "swebench", folder / "runs.json", "--drop-faulty")
    assert "swebench.parquet: 1 queries, 1 rows" in printed
    assert "Left out: 1 rows with an empty cell, 0 with a repeated id." in printed
    arms = {"maker/a": {"reward": 0.5, "cost": 0.1}, "maker/b": {"reward": 1.0, "cost": 0.2}}
    lines = [json.dumps({"prompt": text, "source": "made-up", "arms": arms}) for text in ("Hm?", "Well.")]
    (folder / "val.jsonl").write_text("\n".join(lines))
    printed = wiserouter("data", "paretobandit", folder / "val.jsonl", "-o", folder / "p.parquet")
    assert "was it measured?" in printed
    assert "Content: " in printed


def test_mistakes_are_reported_and_leave_no_file(folder, mistake):
    (folder / "bad.pkl").write_bytes(b"cos\nmkdir\n(Vcanary\ntR.")
    for arguments, says in (
        (("routerbench", "--from", folder / "bad.pkl"), "must not name os.mkdir"),
        (("routerbench", "--from", folder / "bad.pkl", "--sha256", "00"), "its SHA-256 must be 00"),
        (("check", "routerbench_5shot"), "get it with: wiserouter data routerbench"),
        (("swebench", folder / "bad.pkl", "--problems", "none.parquet"), "damaged or not JSON"),
    ):
        assert says in mistake(*arguments)
    assert [file.name for file in folder.iterdir()] == ["bad.pkl"]


def test_an_unknown_release_is_refused(mistake):
    assert mistake("routerbench", "--release", "3shot").endswith("must be one of 0shot, 5shot, got '3shot'")
