"""Run the LangChain tests with the lowest versions that the project declares, in an environment of its own.

Run as `uv run poe langchain-lowest`. The tests that need agents and other providers' classes ask for newer ones, and
are left out.
"""

import subprocess
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNNER = ("pytest", "pytest-asyncio", "pytest-socket", "pytest-timeout", "pytest-xdist")
TESTING = (*RUNNER, "hypothesis", "langchain-tests")
TESTS = (
    "test_standard.py",
    "test_runnable.py",
    "calls/test_call_scope.py",
    "decisions/test_runs.py",
    "billing/test_settlement.py",
    "requests/test_limits.py",
    "test_setup.py",
    "test_encoder.py",
    "test_replay.py",
)


def declared() -> str:
    """Return what the extra `langchain` asks of langchain-core."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return next(need for need in project["optional-dependencies"]["langchain"] if need.startswith("langchain-core"))


def run(*command: str | Path) -> None:
    """Run a command, or stop."""
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def main() -> None:
    """Install and test."""
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder) / "venv"
        run("uv", "venv", "--quiet", "--python", "3.11", venv)
        python = venv / "bin" / "python"
        install = ("uv", "pip", "install", "--quiet", "--no-config", "--python", python)
        run(*install, "--editable", f"{ROOT}[langchain]", *TESTING)
        run(
            *install,
            "--resolution",
            "lowest-direct",
            "--reinstall-package",
            "langchain-core",
            declared(),
        )
        run(python, "-c", "import importlib.metadata as m; print('langchain-core', m.version('langchain-core'))")
        tests = [f"tests/langchain/{name}" for name in TESTS]
        run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


if __name__ == "__main__":
    main()
