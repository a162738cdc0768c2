"""Speed of learning while serving: `uv run poe bench`.

A decision builds again what has changed, so it is timed among the charges and rewards that change it.
"""

import time

import numpy as np

from wiserouter import Budget, Contexts, Estimates, Model, Optimistic, Price, WiseRouter
from wiserouter.evaluation.simulation import SimulatedMethod, Stream, paper_environment, play

N_CONTEXTS, N_MODELS, CALLS, ROUNDS = 16, 10, 4_000, 4
MILLION = 1_000_000


def report(name, figure, unit, target, note):
    """Print one line of the table."""
    print(f"\n{name:<58} {figure:>10.3g} {unit:<4} target <= {target:g} {unit}  {note}", end="")


def learning_router(rng):
    models = [Model(f"m{k}", Price(*(1e-6 * (k + 1) * np.array([1.0, 4.0])))) for k in range(N_MODELS)]
    contexts = Contexts(rng.normal(size=(N_CONTEXTS, 384)), np.full(N_CONTEXTS, 1 / N_CONTEXTS))
    router = WiseRouter(models, contexts, policy=Optimistic(), seed=0)
    router.start(Budget(0.005 * CALLS * ROUNDS, CALLS * ROUNDS))
    return router


def test_decide_while_learning():
    rng = np.random.default_rng(0)
    router = learning_router(rng)
    good, usd = rng.random((N_CONTEXTS, N_MODELS)), 0.001 * np.arange(1, N_MODELS + 1)
    queries = rng.normal(size=(256, 384)).astype(np.float32)
    p50_us, p99_us = [], []
    for _ in range(ROUNDS):
        times = []
        for t in range(CALLS):
            start = time.perf_counter_ns()
            decision = router.decide(embedding=queries[t % 256])
            times.append(time.perf_counter_ns() - start)
            k = router.pool.index(decision.model)
            router.charge(decision, usd[k] * rng.lognormal(-0.08, 0.4))
            router.reward(decision, float(rng.random() < good[decision.context, k]))
        p50_us.append(float(np.median(times)) / 1e3)
        p99_us.append(float(np.quantile(times, 0.99)) / 1e3)
    note = f"first {CALLS:,}: {p50_us[0]:.1f} us; p99 {min(p99_us):.0f} us"
    report(f"decide while learning, J={N_CONTEXTS} K={N_MODELS} d=384, p50", min(p50_us), "us", 60.0, note)
    assert min(p50_us) <= 60.0


def test_a_million_simulated_decisions():
    world = paper_environment(0, MILLION)
    stream, method = Stream.of(world, 0), SimulatedMethod(Optimistic(), Estimates(*world.cost_usd.shape))
    start = time.perf_counter()
    chosen = play(world, stream, method, 0).chosen
    took_s = time.perf_counter() - start
    report("1,000,000 simulated decisions, J=11 K=11", took_s, "s", 90.0, f"served {(chosen >= 0).mean():.1%}")
    assert took_s <= 90.0
