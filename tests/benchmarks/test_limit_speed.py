"""Speed of decisions under limits beside the budget, as ratios to decisions without in one run: `uv run poe bench`."""

import time

import numpy as np

from wiserouter import Budget, Contexts, Estimates, Limit, Limits, Model, WiseRouter

N_CONTEXTS, N_MODELS, CALLS = 16, 10, 4_000
LIMITS = Limits({"latency_s": Limit(mean=1.5)})
MOST = {"none": 1.05, "of another scope": 1.2, "of its scope": 3.0}
"""The most that the median decision may take, in those of a router that never heard of limits."""


def serving(limits: str | None) -> WiseRouter:
    rng = np.random.default_rng(0)
    shape = (N_CONTEXTS, N_MODELS)
    estimates = Estimates(*shape)
    estimates.add_table(np.arange(N_CONTEXTS), rng.random(shape), rng.random(shape))
    contexts = Contexts(rng.normal(size=(N_CONTEXTS, 8)), rng.dirichlet(np.full(N_CONTEXTS, 5.0)))
    models = [Model(f"m{k}", resources={"latency_s": float(s)}) for k, s in enumerate(rng.uniform(0.5, 3.0, N_MODELS))]
    router = WiseRouter(models, contexts, estimates=estimates, seed=0, watch=None)
    router.start(Budget(5e5 * (router.plan.floor_usd + router.plan.ceiling_usd), 1_000_000))
    if limits is not None:
        router.set_limits(LIMITS, scope="other" if limits == "of another scope" else None)
    return router


def test_decisions_under_limits():
    routers = {name: serving(None if name in {"never", "none"} else name) for name in ("never", *MOST)}
    took = {name: [] for name in routers}
    for call in range(CALLS):  # in turn, so that noise affects them alike
        for name, router in routers.items():
            start = time.thread_time_ns()
            decision = router.decide(context=call % N_CONTEXTS)
            took[name].append((time.thread_time_ns() - start) / 1e3)
            router.charge(decision, 0.5, resources={"latency_s": 1.0} if name == "of its scope" else None)
    p50, mean = ({name: float(of(us[500:])) for name, us in took.items()} for of in (np.median, np.mean))
    for name, most in MOST.items():
        ratio = p50[name] / p50["never"]
        print(
            f"\ndecide, limits: {name:<18} p50 {p50[name]:6.1f} us, {ratio:.2f}x one without, target <= {most:g}x; "
            f"mean {mean[name]:.1f} us, {mean[name] / mean['never']:.2f}x",
            end="",
        )
        assert ratio <= most
