"""Speed and memory of the core, as figures and as ratios measured in one run: `uv run poe bench`.

Two cores, a noisy machine: each figure is the median of many calls, and the best of a few rounds.
"""

import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from support.problems import Problem, linprog_value
from wiserouter import Budget, Contexts, Estimates, Model, Plan, WiseRouter, open_encoder
from wiserouter.evaluation.datasets.synthetic import make_table

ROUNDS, CALLS = 5, 3_000


def median_us(call: Callable[[], object], calls: int = CALLS, rounds: int = ROUNDS) -> float:
    """Return the median time of one call in the best round, in microseconds."""
    best = float("inf")
    for _ in range(rounds):
        times = []
        for _ in range(calls):
            start = time.perf_counter_ns()
            call()
            times.append(time.perf_counter_ns() - start)
        best = min(best, float(np.median(times)) / 1e3)
    return best


def report(name: str, figure: float, unit: str, target: float, note: str = "") -> None:
    """Print one line of the table."""
    print(f"\n{name:<58} {figure:>10.3g} {unit:<4} target <= {target:g} {unit}  {note}", end="")


def instance(n_contexts: int, n_models: int) -> Problem:
    rng = np.random.default_rng(0)
    shape = (n_contexts, n_models)
    return Problem(rng.dirichlet(np.full(n_contexts, 5.0)), rng.random(shape), rng.random(shape), 0.5, False)


def serving(problem: Problem, limit: str) -> tuple[WiseRouter, Callable[[], object], Callable[[], object]]:
    """Return a router under a binding budget, and calls that decide, and that charge the last decision."""
    n_contexts, n_models = problem.reward.shape
    rng = np.random.default_rng(1)
    estimates = Estimates(n_contexts, n_models)
    estimates.add_table(np.arange(n_contexts), problem.reward, problem.cost_usd)
    models = [Model(f"m{k}", max_cost_usd=2.0) for k in range(n_models)]
    router = WiseRouter(models, Contexts(rng.normal(size=(n_contexts, 384)), problem.freq), estimates=estimates, seed=0)
    rate = (router.plan.floor_usd + router.plan.ceiling_usd) / 2
    router.start(Budget(rate * 10_000_000, 10_000_000, limit=limit))
    queries = rng.normal(size=(256, 384)).astype(np.float32)
    last = []

    def decide():
        last.append(router.decide(embedding=queries[len(last) % 256]))

    def charge():
        router.charge(last.pop(0), rate)

    return router, decide, charge


@pytest.mark.parametrize("limit", ["expected", "hard"])
@pytest.mark.parametrize(("n_contexts", "n_models", "target_us"), [(16, 10, 25.0), (64, 40, 60.0)])
def test_decide_with_reservation_and_record(n_contexts, n_models, target_us, limit):
    problem = instance(n_contexts, n_models)
    router, decide, charge = serving(problem, limit)
    rate = (router.plan.floor_usd + router.plan.ceiling_usd) / 2
    solve_us = median_us(lambda: linprog_value(problem, rate), calls=20, rounds=2)
    decide_us = median_us(decide)
    charge_us = median_us(charge)
    name = f"decide, J={n_contexts} K={n_models} d=384, {limit} limit"
    note = f"linprog {solve_us:.0f} us = {solve_us / decide_us:.0f}x; charge {charge_us:.1f} us"
    report(name, decide_us, "us", target_us, note)
    assert decide_us <= target_us
    assert solve_us / decide_us >= 80


def test_building_a_plan():
    problem = instance(16, 10)
    build_us = median_us(lambda: Plan(problem.freq, problem.reward, problem.cost_usd), calls=500)
    report("Plan, J=16 K=10", build_us / 1e3, "ms", 0.5)
    assert build_us <= 500


def test_fitting_contexts():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 256))
    rows = (centres[rng.integers(40, size=18_000)] + rng.normal(0, 1.5, (18_000, 256))).astype(np.float32)
    Contexts.fit(rows[:100], 2)  # loads scikit-learn
    best_s = median_us(lambda: Contexts.fit(rows, 16), calls=1, rounds=3) / 1e6
    report("Contexts.fit, 18,000 x 256, J=16", best_s, "s", 1.5)
    assert best_s <= 1.5


def test_encoding():
    prompts = [prompt * 20 for prompt in make_table(500, np.random.default_rng(0)).prompts]
    encoder = open_encoder("tfidf").fit(prompts)
    text = prompts[0][:1_000]
    encode_us = median_us(lambda: encoder.encode(text), calls=500)
    report("tfidf encode, 1,000 characters", encode_us / 1e3, "ms", 0.5)
    assert encode_us <= 500


def in_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_time(tmp_path, monkeypatch):
    """With compiled modules, as any but the first process of an installation finds them."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    best_s, numpy_s = (min(float(in_process(code.format(name))) for _ in range(7)) for name in ("wiserouter", "numpy"))
    report("import wiserouter", best_s, "s", 0.3, f"of which numpy {numpy_s:.3f} s")
    assert best_s <= 0.3


def test_memory_of_a_process_that_only_decides(tmp_path):
    router, _, _ = serving(instance(16, 10), "expected")
    router.save(tmp_path / "r.wise")
    code = f"""
import numpy as np
from wiserouter import Budget, WiseRouter
router = WiseRouter.load({str(tmp_path / "r.wise")!r}, seed=0)
router.start(Budget(5_000.0, 20_000))
rng = np.random.default_rng(0)
for _ in range(10_000):
    router.charge(router.decide(embedding=rng.normal(size=384)), 0.1)
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""
    peak_mb = int(in_process(code)) / 1024  # of this process alone: ru_maxrss starts from the parent's peak
    report("peak memory, 10,000 decisions", peak_mb, "MB", 200)
    assert peak_mb <= 200
