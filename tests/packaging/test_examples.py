"""Every example runs offline, as a reader would run it."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("**/*.py"))
PLAIN = ("01_fit_and_route", "04_hard_budget_async")


def marked(example):
    """Return an example as the parameter of a test: those that import a framework or start a proxy take long."""
    return pytest.param(example, id=example.stem, marks=[] if example.stem in PLAIN else [pytest.mark.slow])


@pytest.mark.parametrize("example", [marked(example) for example in EXAMPLES])
def test_example_runs(example, tmp_path):
    frameworks = ("litellm", "langchain")  # they warn a lot
    strict = [] if any(name in str(example) for name in frameworks) else ["-W", "error"]
    done = subprocess.run(
        [sys.executable, *strict, example], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    ("name", "module", "remedy"),
    [
        ("05_litellm_router", "litellm", "litellm"),
        ("06_langchain_chain", "langchain_core", "langchain"),
        ("07_langchain_agent", "langchain", "langchain-agents"),
        ("08_langchain_batch", "langchain_core", "langchain"),
        ("10_langchain_run_budget", "langchain", "langchain-agents"),
        ("12_reasoning_efforts", "langchain_core", "langchain"),
    ],
)
def test_an_example_names_the_extra_that_is_missing(name, module, remedy, tmp_path):
    without = f"import runpy, sys; sys.modules[{module!r}] = None; runpy.run_path(sys.argv[1])"
    command = [sys.executable, "-c", without, FOLDER / f"{name}.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.stderr.endswith(f"pip install 'wiserouter[{remedy}]'\n")


def test_the_configurations_are_valid():
    yaml = pytest.importorskip("yaml")
    settings = pytest.importorskip("wiserouter_litellm.settings.proxy_settings")
    for path in FOLDER.glob("litellm_proxy/*.yaml"):
        config = yaml.safe_load(path.read_text())
        assert config["litellm_settings"]["callbacks"] == ["wiserouter_litellm.callback"]
        assert settings.settings_of(config["callback_settings"]["wiserouter"]).groups["wise"].limit == "hard"


def test_there_are_examples():
    assert EXAMPLES
