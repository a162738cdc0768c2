"""A batch whose queries are all known against the router that serves them one by one, at equal spend."""

import numpy as np
import pytest

from support.tables import ROUTERBENCH, needs_tables, read
from wiserouter import Budget, Offline
from wiserouter.errors import InfeasibleBudget
from wiserouter.evaluation.replay import prepare, run

pytestmark = [needs_tables, pytest.mark.slow]

SEEDS = range(4)
RATES_USD = (8.13e-5, 3.28e-4, 5.75e-4, 1.07e-3, 2.05e-3, 5.02e-3)
EQUAL = 0.005
"""Relative difference of two spends that are equal."""


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


def test_a_batch_is_as_good_as_the_online_router_at_equal_spend():
    setups = [prepare(read(ROUTERBENCH), seed=seed, policy=Offline()) for seed in SEEDS]
    gains = []
    for rate_usd in RATES_USD:
        n = len(setups[0].contexts)
        online = [run(one, Budget(rate_usd * n, n)).outcome for one in setups]
        batch = [at_spend(setup, one.spend_usd) for setup, one in zip(setups, online, strict=True)]
        ratio = np.array([spent / one.spend_usd for (spent, _), one in zip(batch, online, strict=True)])
        assert np.abs(ratio - 1.0).mean() <= EQUAL
        gain = np.array([quality - one.quality for (_, quality), one in zip(batch, online, strict=True)])
        noise = gain.std(ddof=1) / np.sqrt(len(gain))
        print(f"{rate_usd:.3g} {np.mean([one.quality for one in online]):.4f} {gain.mean():+.4f} +- {noise:.4f}")
        assert gain.mean() >= -2 * noise
        gains.append(gain.mean())
    assert np.mean(gains) >= 0.0
