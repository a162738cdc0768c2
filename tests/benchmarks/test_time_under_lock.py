"""What of a decision is done while the router's lock is held: the rest may go on in several threads at once."""

import timeit

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, Model, Offline, Optimistic, WiseRouter

N_CONTEXTS, N_MODELS, CALLS = 16, 10, 2_000


def microseconds(what, function):
    """Print and return the least time of a call, in nine rounds."""
    us = min(timeit.repeat(function, number=CALLS, repeat=9)) / CALLS * 1e6
    print(f"\n{what:<44} {us:6.2f} us", end="")
    return us


def served(policy):
    rng = np.random.default_rng(0)
    shape = (N_CONTEXTS, N_MODELS)
    estimates = Estimates(*shape)
    reward, cost_usd = rng.random(shape), rng.random(shape) * 0.01 + 1e-4
    for _ in range(8):
        estimates.add_table(np.arange(N_CONTEXTS), reward, cost_usd)
    contexts = Contexts(rng.normal(size=(N_CONTEXTS, 384)), rng.dirichlet(np.full(N_CONTEXTS, 5.0)))
    models = [Model(f"m{k}") for k in range(N_MODELS)]
    router = WiseRouter(models, contexts, policy=policy, estimates=estimates, seed=0)
    router.start(Budget(3_000.0, 1_000_000))
    return router, rng.normal(size=384).astype(np.float32)


@pytest.mark.parametrize("policy", [Offline, Optimistic])
def test_the_lock_is_held_for_the_choice_and_its_record(policy):
    router, embedding = served(policy())
    learner, store, decider = router._learner, router._store, router._decider
    query, budget = learner.reader.read(None, embedding, None, None, hard=False), store.snapshot("default")
    choice = decider.decide(query, budget).trace.choice
    print(f"\n{policy.__name__}, an embedding, {N_CONTEXTS} contexts x {N_MODELS} models", end="")
    whole = microseconds("decide", lambda: router.decide(embedding=embedding))
    microseconds("before the lock: its context", lambda: learner.reader.read(None, embedding, None, None, hard=False))
    chosen = microseconds("under the lock: choice and record", lambda: decider.decide(query, budget))
    microseconds("  of these the choice", lambda: learner.policy.choose(query.context, budget.funds, decider._rng))
    counted = microseconds("under the lock: its count", lambda: learner.add_invoked(query.context, choice.model))
    print(f"\nshare of the router's lock: {(chosen + counted) / whole:.0%}", end="")
    assert chosen + counted < 0.75 * whole
