"""Files of another kind than a command reads, and price files with mistakes: one line with the rule and the remedy."""

import json
import shutil
import subprocess
import sys

import pytest

from wiserouter import WiseRouter

PRICE = {"input": 1e-7, "output": 4e-7}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PAR1\x15\x04", "must hold text, got a parquet file: give its name the ending .parquet"),
        (b"PK\x03\x04\x14\0", "must hold text, got a spreadsheet or a zip archive: export it as csv"),
        (b"SQLite format 3\0", "must hold text, got a database"),
    ],
)
@pytest.mark.parametrize("command", [("fit",), ("log", "check"), ("data", "check")])
def test_a_file_of_another_kind_is_named_by_its_kind(shell, tmp_path, command, content, says):
    (tmp_path / "calls.csv").write_bytes(content + bytes(100))
    failed = shell(*command, tmp_path / "calls.csv")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert says in failed.stderr
    assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("priors", "judge"), [("own.csv", "scores.jsonl")], ids=["bytes that are no UTF-8 are one line, not a traceback"]
)
def test_texts_in_another_encoding(shell, log, tmp_path, priors, judge):
    for name in (priors, judge):
        (tmp_path / name).write_bytes("model,score\nGr\xfc\xdfe,1\n".encode("latin-1"))
    of_judge = ("judge", log, "--answer", "prompt", "--model", "prompt", "--with", "json:loads", "-o", judge)
    for failed in (shell("priors", tmp_path / priors), shell(*of_judge[:-1], tmp_path / judge)):
        assert failed.returncode == 2
        assert "must be text in UTF-8, got byte 0xfc at 14: save it so, or name another file" in failed.stderr
        assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("of_model", "says"),
    [
        ({"price": {"imput": 1e-7, "output": 4e-7}}, "price of 'nano' has no field 'imput', but input, output,"),
        ({"price": {"input": 1e-7}}, "price of 'nano' lacks output"),
        ({"price": 1e-7}, "price of 'nano' must be an object, got 1e-07"),
        (PRICE, "'nano' has no field 'input', but price,"),
        ([], "'nano' must be an object, got []"),
        ({"price": PRICE, "score": 7}, "Model.score must lie in [0, 1], got 7"),
    ],
)
def test_a_mistake_in_a_price_file_is_named(shell, log, tmp_path, of_model, says):
    (tmp_path / "prices.json").write_text(json.dumps({"nano": of_model}))
    failed = shell("fit", log, "-o", tmp_path / "r.wise", "--prices", tmp_path / "prices.json")
    assert failed.returncode == 2
    assert "prices must read" in failed.stderr
    assert says in failed.stderr


def test_a_price_file_is_an_object_of_models_in_json(shell, log, tmp_path):
    for text, says in (
        ("[1]", "the file must be an object, got [1]"),
        ('{"nano":', "must be JSON, got Expecting value"),
        ('{"nano": {"score": 0.5}, "nano": {"score": 0.6}}', "'nano' stands there twice: keep one of them"),
    ):
        (tmp_path / "prices.json").write_text(text)
        failed = shell("fit", log, "-o", tmp_path / "r.wise", "--prices", tmp_path / "prices.json")
        assert failed.returncode == 2
        assert says in failed.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("batch", "route", "deep.jsonl", "--artifact", "ARTIFACT", "--budget", "1", "-o", "night"),
        ("fit", "LOG", "-o", "r.wise", "--prices", "deep.jsonl"),
        ("judge", "LOG", "--answer", "prompt", "--model", "prompt", "--with", "json:loads", "-o", "deep.jsonl"),
        ("feedback", "pull", "langfuse", "--to", "http://127.0.0.1:9", "--state", "deep.jsonl"),
    ],
    ids=lambda command: command[0],
)
def test_json_that_is_nested_too_deep_is_refused_with_one_line(shell, log, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    WiseRouter.fit(log, n_contexts=1).save("a.wise")
    (tmp_path / "deep.jsonl").write_text(f'{{"prompt": {"[" * 100_000}{"]" * 100_000}}}\n')
    failed = shell(*({"LOG": log, "ARTIFACT": "a.wise"}.get(part, part) for part in command))
    assert failed.returncode == 2
    assert "deep.jsonl" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_scores_of_a_judge_go_to_a_file_of_their_own(shell, log, tmp_path):
    copy = shutil.copy(log, tmp_path / "calls.parquet")
    for output, says in ((copy, "must not be a file that is read"), (tmp_path / "s.csv", "must be a .jsonl file")):
        failed = shell("judge", copy, "--answer", "prompt", "--model", "prompt", "--with", "json:loads", "-o", output)
        assert failed.returncode == 2
        assert says in failed.stderr
    assert not (tmp_path / "s.csv").exists()
    for name in ("s.ndjson", "s.JSONL"):  # as fit reads them
        columns = ("--answer", "prompt", "--model", "prompt")
        failed = shell("judge", copy, *columns, "--with", "none:here", "-o", tmp_path / name)
        assert "must be a .jsonl file" not in failed.stderr
        assert "none:here" in failed.stderr


def test_a_journal_without_decisions_has_no_last_one(shell, tmp_path):
    (tmp_path / "j.jsonl").write_text("")
    failed = shell("explain", "last", "--journal", tmp_path / "j.jsonl")
    assert failed.returncode == 2
    assert "j.jsonl must hold decisions, got none: keep them with journal_to()" in failed.stderr


@pytest.mark.parametrize("command", [("fit",), ("replay", "--budget", 1)])
def test_a_seed_is_at_least_0(shell, log, command):
    failed = shell(*command, log, "--seed", -1)
    assert failed.returncode == 2
    assert "greater than or equal to 0" in " ".join(failed.stderr.split())


def test_a_price_of_nothing_is_no_price(shell, log, tmp_path):
    (tmp_path / "prices.json").write_text('{"nano": {"price": null, "max_output_tokens": 7}}')
    fitted = shell("fit", log, "-o", tmp_path / "r.wise", "--contexts", 2, "--prices", tmp_path / "prices.json")
    assert fitted.returncode == 0
    model = WiseRouter.load(tmp_path / "r.wise").pool.by_name["nano"]
    assert (model.price, model.max_output_tokens) == (None, 7)


FULL_DISK = """
import resource
import signal
import sys
from wiserouter.cli import main

sys.dont_write_bytecode = True  # Python keeps the part of a module's bytecode that fits, and fails with it ever after
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of a file's size")
@pytest.mark.parametrize(
    ("command", "written"),
    [
        (("plan", "r.wise", "--plot", "plan.svg"), "plan.svg"),
        (("bench", "log.parquet", "--methods", "zero", "--seeds", "1", "--jobs", "1", "--report", "out"), "out/done"),
    ],
)
def test_a_full_disk_leaves_no_part_of_a_file_and_is_one_line(log, tmp_path, command, written):
    WiseRouter.fit(log, n_contexts=2).save(tmp_path / "r.wise")
    (tmp_path / "plan.svg").write_text("an earlier picture")
    ran = [sys.executable, "-c", FULL_DISK, *command]
    failed = subprocess.run(ran, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert failed.stderr.splitlines()[-1].endswith("file too large: free some space, or write to another disk")
    assert "Traceback" not in failed.stderr
    there = tmp_path / written
    assert not list(there.iterdir()) if there.is_dir() else there.read_text() == "an earlier picture"
    assert not list(tmp_path.glob(".*"))
