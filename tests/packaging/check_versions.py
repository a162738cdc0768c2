"""Install the wheel with the lowest or the newest versions that it permits, and run commands and core tests with them.

Run as `uv run poe lowest` and `uv run poe newest`. Once with the dependencies and LiteLLM alone, since other extras ask
for newer versions of the same packages, and once with every extra but Dask, Ray and Spark. The dependencies of
dependencies are the newest, those of the tests are the pinned ones, and the versions that were tried are printed.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHON = "3.11"
EXTRAS = ("litellm", "langchain", "postgres", "redis", "metrics", "otel", "minilm", "remote", "bench")
RESOLUTION = {"lowest": "lowest-direct", "newest": "highest"}
TESTS = {
    "lowest": ("budgets", "pricing", "planning/test_plan.py", "planning/test_policies.py"),
    "newest": ("budgets", "pricing", "fitting", "cli", "artifacts"),  # what reads and shows tables, beside the former
}
QUIET = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def declared(*extras: str) -> list[str]:
    """Return the requirements of the wheel and of some extras."""
    project = SETTINGS["project"]
    return [*project["dependencies"], *(need for extra in extras for need in project["optional-dependencies"][extra])]


def testing() -> list[str]:
    """Return what the tests need, in the pinned versions: the lowest Hypothesis reads its sources at each step."""
    groups = SETTINGS["dependency-groups"]
    names = {name_of(need) for need in groups["start"]} | {"anthropic", "hypothesis", "pandas"}
    return [pin for pin in SETTINGS["tool"]["uv"]["constraint-dependencies"] if name_of(pin) in names]


def name_of(need: str) -> str:
    """Return the name of the package that a requirement asks for."""
    return re.match(r"[\w-]+", need).group()


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command, or stop."""
    subprocess.run([str(part) for part in command], cwd=cwd, check=True, env=QUIET)


def install(work: Path, name: str, needs: list[str], resolution: str) -> Path:
    """Install the wheel with the lowest or newest versions of `needs`, print these, and return the commands' folder."""
    venv = work / name
    run("uv", "venv", "--quiet", "--no-project", "--python", PYTHON, venv, cwd=work)
    pip = ("--quiet", "--no-config", "--python", venv / "bin" / "python")
    versions = ("--resolution", resolution, "--only-binary", ":all:")
    run("uv", "pip", "install", *pip, *versions, next((work / "dist").glob("*.whl")), *needs, cwd=work)
    listed = subprocess.check_output(["uv", "pip", "list", *map(str, pip), "--format", "json"], cwd=work, text=True)
    found = {one["name"]: one["version"] for one in json.loads(listed)}
    names = sorted({name_of(need) for need in needs} & found.keys())
    print(f"{name}:", ", ".join(f"{one} {found[one]}" for one in names), flush=True)
    return venv / "bin"


def main(which: str) -> None:
    """Build, install, run."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run("uv", "build", "--quiet", "--wheel", "--out-dir", work / "dist", cwd=ROOT)
        small = install(work, "LiteLLM", declared("litellm"), RESOLUTION[which])
        run(small / "python", "-W", "error", "-c", "import wiserouter", cwd=work)
        run(small / "wiserouter", "--help", cwd=work)
        run(small / "wiserouter", "demo", "--queries", "300", cwd=work)
        run(small / "wiserouter", "demo", "--via", "litellm", "--queries", "50", cwd=work)
        large = install(work, "extras", [*declared(*EXTRAS), *testing()], RESOLUTION[which])
        run(large / "wiserouter", "demo", "--queries", "300", cwd=work)
        # a copy of the tests alone: the sources must not be importable
        run("cp", "-r", ROOT / "tests", ROOT / "pyproject.toml", work, cwd=work)
        run(large / "python", "-m", "pytest", "-q", "-n2", *(f"tests/core/{room}" for room in TESTS[which]), cwd=work)


if __name__ == "__main__":
    main(sys.argv[1])
