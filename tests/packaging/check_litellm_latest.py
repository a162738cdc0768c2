"""Run the LiteLLM tests against LiteLLM 1.109, whose router was rewritten, in an environment of its own.

Run as `uv run poe litellm-latest`. It asks for newer versions of some packages than every registry serves: these floors
are overridden.
"""

import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LITELLM = "litellm[proxy]==1.109.3"
FLOORS = "certifi>=2025.1.1\nlitellm-proxy-extras==0.4.110\nboto3>=1.43.1\nmcp>=2.2\nlitellm-enterprise==0.1.82\n"
RUNNER = ("pytest", "pytest-asyncio", "pytest-socket", "pytest-xdist")
USED = ("anthropic", "hypothesis", "prometheus-client", "respx", "schemathesis", "time-machine")


def run(*command: str | Path) -> None:
    """Run a command, or stop."""
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def main() -> None:
    """Install and test."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "overrides.txt").write_text(FLOORS)
        run("uv", "venv", "--quiet", "--python", "3.11", work / "venv")
        python = work / "venv" / "bin" / "python"
        install = ("uv", "pip", "install", "--quiet", "--no-config", "--python", python)
        run(*install, "--override", work / "overrides.txt", "--editable", ROOT, LITELLM, *RUNNER, *USED)
        run(
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/litellm",
            "tests/hostile/test_bodies_generated.py",
        )


if __name__ == "__main__":
    main()
