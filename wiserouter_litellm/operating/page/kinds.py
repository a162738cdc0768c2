"""The kinds of questions that a router tells apart, and where the plan sends each."""

from __future__ import annotations

from typing import Any

from wiserouter import WiseRouter

MAX_KINDS = 64
"""Most kinds that are shown: those with most traffic."""


def kinds_of(router: WiseRouter, scope: str) -> dict[str, Any]:
    """Return the contexts by their share of the traffic, each with the planned mix and the estimates behind it.

    Raises
    ------
    NotStarted
        If the scope has no budget.
    """
    rate_usd = router.account(scope).tightest.rate_usd
    plan, contexts, estimates = router.plan, router.contexts, router.estimates
    if plan is None:
        return {"rate_usd": rate_usd, "shadow_price": None, "kinds": []}
    rate_usd = max(rate_usd, plan.floor_usd)
    mix, names = plan.mix(rate_usd), router.pool.names
    described = contexts.n_contexts == plan.n_contexts == estimates.shape[0]  # not while a worker takes over new ones
    order = sorted(range(plan.n_contexts), key=lambda j: -plan.freq[j])[:MAX_KINDS]
    kinds = [
        {
            "id": j,
            "share": float(plan.freq[j]),
            "words": list(contexts.summary(j).terms) if described else [],
            "models": [
                {
                    "name": name,
                    "share": float(mix[j, k]),
                    "quality": float(plan.reward[j, k]),
                    "cost_usd": float(plan.cost_usd[j, k]),
                    "calls": int(estimates.calls[j, k]) if described else None,
                    "scores": int(estimates.labels[j, k]) if described else None,
                }
                for k, name in enumerate(names[: plan.n_models])
            ],
        }
        for j in order
    ]
    return {"rate_usd": rate_usd, "shadow_price": plan.shadow_price(rate_usd), "kinds": kinds}
