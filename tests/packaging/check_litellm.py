"""Run the LiteLLM tests against the newest or the lowest LiteLLM that is supported, in an environment of its own.

Run as `uv run poe litellm-latest` and `uv run poe litellm-lowest`. The newest asks for versions of some packages that
not every registry serves: these floors are overridden.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDS = {"latest": "litellm[proxy]==1.109.3", "lowest": "litellm[proxy]==1.106.*"}
FLOORS = {
    "latest": "certifi>=2025.1.1\nlitellm-proxy-extras==0.4.110\nboto3>=1.43.1\nmcp>=2.2\nlitellm-enterprise==0.1.82\n",
    "lowest": "",
}
RUNNER = ("pytest", "pytest-asyncio", "pytest-socket", "pytest-timeout", "pytest-xdist")
USED = ("anthropic", "hypothesis", "prometheus-client", "respx", "schemathesis", "time-machine")


def run(*command: str | Path) -> None:
    """Run a command, or stop."""
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def main(which: str) -> None:
    """Install and test."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "overrides.txt").write_text(FLOORS[which])
        run("uv", "venv", "--quiet", "--python", "3.11", work / "venv")
        python = work / "venv" / "bin" / "python"
        install = ("uv", "pip", "install", "--quiet", "--no-config", "--python", python)
        run(*install, "--override", work / "overrides.txt", "--editable", ROOT, NEEDS[which], *RUNNER, *USED)
        run(python, "-c", "import importlib.metadata as m; print('litellm', m.version('litellm'))")
        tests = ("tests/litellm", "tests/hostile/test_bodies_generated.py")
        run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


if __name__ == "__main__":
    main(sys.argv[1])
