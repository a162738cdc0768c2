"""A worker under a limit on a total: `python metered_worker.py URL CALLS SEED [unsent]` prints the uses of its calls.

With `unsent` it prints "sent" after these calls, and goes on without another exchange of sums until it is killed.
"""

from __future__ import annotations

import sys
from itertools import count

import numpy as np

from wiserouter import Budget, Contexts, Estimates, Limit, Limits, Model, Offline, WiseRouter, open_store

USE_WH = {"small": 0.1, "large": 0.6}
REQUESTS, TOTAL_WH = 1_800, 600.0


def worker(url: str, seed: int, horizon: int = REQUESTS) -> WiseRouter:
    """Return a router of the store under the limit, which has joined the running budget."""
    models = [Model(name, resources={"energy_wh": use}) for name, use in USE_WH.items()]
    known = Estimates(1, len(models))
    known.add_table(np.zeros(50, dtype=int), [[0.1, 0.9]] * 50, [[0.001, 0.002]] * 50)
    store = open_store(url)
    one = WiseRouter(models, Contexts.single(), estimates=known, policy=Offline(), store=store, seed=seed, watch=None)
    one.start(Budget(100.0, horizon))
    one.set_limits(Limits({"energy_wh": Limit(total=TOTAL_WH)}))
    return one


def serve(one: WiseRouter, rng: np.random.Generator) -> float:
    """Serve a call, and return its use."""
    decision = one.decide("hi")
    use_wh = USE_WH[decision.model] * rng.exponential()
    one.charge(decision, 0.001, resources={"energy_wh": use_wh})
    return use_wh


def main(url: str, calls: str, seed: str, unsent: str = "") -> None:
    one, rng = worker(url, int(seed)), np.random.default_rng(int(seed))
    for _ in range(int(calls)):
        print(serve(one, rng), flush=True)
    one.refresh()
    if unsent:
        print("sent", flush=True)
        for _ in count():
            print(serve(one, rng), flush=True)
    one.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
