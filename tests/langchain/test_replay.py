"""A thousand queries of a benchmark through the chain of the demo: budget and quality as in the replay."""

import numpy as np
import pytest

from support.tables import ROUTERBENCH, needs_tables, read
from wiserouter import Budget, Offline, WiseRouter
from wiserouter.evaluation.replay import prepare, run
from wiserouter_langchain.demo import TOKEN_USD, serve

pytestmark = pytest.mark.slow

N = 1_000


@needs_tables
@pytest.mark.parametrize("rate_usd", [3.28e-4, 1.07e-3])
def test_a_thousand_queries_keep_budget_and_quality(rate_usd):
    setup = prepare(read(ROUTERBENCH), seed=0, policy=Offline())
    setup = setup._replace(
        test=setup.test.rows(np.arange(N)), embeddings=setup.embeddings[:N], contexts=setup.contexts[:N]
    )
    budget = Budget(rate_usd * N, N)
    before = run(setup, budget).outcome
    fitted = setup.router
    router = WiseRouter(
        fitted.pool.models,
        fitted.contexts,
        encoder=fitted.encoder,
        policy=Offline(),
        estimates=fitted.estimates.copy(),
        seed=setup.seed,
    )
    router.start(budget)
    chosen = serve(router, setup.test, lambda done: None)
    rows = np.arange(N)
    rewards, billed = setup.test.reward[rows, chosen], setup.test.cost_usd[rows, chosen].sum()
    ratio, noise = router.status().spent_usd / budget.amount_usd, rewards.std() / np.sqrt(N)
    print(
        f"\nrate {rate_usd:g}: quality {rewards.mean():.4f} (core replay {before.quality:.4f}, noise {noise:.4f}), "
        f"spend/budget {ratio:.4f} (core {before.spend_ratio:.4f})"
    )
    assert router.status().spent_usd == pytest.approx(billed, abs=N * TOKEN_USD)
    assert 0.99 <= ratio <= 1.005
    assert abs(rewards.mean() - before.quality) <= 2 * noise
