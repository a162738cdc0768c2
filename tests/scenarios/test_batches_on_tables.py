"""A batch whose queries are all known against the router that serves them one by one, at equal spend.

A router that is told the score of each answer before the next query has learned from half of the batch when the other
half comes; a batch has no scores before its end. So both routers without scores are compared, and those with.
"""

from typing import NamedTuple

import numpy as np
import pytest

from support.tables import ROUTERBENCH, needs_tables, read
from wiserouter import Budget, Offline
from wiserouter.errors import BudgetError, InfeasibleBudget, QuerySkipped
from wiserouter.evaluation.replay import _fresh, prepare, run

pytestmark = [needs_tables, pytest.mark.slow]

SEEDS = range(8)
RATES_USD = (8.13e-5, 3.28e-4, 5.75e-4, 1.07e-3, 2.05e-3, 5.02e-3)
EQUAL = 0.005
"""Relative difference of two spends that are equal."""


class Served(NamedTuple):
    spend_usd: float
    quality: float


def allocated(setup, budget_usd):
    """Return true cost and mean reward of a batch; the cheapest one where the budget is below it by the estimates."""
    try:
        models = setup.router.allocate(setup.test.prompts, budget_usd).models
    except InfeasibleBudget as error:
        models = setup.router.allocate(
            setup.test.prompts, error.floor_usd * len(setup.test.prompts) * (1 + 1e-9)
        ).models
    at = np.array([setup.test.models.index(name) for name in models]), np.arange(len(models))
    return setup.test.cost_usd[at[1], at[0]].sum(), setup.test.reward[at[1], at[0]].mean()


def at_spend(setup, spend_usd):
    """Return true cost and mean reward of the batch whose true cost is a given one."""
    budget_usd, found = spend_usd, allocated(setup, spend_usd)
    for _ in range(6):
        if abs(found[0] / spend_usd - 1.0) <= EQUAL / 2:
            break
        budget_usd *= spend_usd / found[0]
        found = allocated(setup, budget_usd)
    return found


def with_scores(setup, budget):
    """Return what the router spends and reaches that is told the score of each answer."""
    found = run(setup, budget).outcome
    return Served(found.spend_usd, found.quality)


def without_scores(setup, budget):
    """Return the same of a router that is told costs only, as a batch is."""
    router, test = _fresh(setup), setup.test
    router.start(budget)
    spend_usd = quality = 0.0
    for i, embedding in enumerate(setup.embeddings):
        try:
            decision = router.decide(embedding=embedding)
        except (BudgetError, QuerySkipped):
            continue
        k = router.pool.index(decision.model)
        router.charge(decision, float(test.cost_usd[i, k]))
        spend_usd, quality = spend_usd + test.cost_usd[i, k], quality + test.reward[i, k]
    return Served(spend_usd, quality / len(test.prompts))


def gains(serve, estimator):
    """Return the gain of a batch with estimates of each query over one by one with means: budgets x splits."""
    found = np.empty((len(RATES_USD), len(SEEDS)))
    for at, seed in enumerate(SEEDS):
        online = prepare(read(ROUTERBENCH), seed=seed, policy=Offline(), estimator=estimator)
        batch = prepare(read(ROUTERBENCH), seed=seed, policy=Offline(), estimator="ridge")
        n = len(online.contexts)
        for row, rate_usd in enumerate(RATES_USD):
            one = serve(online, Budget(rate_usd * n, n))
            spent, quality = at_spend(batch, one.spend_usd)
            assert spent <= one.spend_usd * (1.0 + 4 * EQUAL)  # or less, where more money is of no use to the batch
            found[row, at] = quality - one.quality
    return found


def noise_of(gain):
    return gain.std(axis=-1, ddof=1) / np.sqrt(gain.shape[-1])


@pytest.mark.parametrize("estimator", ["means", "smoothed"])
@pytest.mark.parametrize("serve", [without_scores, with_scores])
def test_a_batch_is_as_good_as_the_online_router_at_equal_spend(serve, estimator):
    gain = gains(serve, estimator)
    for rate_usd, row in zip(RATES_USD, gain, strict=True):
        print(f"\n{serve.__name__} {estimator} {rate_usd:.3g} {row.mean():+.4f} +- {noise_of(row):.4f}", end="")
    assert (gain.mean(axis=1) >= -2 * noise_of(gain)).all()
    assert gain.mean() >= 0.0
    if estimator == "means":
        assert gain.mean() >= 3 * noise_of(gain.mean(axis=0))
        if serve is without_scores:
            assert (gain.mean(axis=1) >= 0.0).all()
