"""The speed targets, and ratios to a former commit in one run: `uv run poe bench`; needs the repository's history.

The former commit is of the day on which the targets were set. Each program below runs in a process of its own, with the
sources of either commit in turn, and prints the processor time that it took, its imports included. They are imported
from bytecode, as where packages are installed: PYTHONDONTWRITEBYTECODE would add three seconds to each process.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from support.long_logs import _prompts, write_long_log

FORMER = "bef4005d90"
ROUNDS = 2
CALLS, WIDE_ROWS, WIDE_MODELS, QUERIES, MODELS = 200_000, 100_000, 11, 1_400, 23
SEEDS, CORES = 5, 2
"""Of the whole bench; the one here runs a single seed on a single core."""

FIT = """
import sys
from time import process_time
from wiserouter import WiseRouter
WiseRouter.fit(sys.argv[1])
print(process_time())
"""

METHODS = """
from wiserouter.evaluation.baselines import open_methods
print(",".join(method.name for method in open_methods(None)))
"""

BENCH = """
import sys
from time import process_time
from wiserouter.cli import app
app(["bench", *sys.argv[1:], "--seeds", "1", "--log-budgets", "0", "--jobs", "1", "--json"], standalone_mode=False)
print()
print(process_time())
"""

DECIDE = """
import time
import numpy as np
from wiserouter import Budget, Contexts, Estimates, Model, Optimistic, Price, WiseRouter
shape = J, K = 256, 200

def served_us():
    rng = np.random.default_rng(0)
    freq, cost_usd, reward = rng.dirichlet(np.full(J, 5.0)), rng.random(shape) * 0.01 + 1e-4, rng.random(shape)
    estimates = Estimates(*shape)
    for _ in range(8):
        estimates.add_table(np.arange(J), reward, cost_usd)
    models = [Model(f"m{k}", Price(1e-6 * (k + 1), 4e-6 * (k + 1))) for k in range(K)]
    contexts = Contexts(rng.normal(size=(J, 384)), freq)
    router = WiseRouter(models, contexts, policy=Optimistic(), estimates=estimates, seed=0)
    router.start(Budget(3_000.0, 1_000_000))
    queries, times = rng.normal(size=(512, 384)).astype(np.float32), []
    for t in range(1_500):
        start = time.thread_time_ns()
        decision = router.decide(embedding=queries[t % 512])
        times.append((time.thread_time_ns() - start) / 1e3)
        router.charge(decision, cost_usd=decision.expected_cost_usd)
        router.reward(decision, float(rng.random() < decision.expected_reward))
    return times

us = np.min([served_us() for _ in range(3)], axis=0)
print(*np.quantile(us, [0.5, 0.99]))
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return the sources of the core at the former commit, and the present ones."""
    root, folder = Path(__file__).parents[2], tmp_path_factory.mktemp("sources") / "former"
    added = subprocess.run(["git", "worktree", "add", "-q", "--detach", folder, FORMER], cwd=root, check=False)
    if added.returncode:
        pytest.skip(f"the commit {FORMER} is not in this repository")
    yield folder / "core", root / "core"
    subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=root, check=True)


def printed(program, core, *arguments):
    """Return the words of the last line that a program prints, with the sources of a core."""
    environment = {**os.environ, "PYTHONPATH": str(core)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1].split()


def seconds(program, places, *arguments, rounds=ROUNDS):
    """Return the least processor time of a program, with either sources in turn."""
    each = [[float(printed(program, place, *arguments)[0]) for place in places] for _ in range(rounds)]
    return [min(times) for times in zip(*each, strict=True)]


def report(what, before, now, target=""):
    print(f"\n{what:<44} {now:7.1f} s of processor time, before {before:7.1f}: {before / now:.1f}x  {target}", end="")


def test_a_fit(tmp_path, places):
    write_long_log(tmp_path / "calls.parquet", CALLS)
    before, now = seconds(FIT, places, tmp_path / "calls.parquet")
    report(f"fit of {CALLS:,} calls", before, now)
    assert before / now >= 2.0


def test_a_fit_of_wide_rows(tmp_path, places):
    rng, path = np.random.default_rng(1), tmp_path / "wide.parquet"
    texts = _prompts(rng, rng.integers(24, size=8_192), words=30)
    names = [f"{kind}|model-{k}" for kind in ("score", "cost") for k in range(WIDE_MODELS)]
    prompts = [f"{texts[i % len(texts)]} {i}" for i in range(WIDE_ROWS)]
    pl.DataFrame({"prompt": prompts, **{name: rng.random(WIDE_ROWS) for name in names}}).write_parquet(path)
    before, now = seconds(FIT, places, path)
    report(f"fit of {WIDE_ROWS:,} rows x {WIDE_MODELS} models", before, now, "target <= 5 s")
    assert before / now >= 1.5
    assert now <= 5.0


def test_a_bench(tmp_path, places):
    rng, path = np.random.default_rng(2), tmp_path / "table.parquet"
    kind, ability = rng.integers(12, size=QUERIES), rng.uniform(0.2, 0.9, (12, MODELS))
    cost_usd = np.geomspace(1e-5, 2e-3, MODELS) * rng.lognormal(0.0, 0.5, (QUERIES, MODELS))
    columns = {f"score|m{k}": (rng.random(QUERIES) < ability[kind, k]).astype(float) for k in range(MODELS)}
    columns |= {f"cost|m{k}": cost_usd[:, k] for k in range(MODELS)}
    prompts = [f"{text} {i}" for i, text in enumerate(_prompts(rng, kind, words=30))]
    pl.DataFrame({"sample_id": range(QUERIES), "prompt": prompts, **columns}).write_parquet(path)
    methods = ",".join(printed(METHODS, places[0]))
    reports = (tmp_path / name for name in ("before", "now"))
    before, now = (
        seconds(BENCH, [place], path, "--methods", methods, "--report", folder, rounds=1)[0]
        for place, folder in zip(places, reports, strict=True)
    )
    report(f"bench of {QUERIES:,} x {MODELS}, six budgets, a seed", before, now)  # the same methods
    assert before / now >= 0.7
    whole = seconds(BENCH, places[1:], path, "--report", tmp_path / "whole", rounds=1)[0] * SEEDS / CORES
    print(f"\n{f'all of its present methods, {SEEDS} seeds, {CORES} cores':<44} {whole:7.1f} s (target 360 s)", end="")
    assert whole <= 360.0


def test_decisions_of_many_contexts_and_models(places):
    (old_p50, old_p99), (p50, p99) = ([float(us) for us in printed(DECIDE, place)] for place in places)
    print(
        f"\ndecide, 256 contexts x 200 models: p50 {p50:.0f} us, before {old_p50:.0f}; p99 {p99:.0f} us, before "
        f"{old_p99:.0f}: {old_p99 / p99:.1f}x; p99 / p50 {p99 / p50:.1f} (target 5), before {old_p99 / old_p50:.1f}",
        end="",
    )
    assert p99 <= 5.0 * p50
    assert old_p99 / p99 >= 2.0
