"""Mutation tests of the budgets, the plans and the settlement of calls, by mutmut: prints the score and what survives.

Run as `uv run poe mutants`, or for some files as `uv run poe mutants budgets/ledger.py planning/plan.py`, which then
have only the tests of their rooms. It works on a copy in build/mutants, where mutmut finds the package below `src`.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "mutants"
ROOMS = ("budgets/*", "planning/*", "routing/settlement.py", "integration/billing.py", "stores/transitions.py")
"""What is mutated by default: patterns of files below `core/wiserouter`."""

TESTS = (
    "tests/core/budgets",
    "tests/core/planning",
    "tests/core/integration",
    "tests/core/routing/test_router.py",
    "tests/core/routing/test_presume.py",
    "tests/core/routing/test_batches.py",
    "tests/core/stores/test_stores.py",
    "tests/core/stores/test_presumed.py",
    "tests/core/stores/test_run_ledgers.py",
)
SURVIVED, UNTESTED = 0, 33
"""What mutmut writes for mutants that no test kills; other codes are those of tests that fail or time out."""


def main() -> None:
    """Copy, mutate, run the tests of each mutant, and report."""
    patterns = sys.argv[1:] or ROOMS
    rooms = sorted({f"tests/core/{pattern.split('/')[0]}" for pattern in sys.argv[1:]})
    stage([f"src/wiserouter/{pattern}" for pattern in patterns], rooms or list(TESTS))
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(os.cpu_count() or 1)]
    log = BUILD / "run.log"
    with log.open("w") as output:
        subprocess.run(command, cwd=BUILD, check=False, stdout=output, stderr=subprocess.STDOUT)
    report(outcomes())


def stage(only: list[str], tests: list[str]) -> None:
    """Copy the package and its tests, with the configuration of mutmut."""
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    for source, target in (("core/wiserouter", "src/wiserouter"), ("tests", "tests")):
        shutil.copytree(ROOT / source, BUILD / target, ignore=shutil.ignore_patterns("__pycache__"))
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    settings = {
        "source_paths": ["src"],
        "only_mutate": only,
        "do_not_mutate": ["*/__init__.py"],
        "pytest_add_cli_args": ["--import-mode=importlib", "-p", "no:cacheprovider", "-n0", "-m", "not slow"],
        "pytest_add_cli_args_test_selection": tests,
        "mutate_only_covered_lines": False,
    }
    lines = ["[tool.mutmut]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    lines += ["[tool.pytest.ini_options]"]
    lines += [f"{key} = {json.dumps(options[key])}" for key in ("markers", "pythonpath", "asyncio_mode")]
    lines += ['asyncio_default_fixture_loop_scope = "function"']
    (BUILD / "pyproject.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def outcomes() -> dict[str, int]:
    """Return the exit code of the tests by the name of a mutant."""
    found: dict[str, int] = {}
    for path in sorted((BUILD / "mutants" / "src").rglob("*.meta")):
        found |= json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    return {name: code for name, code in found.items() if code is not None}


def report(codes: dict[str, int]) -> None:
    """Print the score of each module and the survivors."""
    names = Counter(module_of(name) for name in codes)
    alive = [name for name, code in codes.items() if code in {SURVIVED, UNTESTED}]
    lived = Counter(map(module_of, alive))
    for module, total in sorted(names.items()):
        print(f"{module}: {total - lived[module]} of {total} killed ({1 - lived[module] / total:.0%})")
    print(f"all: {len(codes) - len(alive)} of {len(codes)} killed ({1 - len(alive) / max(len(codes), 1):.1%})")
    print("\n".join(f"  lives: {name}{' (no test reaches it)' if codes[name] == UNTESTED else ''}" for name in alive))


def module_of(mutant: str) -> str:
    """Return the module of a mutant, such as `wiserouter.budgets.ledger`."""
    return mutant.rsplit(".", 1)[0]


if __name__ == "__main__":
    main()
