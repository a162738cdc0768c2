"""Three tiers of customers share one budget: with and without the value of their requests."""

from __future__ import annotations

import numpy as np

from wiserouter import Budget, Model, RoutingLog, WiseRouter

TIERS = {"free": 1.0, "silver": 3.0, "gold": 8.0}
SHARES = [0.7, 0.2, 0.1]
N_REQUESTS = 2_000

MODELS = ["small", "medium", "large"]
REWARD = {"math": [0.35, 0.60, 0.85], "chat": [0.70, 0.78, 0.82]}
COST_USD = [0.0002, 0.001, 0.006]


def fitted() -> WiseRouter:
    """Return a router that was fitted on a log of two kinds of questions."""
    rng = np.random.default_rng(0)
    kinds = rng.choice(list(REWARD), 600)
    prompts = [f"solve the equation {i}" if kind == "math" else f"tell a story of {i}" for i, kind in enumerate(kinds)]
    rewards = [list(rng.random(3) < REWARD[kind]) for kind in kinds]
    log = RoutingLog.from_arrays(prompts, np.array(rewards, dtype=float), [COST_USD] * len(kinds), MODELS)
    return WiseRouter.fit(log, n_contexts=2, models=[Model(name) for name in MODELS], seed=0)


def serve(states_values: bool) -> None:
    """Serve the same requests, and print the mean quality of each tier and their worth."""
    router, rng = fitted(), np.random.default_rng(1)
    router.start(Budget(amount_usd=2.0, horizon=N_REQUESTS))
    quality: dict[str, list[float]] = {tier: [] for tier in TIERS}
    for i in range(N_REQUESTS):
        tier, kind = str(rng.choice(list(TIERS), p=SHARES)), str(rng.choice(list(REWARD)))
        text = f"solve the equation {i}" if kind == "math" else f"tell a story of {i}"
        decision = router.decide(text, value=TIERS[tier] if states_values else None)
        model = MODELS.index(decision.model)
        router.charge(decision, cost_usd=COST_USD[model])
        quality[tier].append(REWARD[kind][model])
    worth = sum(TIERS[tier] * sum(each) for tier, each in quality.items()) / N_REQUESTS
    means = ", ".join(f"{tier} {np.mean(each):.3f}" for tier, each in quality.items())
    spent_usd = router.status().spent_usd
    print(f"{'with' if states_values else 'without'} values: {means}; worth {worth:.3f}, spent {spent_usd:.3f} USD")


serve(states_values=False)
serve(states_values=True)
