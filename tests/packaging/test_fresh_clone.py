"""What the README's two commands install, and the modules that a platform without POSIX calls imports."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from wiserouter.cli import app
from wiserouter.cli.output import complain
from wiserouter.errors import MissingExtra

ROOT = Path(__file__).parents[2]
AT_MOST = 60  # packages of the demo on a fresh clone
FOR_WINDOWS = """
import os, pkgutil, signal, sys
import cloudpickle, joblib, numpy, polars, rich.console, scipy.optimize, sklearn.cluster, tenacity, tiktoken, typer
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("fork", "register_at_fork", "getuid", "geteuid", "getpgid", "killpg", "setsid", "sched_getaffinity"):
    delattr(os, name)
for name in ("SIGKILL", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "alarm", "setitimer"):
    delattr(signal, name)
import wiserouter
failed = []
for module in pkgutil.walk_packages(wiserouter.__path__, "wiserouter.", onerror=failed.append):
    if not module.name.endswith("__main__"):
        try:
            __import__(module.name)
        except wiserouter.errors.MissingExtra:
            pass
print(*failed, "imported", len([name for name in sys.modules if name.startswith("wiserouter.")]))
"""


def group_conftest():
    spec = importlib.util.spec_from_file_location("group_conftest", ROOT / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not shutil.which("uv") or not (ROOT / "uv.lock").exists(), reason="needs uv and its lock file")
def test_the_demo_of_a_fresh_clone_installs_few_packages():
    command = "uv export --frozen --no-hashes --no-annotate --no-header --no-emit-project"
    lines = subprocess.run(command.split(), cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    wanted = [Requirement(line) for line in lines if line]
    here = {one.name for one in wanted if one.marker is None or one.marker.evaluate()}
    assert {"numpy", "pytest", "poethepoet"} <= here
    assert len(here) <= AT_MOST, sorted(here)


def test_the_missing_packages_of_a_group_are_found(monkeypatch):
    conftest = group_conftest()
    assert conftest.installed(Requirement("pytest>=8"))
    assert not conftest.installed(Requirement("pytest<1"))
    assert not conftest.installed(Requirement("a-package-that-is-not-there"))
    monkeypatch.setattr(conftest, "installed", lambda requirement: requirement.name != "hypothesis")
    assert [Requirement(line).name for line in conftest.to_install()] == ["hypothesis"]


def test_pytest_starts_again_once_with_the_group(monkeypatch, capsys):
    conftest = group_conftest()
    ran = []

    class Done:
        returncode = 5

    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv(conftest.STARTED, raising=False)
    monkeypatch.setattr(conftest, "in_the_project_environment", lambda: True)
    monkeypatch.setattr(conftest, "to_install", lambda: ["hypothesis>=6.100"])
    monkeypatch.setattr(conftest.subprocess, "run", lambda command, **_: ran.append(command) or Done)
    monkeypatch.setattr(sys, "argv", ["pytest", "-q", "tests/core"])
    plugins = pytest.PytestPluginManager()
    with pytest.raises(SystemExit) as exit_:
        conftest.pytest_addoption(plugins)
    assert exit_.value.code == 5
    assert ran[0][1:] == ["run", "--group", "dev", "python", "-m", "pytest", "-q", "tests/core"]
    assert "--group dev" in capsys.readouterr().err
    monkeypatch.setenv(conftest.STARTED, "1")
    with pytest.raises(pytest.UsageError, match="uv sync --group dev"):
        conftest.pytest_addoption(plugins)
    assert len(ran) == 1


def test_no_module_calls_posix_while_it_is_imported():
    done = subprocess.run([sys.executable, "-c", FOR_WINDOWS], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.startswith("imported ")
    assert int(done.stdout.split()[1]) > 150


def test_a_hint_to_install_prints_its_brackets(capsys):
    complain(MissingExtra("a plot", "matplotlib", "bench"))
    assert "pip install 'wiserouter[bench]'" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(shell):
    complete = {**os.environ, "_WISEROUTER_COMPLETE": f"source_{shell}"}
    shown = CliRunner().invoke(app, ["--show-completion", shell], env=complete, prog_name="wiserouter")
    assert shown.exit_code == 0
    assert "_WISEROUTER_COMPLETE" in shown.output


def test_zones_are_installed_where_the_platform_has_none():
    wanted = [
        Requirement(line)
        for line in group_conftest().tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    ]
    (zones,) = [one for one in wanted if one.name == "tzdata"]
    assert zones.marker.evaluate({"sys_platform": "win32"})
    assert not zones.marker.evaluate({"sys_platform": "linux"})
