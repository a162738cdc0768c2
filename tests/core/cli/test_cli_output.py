"""What the commands print: amounts without exponents, brackets as they are, and nothing cut off at 80 columns."""

import errno
import json
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest
from rich.console import Console
from typer.testing import CliRunner

from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.cli import app, output
from wiserouter.cli.output import complain, table
from wiserouter.errors import InvalidInput, MissingExtra


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for console in (output.out, output.err):
        monkeypatch.setattr(console, "_width", 80)


def printed(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def journaled(path, *, hard):
    models = [
        Model("a-cheap-model-of-2026", Price(2e-8, 8e-8), max_output_tokens=500),
        Model("the-best-model-of-2026", Price(3e-6, 1.5e-5), max_output_tokens=500),
    ]
    router = WiseRouter(models, seed=0)
    router.start(Budget(0.05, 1_000, limit="hard" if hard else "expected"))
    router.journal_to(path)
    for _ in range(300):
        decision = router.decide("a question", input_tokens=20)
        router.charge(decision, 5.8e-05 if decision.model.startswith("the") else 3.6e-7)
        router.reward(decision, 0.5)
    router.journal.close()
    return router


@pytest.mark.parametrize("hard", [False, True])
def test_explain_fits_80_columns_with_whole_amounts(tmp_path, narrow, hard):
    journaled(tmp_path / "j.jsonl", hard=hard)
    text = printed("explain", "last", "--journal", tmp_path / "j.jsonl")
    grid = text.split("context ")[0]
    assert max(map(len, grid.splitlines())) <= 80
    assert "…" not in text
    assert not re.search(r"\$?\d*\.?\d*e-\d", text)
    assert "per 1,000" in text
    assert re.search(r"\$0\.00036|\$0\.058", grid)


def test_a_long_cell_is_folded(capsys, narrow):
    output.out.print(table("t", ("a", "b", "c"), [("x" * 100, "$0.000058", "y")]))
    text = capsys.readouterr().out
    assert text.count("x") == 100
    assert "…" not in text


def test_brackets_are_printed_as_they_are(capsys, tmp_path, monkeypatch):
    def fail(*args):
        raise MissingExtra("the plot", "matplotlib", "bench")

    monkeypatch.setattr("wiserouter.evaluation.plots.plot_outcomes", fail)
    demo = import_module("wiserouter.cli.demo")
    assert demo._picture(type("Router", (), {"plan": None})(), [], tmp_path / "x.png") is None
    complain(InvalidInput("no file [bench] of [/red]"))
    output.out.print(table("of [a]", ("[b]",), [("[bold]c",)]))
    captured = capsys.readouterr()
    assert "wiserouter[bench]" in captured.err.replace("\n", "")
    assert "error: no file [bench] of [/red]" in captured.err
    assert all(text in captured.out for text in ("of [a]", "[b]", "[bold]c"))


def test_an_error_of_the_file_system_names_the_file_first(tmp_path, capsys):
    with pytest.raises(OSError) as refused:
        (tmp_path / "none.jsonl").read_text()
    complain(refused.value)
    complain(FileNotFoundError("none.jsonl: no such file"))
    first, second = capsys.readouterr().err.replace("\n", " ").split("error: ")[1:]
    assert first.strip() == f"{tmp_path / 'none.jsonl'}: no such file or directory: correct the path"
    assert second.strip() == "none.jsonl: no such file"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_an_error_of_a_full_disk_says_what_to_do(capsys, number):
    complain(OSError(number, os.strerror(number)))  # of a write, which names no file
    line = capsys.readouterr().err.replace("\n", " ").strip()
    assert line == f"error: {os.strerror(number).lower()}: free some space, or write to another disk"


@pytest.mark.parametrize("relative", [False, True])
def test_status_takes_the_path_of_a_file(tmp_path, monkeypatch, relative):
    router = WiseRouter([Model("small", Price(1e-6, 1e-6))], store=f"sqlite:///{tmp_path}/budget.db", seed=0)
    router.start(Budget(5.0, 100))
    router.close()
    monkeypatch.chdir(tmp_path)
    text = printed("status", "--store", "budget.db" if relative else tmp_path / "budget.db")
    assert "$5.00" in text
    assert "at $50.00 per 1,000" in " ".join(text.split())


def test_a_store_given_as_a_path_is_told_the_url():
    with pytest.raises(InvalidInput, match=r"got 'budget\.db': for that file say sqlite:///budget\.db"):
        WiseRouter([Model("small", Price(1e-6, 1e-6))], store="budget.db")
    with pytest.raises(InvalidInput, match=r"got 'mysql://x'$"):
        WiseRouter([Model("small", Price(1e-6, 1e-6))], store="mysql://x")


COLUMNS = ("policy", "68.8", "115", "207", "344", "574", "- call", "s.e.", "spend/budget", "waste")
ROW = ("never-switch", "0.416", "0.416", "0.416", "0.416", "0.416", "+0.0000", "0.0000", "0.999 to 1.000", "15.6%")


@pytest.mark.parametrize("width", [80, 200])
def test_a_table_keeps_each_row_on_one_line_where_the_terminal_bears_it(monkeypatch, capsys, width):
    monkeypatch.setattr(output, "out", Console(markup=False, width=width))
    output.out.print(table("a title", COLUMNS, [ROW, ROW]))
    lines = capsys.readouterr().out.splitlines()
    assert sum("never-switch" in line and "15.6%" in line for line in lines) == 2
    assert len(lines) == 5


def test_the_title_of_a_narrow_table_is_on_one_line(monkeypatch, capsys):
    monkeypatch.setattr(output, "out", Console(markup=False, width=80))
    output.out.print(table("routerbench_5shot_slice.parquet: wide, 3,178 rows", ("field", "column"), [("a", "b")]))
    assert "routerbench_5shot_slice.parquet: wide, 3,178 rows" in capsys.readouterr().out


def test_on_a_narrow_terminal_nothing_is_cut_off(monkeypatch, capsys):
    monkeypatch.setattr(output, "out", Console(markup=False, width=40))
    output.out.print(table("a title", COLUMNS, [ROW]))
    printed = "".join(capsys.readouterr().out.split())
    assert "…" not in printed
    assert sum(map(printed.count, "0123456789")) >= sum(map("".join(ROW + COLUMNS).count, "0123456789"))


def ran(*arguments, closed=False, **env):
    """Run a command in a process of its own; return its exit code, stdout and stderr."""
    command = [sys.executable, "-m", "wiserouter.cli", *map(str, arguments)]
    if closed:
        command = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command]
    ended = subprocess.run(command, capture_output=True, check=False, env={**os.environ, **env})
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


@pytest.mark.parametrize(
    "env",
    [{"PYTHONIOENCODING": "cp1252"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path, env):
    call = {"prompt": "q", "model": "\u6a21\u578b", "reward": 1, "cost_usd": 0.1}
    (tmp_path / "log.jsonl").write_text(json.dumps(call) + "\n")
    code, shown, complaints = ran("log", "check", tmp_path / "log.jsonl", **env)
    assert (code, complaints) == (0, "")
    assert "\\u6a21\\u578b" in shown
    code, _, complaints = ran("log", "check", tmp_path / "\u6a21.jsonl", **env)
    assert code == 2
    assert complaints.startswith("error: ")
    assert complaints.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_closed_stdout_is_no_error(options):
    assert ran("priors", *options, closed=True) == (0, "", "")


def test_a_family_without_priors_is_refused_with_those_there_are():
    with pytest.raises(InvalidInput, match=r"--family must be one of .*code.*, got 'nosuch'"):
        printed("priors", "--family", "nosuch")
    assert "code" in printed("priors", "--family", "code")


def test_control_characters_of_names_and_errors_reach_no_terminal(capsys, tmp_path):
    evil = "t:\x1b[31mred\r\x9b2J\u202e"
    output.out.print(table(evil, ("scope", "spent"), [(evil, "$1")]))
    output.out.print(evil, highlight=False)
    complain(InvalidInput(evil))
    captured = capsys.readouterr()
    assert captured.out.count("t:\\x1b[31mred\\r\\x9b2J\\u202e") == 3
    assert (captured.out + captured.err).replace("\n", "").isprintable()
    assert "t:\\x1b[31mred" in captured.err
