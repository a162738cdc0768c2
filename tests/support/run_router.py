"""A router whose estimates say what a run costs and is worth with each of two models, and calls of its runs."""

import numpy as np

from wiserouter import Budget, Conversations, Estimates, Model, Offline, Price, Usage, WiseRouter
from wiserouter.stores import MemoryStore

SMALL = Model("small", Price(3e-7, 1.2e-6, cache_read=3e-8), max_output_tokens=200)

LARGE = Model("large", Price(3e-6, 1.5e-5, cache_read=3e-7, cache_write=3.75e-6), max_output_tokens=200)

RUN_USD = (0.01, 0.1)


class Clock:
    def __init__(self):
        self.now_s = 1_000.0

    def __call__(self):
        return self.now_s


def fitted(unit="run", reward=(0.2, 0.9), budget=None, clock=None, policy=None, **settings):
    """Return a router whose estimates say what a run costs and is worth with each model."""
    estimates = Estimates(1, 2)
    estimates.add_table(np.zeros(50, dtype=np.int64), np.tile(reward, (50, 1)), np.tile(RUN_USD, (50, 1)))
    router = WiseRouter(
        [SMALL, LARGE],
        policy=policy or Offline(),
        estimates=estimates,
        conversations=Conversations(unit, **settings),
        store=MemoryStore(clock or Clock()),
        seed=0,
    )
    router.start(budget or Budget(100.0, horizon=100))
    return router


def usage(call, cached=True):
    """Return the tokens of the n-th call of an agent, whose prompt grows by 1,000 tokens."""
    prompt = 2_000 + 1_000 * call
    return Usage(prompt, 100, cache_read_tokens=prompt - 1_000 if cached and call else 0)


def serve(router, run, calls, first=0):
    decisions = []
    for call in range(first, first + calls):
        tokens = usage(call).input_tokens
        decisions.append(router.decide("fix the bug", conversation=run, input_tokens=tokens))
        router.charge(decisions[-1], usage=usage(call))
    return decisions
