"""A worker process whose contexts grow: `python context_worker.py URL QUESTIONS SEED` prints what it knows at the end.

It prints "served" once all its questions are, waits for a line, and exchanges until nothing changes any more.
"""

import hashlib
import json
import sys
import time

import numpy as np
import sklearn.cluster  # noqa: F401

from support.questions import SKILL, question
from wiserouter import Budget, Growing, Model, Price, Usage, WiseRouter
from wiserouter.stores.shared import context_sync

context_sync.FORMER_EVERY_S = 1.0


def main(url: str, questions: int, seed: int) -> None:
    models = [Model("a", Price(1e-6, 2e-6)), Model("b", Price(1e-6, 2e-6))]
    growing = Growing(8, first_after=60, per_context=20)
    router = WiseRouter(models, store=url, growing=growing, seed=seed, watch=None)
    router.start(Budget(100.0, 100_000))
    rng = np.random.default_rng(seed)
    for _ in range(questions):
        kind = int(rng.integers(4))
        decision = router.decide(question(rng, kind))
        router.charge(decision, usage=Usage(100, 50))
        router.reward(decision, float(rng.random() < SKILL[kind, router.pool.index(decision.model)]))
        time.sleep(0.005)
    print("served", flush=True)
    sys.stdin.readline()
    deadline = time.monotonic() + 8.0
    while time.monotonic() < deadline:
        router._store.refresh()
        with router._lock:
            router._learner.merge_remote()
        time.sleep(0.25)
    sums = {name: float(table.sum()) for name, table in router.estimates.arrays().items()}
    centroids = hashlib.sha256(router.contexts.centroids.tobytes()).hexdigest()
    print(json.dumps({**sums, "n_contexts": router.contexts.n_contexts, "centroids": centroids}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
