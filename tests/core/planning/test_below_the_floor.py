"""Budgets below the cheapest model's mean cost: `Optimistic` takes the best of the models that may be the cheapest."""

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, Model, Optimistic, WiseRouter

RATE_USD = 0.8


def logged(cost_usd, reward, calls=20, spread=0.3):
    """Return a router with `calls` observations of each model, whose costs vary by `spread` of their mean."""
    n_models = len(cost_usd)
    estimates = Estimates(1, n_models)
    factor = np.tile([1.0 - spread, 1.0 + spread], calls // 2)[:, np.newaxis]
    estimates.add_table(np.zeros(calls, dtype=int), np.tile(reward, (calls, 1)), factor * np.array(cost_usd))
    models = [Model(f"m{k}") for k in range(n_models)]
    router = WiseRouter(models, Contexts.single(), policy=Optimistic(), estimates=estimates, seed=0)
    router.start(Budget(1_000 * RATE_USD, 1_000))
    return router


def chosen(router, **terms):
    return router.decide(context=0, **terms).model


def test_the_better_of_two_models_that_cost_about_the_same_is_taken():
    assert chosen(logged([1.0, 1.02, 9.0], [0.2, 0.6, 0.9])) == "m1"


def test_a_model_that_surely_costs_more_is_not():
    assert chosen(logged([1.0, 1.5, 9.0], [0.2, 0.9, 0.9], calls=400)) == "m0"


def test_of_equal_models_the_one_of_more_reward_per_usd_is_taken():
    assert chosen(logged([1.0, 1.05], [0.5, 0.51])) == "m0"


def test_a_restriction_holds():
    router = logged([1.0, 1.02, 9.0], [0.2, 0.6, 0.9])
    assert chosen(router, eligible=["m0", "m2"]) == "m0"


@pytest.mark.parametrize("unit", [1e-6, 1.0, 100.0])
def test_the_scale_of_costs_does_not_matter(unit):
    router = logged([unit, 1.02 * unit, 9.0 * unit], [0.2, 0.6, 0.9])
    router.start(Budget(800 * unit, 1_000))
    assert chosen(router) == "m1"


@pytest.mark.parametrize("seed", range(5))
def test_it_earns_as_much_as_always_the_cheapest(seed):
    rng = np.random.default_rng(seed)
    cost, reward = np.array([1.0, 1.01, 5.0]), np.array([0.3, 0.6, 0.9])
    router = logged(cost, reward)
    router.start(Budget(0.95 * 400, 400))
    earned, served = 0.0, 0
    while router.status().left_usd > 1.5 and served < 400:
        decision = router.decide(context=0)
        k = int(decision.model[1:])
        router.charge(decision, cost[k] * rng.uniform(0.7, 1.3))
        router.reward(decision, float(rng.random() < reward[k]))
        earned, served = earned + reward[k], served + 1
    assert served >= 0.95 * 380
    assert earned >= 0.95 * 380 * reward[0]
