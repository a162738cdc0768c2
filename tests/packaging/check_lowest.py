"""Install the wheel with the lowest versions that it declares, and run commands and core tests against them.

Run as `uv run poe lowest`. Once with the dependencies and LiteLLM alone, since other extras ask for newer versions of
the same packages, and once with every extra but Dask, Ray and Spark. The dependencies of dependencies are the newest,
those of the tests are the pinned ones, and the versions that were tried are printed.
"""

import json
import os
import re
import subprocess
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHON = "3.11"
EXTRAS = ("litellm", "langchain", "postgres", "redis", "metrics", "otel", "minilm", "remote", "bench")
TESTS = ("budgets", "pricing", "planning/test_plan.py", "planning/test_policies.py")
QUIET = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def declared(*extras: str) -> list[str]:
    """Return the requirements of the wheel and of some extras."""
    project = SETTINGS["project"]
    return [*project["dependencies"], *(need for extra in extras for need in project["optional-dependencies"][extra])]


def testing() -> list[str]:
    """Return what the tests need, in the pinned versions: the lowest Hypothesis reads its sources at each step."""
    groups = SETTINGS["dependency-groups"]
    names = {name_of(need) for need in groups["start"]} | {"hypothesis", "pandas"}
    return [pin for pin in SETTINGS["tool"]["uv"]["constraint-dependencies"] if name_of(pin) in names]


def name_of(need: str) -> str:
    """Return the name of the package that a requirement asks for."""
    return re.match(r"[\w-]+", need).group()


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command, or stop."""
    subprocess.run([str(part) for part in command], cwd=cwd, check=True, env=QUIET)


def install(work: Path, name: str, needs: list[str]) -> Path:
    """Install the wheel with the lowest versions of `needs`, print these, and return the folder of the commands."""
    venv = work / name
    run("uv", "venv", "--quiet", "--no-project", "--python", PYTHON, venv, cwd=work)
    pip = ("--quiet", "--no-config", "--python", venv / "bin" / "python")
    lowest = ("--resolution", "lowest-direct", "--only-binary", ":all:")
    run("uv", "pip", "install", *pip, *lowest, next((work / "dist").glob("*.whl")), *needs, cwd=work)
    listed = subprocess.check_output(["uv", "pip", "list", *map(str, pip), "--format", "json"], cwd=work, text=True)
    found = {one["name"]: one["version"] for one in json.loads(listed)}
    names = sorted({name_of(need) for need in needs} & found.keys())
    print(f"{name}:", ", ".join(f"{one} {found[one]}" for one in names), flush=True)
    return venv / "bin"


def main() -> None:
    """Build, install, run."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run("uv", "build", "--quiet", "--wheel", "--out-dir", work / "dist", cwd=ROOT)
        small = install(work, "LiteLLM", declared("litellm"))
        run(small / "python", "-W", "error", "-c", "import wiserouter", cwd=work)
        run(small / "wiserouter", "--help", cwd=work)
        run(small / "wiserouter", "demo", "--queries", "300", cwd=work)
        run(small / "wiserouter", "demo", "--via", "litellm", "--queries", "50", cwd=work)
        large = install(work, "extras", [*declared(*EXTRAS), *testing()])
        run(large / "wiserouter", "demo", "--queries", "300", cwd=work)
        # a copy of the tests alone: the sources must not be importable
        run("cp", "-r", ROOT / "tests", ROOT / "pyproject.toml", work, cwd=work)
        run(large / "python", "-m", "pytest", "-q", "-n2", *(f"tests/core/{room}" for room in TESTS), cwd=work)


if __name__ == "__main__":
    main()
