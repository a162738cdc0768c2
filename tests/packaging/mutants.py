"""Mutation tests of the budgets, the plans and the settlement of calls, by mutmut: prints the score and what survives.

Run as `uv run poe mutants` for a sample of them all, or `uv run poe mutants budgets/ledger.py planning/plan.py` for one
of some files. `--seed` and `--sample` say which mutants are drawn, and `--minutes` for how long they are tried. What
was tried is kept in build/mutants, a copy where mutmut finds the package below `src`: a further run goes on with the
mutants that are not tried yet, tries those again that lived, and adds to what is there. The first run takes some
minutes longer, in which mutmut finds which tests reach which function, and so does one after a change of the package.
"""

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from fnmatch import fnmatch
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROCESSES = "WISEROUTER_MUTANT_PROCESSES"
"""The variable that says how many mutants are tried at a time; by default one on each core."""

BUILD = ROOT / "build" / "mutants"
STATS = BUILD / "mutants" / "mutmut-stats.json"
ALL_TESTS = BUILD / "all-tests.json"
KNOWN = Path(__file__).with_name("surviving_mutants.toml")
ROOMS = ("budgets/*", "planning/*", "routing/settlement.py", "integration/billing.py", "stores/transitions.py")
"""What is mutated: patterns of files below `core/wiserouter`."""

TESTS = (
    "tests/core/budgets",
    "tests/core/planning",
    "tests/core/integration/test_billing.py",
    "tests/core/integration/test_utilisation.py",
    "tests/core/learning/test_optimistic_estimates.py",
    *(
        f"tests/core/routing/test_{name}.py"
        for name in (
            "batches",
            "conversation_calls",
            "decider",
            "evaluation_events",
            "explain",
            "journal",
            "keyed_draws",
            "limits",
            "orders",
            "presume",
            "request_values",
            "router",
            "settlement",
            "shadow",
            "sources_of_scores",
        )
    ),
    "tests/core/stores/test_presumed.py",
    "tests/core/stores/test_run_ledgers.py",
    "tests/core/stores/test_store_contract.py",
    "tests/core/stores/test_stores.py",
    "tests/core/stores/test_transitions.py",
)
SURVIVED, UNTESTED = 0, 33
"""What mutmut writes for mutants that no test kills; other codes are those of tests that fail or time out."""

SAME_EXAMPLES = """
settings.register_profile("mutants", settings.get_profile("busy machines"), derandomize=True, database=None)
settings.load_profile("mutants")
"""
"""What the copy of `tests/conftest.py` has in addition: the same examples for each mutant, none that others failed."""

TESTS_S = 10.0
"""How long the tests of one mutant may take: half of it those named after its file, the shortest first."""


def main() -> None:
    """Copy, mutate, draw, run the tests of each mutant, and report."""
    terms = arguments()
    stage()
    mutmut("nothing", seconds=1_200)  # no mutant has this name: only makes them all, and finds which tests reach them
    if not ALL_TESTS.exists() and not STATS.exists():
        sys.exit(f"mutmut made no mutants: {BUILD / 'run.log'}")
    shutil.copy(STATS, ALL_TESTS)
    choose_tests()
    drawn = sample(terms.files, terms.seed, terms.sample)
    codes = outcomes()
    left = [name for name in drawn if codes[name] is None or is_alive(codes[name])]
    if left:
        mutmut(*left, seconds=terms.minutes * 60)
        shutil.copy(ALL_TESTS, STATS)
    report({name: code for name, code in outcomes().items() if name in set(drawn)})


def arguments() -> argparse.Namespace:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(prog="poe mutants", description=__doc__)
    parser.add_argument("files", nargs="*", help="patterns of files below core/wiserouter; all that are mutated")
    parser.add_argument("--seed", type=int, default=1, help="which mutants are drawn")
    parser.add_argument("--sample", type=int, default=160, help="how many are drawn")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long they are tried")
    return parser.parse_args()


def stage() -> None:
    """Copy what changed of the package and its tests, with the configuration of mutmut."""
    if ALL_TESTS.exists():
        shutil.copy(ALL_TESTS, STATS)
    if mirror(ROOT / "core" / "wiserouter", BUILD / "src" / "wiserouter"):
        for known in (STATS, ALL_TESTS):  # mutmut itself would see no test of a new function
            known.unlink(missing_ok=True)
    mirror(ROOT / "tests", BUILD / "tests")
    with (BUILD / "tests" / "conftest.py").open("a", encoding="utf-8") as conftest:
        conftest.write(SAME_EXAMPLES)
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    settings = {
        "source_paths": ["src"],
        "only_mutate": [f"src/wiserouter/{pattern}" for pattern in ROOMS],
        "do_not_mutate": ["*/__init__.py"],
        "pytest_add_cli_args": ["--import-mode=importlib", "-p", "no:cacheprovider", "-n0", "-m", "not slow"],
        "pytest_add_cli_args_test_selection": [test for test in TESTS if (ROOT / test).exists()],
        "mutate_only_covered_lines": False,
        "on_dependency_change": "ignore",
    }
    lines = ["[tool.mutmut]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    lines += ["[tool.pytest.ini_options]"]
    lines += [f"{key} = {json.dumps(options[key])}" for key in ("markers", "pythonpath", "asyncio_mode")]
    lines += ['asyncio_default_fixture_loop_scope = "function"']
    (BUILD / "pyproject.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def mirror(source: Path, target: Path) -> bool:
    """Make `target` a copy of `source`, and return whether a file differed; mutmut looks at the times of all others."""
    gone = [path for path in target.rglob("*.py") if not (source / path.relative_to(target)).exists()]
    for path in gone:
        path.unlink()
    differs = bool(gone)
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        if "__pycache__" in path.parts or path.is_dir():
            continue
        if not copy.exists() or copy.read_bytes() != path.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            differs = True
    return differs


def mutmut(*names: str, seconds: float) -> None:
    """Run mutmut for some mutants, and stop it and its workers after a time; it keeps what was tried until then."""
    command = [
        sys.executable,
        "-m",
        "mutmut",
        "run",
        *names,
        "--max-children",
        os.environ.get(PROCESSES, str(os.cpu_count() or 1)),
    ]
    with (BUILD / "run.log").open("w", encoding="utf-8") as log:
        running = subprocess.Popen(command, cwd=BUILD, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            running.wait(seconds)
        except subprocess.TimeoutExpired:
            print("the time is over: some mutants are not tried", flush=True)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()


def choose_tests() -> None:
    """Keep for each function the tests that take at most some seconds together."""
    stats = json.loads(ALL_TESTS.read_text(encoding="utf-8"))
    took_s = stats["duration_by_test"]
    reached = stats["tests_by_mangled_function_name"]
    for function, tests in reached.items():
        stem = module_of(function).rsplit(".", 1)[-1]
        shortest = sorted(tests, key=lambda test: (took_s[test], test))
        own = [test for test in shortest if f"/test_{stem}" in test]
        others = [test for test in shortest if test not in set(own)]
        reached[function] = [test for part in (own, others) for test in first_of(part, took_s, TESTS_S / 2)]
    STATS.write_text(json.dumps(stats), encoding="utf-8")


def first_of(tests: list[str], took_s: dict[str, float], most_s: float) -> list[str]:
    """Return the first tests, one at least, that take at most some seconds together."""
    ends_s = accumulate(took_s[test] for test in tests)
    return [test for n, (test, end_s) in enumerate(zip(tests, ends_s, strict=True)) if not n or end_s <= most_s]


def sample(files: list[str], seed: int, n_drawn: int) -> list[str]:
    """Return the mutants that a seed draws, of all files or of those that match a pattern."""
    patterns = [f"wiserouter/{pattern}" for pattern in files or ROOMS]
    names = [name for name in sorted(outcomes()) if any(fnmatch(path_of(name), pattern) for pattern in patterns)]
    return sorted(random.Random(seed).sample(names, min(n_drawn, len(names))))


def outcomes() -> dict[str, int | None]:
    """Return the exit code of the tests by the name of a mutant, None where it is not tried yet."""
    found: dict[str, int | None] = {}
    for path in sorted((BUILD / "mutants" / "src").rglob("*.meta")):
        found |= json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    return found


def is_alive(code: int | None) -> bool:
    """Return whether no test killed a mutant."""
    return code in {SURVIVED, UNTESTED}


def report(codes: dict[str, int | None]) -> None:
    """Print the score of each module, and the survivors with what they change and why they live."""
    tried = [name for name, code in codes.items() if code is not None]
    alive = [name for name in tried if is_alive(codes[name])]
    total, lived = Counter(map(module_of, tried)), Counter(map(module_of, alive))
    for module in sorted(total):
        print(f"{module}: {total[module] - lived[module]} of {total[module]} killed")
    known = tomllib.loads(KNOWN.read_text(encoding="utf-8")).get("survivor", [])
    reasons = {one["change"]: one["reason"] for one in known}
    for name in alive:
        change = f"{function_of(name)}: {change_of(name)}"
        unreached = "no test reaches it" if codes[name] == UNTESTED else "no reason is known"
        print(f"lives: {change}\n       {reasons.get(change, unreached)}")
    score = 1 - len(alive) / max(len(tried), 1)
    print(f"{len(tried) - len(alive)} of {len(tried)} mutants killed ({score:.1%}), {len(codes)} drawn")


def change_of(mutant: str) -> str:
    """Return what a mutant changes, as `what was -> what is`, without what both have in common on their lines."""
    tree = ast.parse((BUILD / "mutants" / "src" / path_of(mutant)).read_text(encoding="utf-8"))
    name = mutant.rsplit(".", 1)[-1]
    bodies = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    was, now = (ast.unparse(bodies[one].body).splitlines() for one in (f"{name.rsplit('__', 1)[0]}__mutmut_orig", name))
    pairs = [(old, new) for old, new in zip(was, now, strict=False) if old != new]
    old, new = pairs[0] if pairs else ("", "")
    return f"{old.strip()} -> {new.strip()}"


def function_of(mutant: str) -> str:
    """Return the function of a mutant, such as `budgets.ledger.Ledger.settle`."""
    module, _, name = mutant.rpartition(".")
    return f"{module.removeprefix('wiserouter.')}.{name.rsplit('__mutmut_', 1)[0][2:].replace('ǁ', '.').strip('.')}"


def module_of(mutant: str) -> str:
    """Return the module of a mutant, such as `wiserouter.budgets.ledger`."""
    return mutant.rsplit(".", 1)[0]


def path_of(mutant: str) -> str:
    """Return the file of a mutant, such as `wiserouter/budgets/ledger.py`."""
    return module_of(mutant).replace(".", "/") + ".py"


if __name__ == "__main__":
    main()
