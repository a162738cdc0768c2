"""A budget and a limit on the mean latency: what the limit costs in quality, and what a second of it is worth."""

from __future__ import annotations

import numpy as np

from wiserouter import Budget, Limit, Limits, Model, RoutingLog, WiseRouter

N_REQUESTS = 3_000
MODELS = ["fast", "thorough", "best"]
REWARD = {"math": [0.35, 0.80, 0.90], "chat": [0.70, 0.75, 0.82]}
COST_USD = [0.0010, 0.0012, 0.0060]
LATENCY_S = [0.6, 6.0, 2.0]


def fitted() -> WiseRouter:
    """Return a router that was fitted on a log of two kinds of questions; latencies are known roughly."""
    rng = np.random.default_rng(0)
    kinds = rng.choice(list(REWARD), 600)
    prompts = [f"solve the equation {i}" if kind == "math" else f"tell a story of {i}" for i, kind in enumerate(kinds)]
    rewards = [list(rng.random(3) < REWARD[kind]) for kind in kinds]
    log = RoutingLog.from_arrays(prompts, np.array(rewards, dtype=float), [COST_USD] * len(kinds), MODELS)
    models = [Model(name, resources={"latency_s": seconds}) for name, seconds in zip(MODELS, [1, 5, 3], strict=True)]
    return WiseRouter.fit(log, n_contexts=2, models=models, seed=0)


def serve(limits: Limits | None) -> None:
    """Serve the same requests, and print quality, dollars and seconds per request, and the price of a second."""
    router, rng = fitted(), np.random.default_rng(1)
    router.start(Budget(amount_usd=2.5e-3 * N_REQUESTS, horizon=N_REQUESTS))
    router.set_limits(limits)
    quality, seconds = 0.0, 0.0
    for i in range(N_REQUESTS):
        kind = str(rng.choice(list(REWARD)))
        decision = router.decide(f"solve the equation {i}" if kind == "math" else f"tell a story of {i}")
        k = MODELS.index(decision.model)
        latency_s = LATENCY_S[k] * rng.lognormal(-0.08, 0.4)  # its mean is that of the table
        router.charge(decision, cost_usd=COST_USD[k], resources={"latency_s": latency_s})
        quality, seconds = quality + REWARD[kind][k], seconds + latency_s
    status = router.status()
    price = f", a second is worth {status.limits[0].price:.3f} of a reward" if status.limits else ""
    print(
        f"{'no limit' if limits is None else 'mean <= 2 s':<12} quality {quality / N_REQUESTS:.3f}, "
        f"{1e3 * status.spent_usd / N_REQUESTS:.2f} USD per 1,000, {seconds / N_REQUESTS:.2f} s{price}"
    )


serve(None)
serve(Limits({"latency_s": Limit(mean=2.0)}))
