"""Routers that are fitted on logs with few answers per query, as most logs are: the default against plain means.

`WISEROUTER_SEEDS=20 uv run pytest -n0 -s -m slow tests/scenarios/test_sparse_fit_on_tables.py` prints the table of
docs/fitting.md. The test half is routed at six budgets by a router that is told the costs of its calls, or their
scores as well.
"""

import os

import numpy as np
import pytest

from support.tables import FOLDER, needs_tables
from wiserouter import Budget, Offline, WiseRouter
from wiserouter.errors import BudgetError, QuerySkipped
from wiserouter.evaluation.bench.budget_grid import budgets_of_table
from wiserouter.evaluation.bench.splits import split_table
from wiserouter.evaluation.bench.suite import open_suite
from wiserouter.fitting.fit_residuals import smoothing_of
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import Sample

pytestmark = [pytest.mark.slow, needs_tables]

SEEDS = range(60, 60 + int(os.environ.get("WISEROUTER_SEEDS", "1")))


def thinned(half, answers, seed):
    """Return the queries of a half, each with the answers of some models that are drawn at random."""
    n, n_models = half.answers.reward.shape
    hidden = np.argsort(np.random.default_rng(seed).random((n, n_models)), axis=1) >= answers
    reward, cost = (np.where(hidden, np.nan, of) for of in (half.answers.reward, half.answers.cost_usd))
    return Sample(half.embeddings, half.context_ids, reward, cost)


def quality(split, estimates, rate_usd, seed, *, scored):
    """Return the mean score of the test half."""
    test = split.test
    router = WiseRouter(split.models, split.contexts, policy=Offline(), estimates=estimates.copy(), seed=seed)
    router.start(Budget(rate_usd * test.n, test.n))
    total = 0.0
    for i in np.random.default_rng(seed).permutation(test.n):
        try:
            decision = router.decide(embedding=test.embeddings[i])
        except (BudgetError, QuerySkipped):
            continue
        k = router.pool.index(decision.model)
        router.charge(decision, float(test.answers.cost_usd[i, k]))
        if scored:
            router.reward(decision, float(test.answers.reward[i, k]))
        total += test.answers.reward[i, k]
    return total / test.n


def gain(loaded, answers, seed, *, scored):
    """Return the mean quality over the budgets of the default of a fit, less that of plain means."""
    split = split_table(loaded.table, seed, embeddings=loaded.embeddings)
    sample = thinned(split.train, answers, seed)
    plain = Estimates(split.contexts.n_contexts, sample.reward.shape[1])
    plain.add_table(sample.contexts, sample.reward, sample.cost_usd)
    smoothed = plain.copy()
    smoothed.smoothing = smoothing_of(sample, plain)
    rates = budgets_of_table(loaded, 6, 0).all
    found = [[quality(split, of, rate, seed, scored=scored) for rate in rates] for of in (plain, smoothed)]
    return np.mean(found[1]) - np.mean(found[0])


@pytest.mark.parametrize(("answers", "scored"), [(1, False), (1, True), (3, False), (3, True)])
def test_the_default_of_a_fit_is_no_worse_than_plain_means(answers, scored):
    gains = np.array([[gain(one, answers, seed, scored=scored) for seed in SEEDS] for one in open_suite(FOLDER)])
    of_table, error = gains.mean(axis=1), gains.std(axis=1, ddof=len(SEEDS) > 1) / len(SEEDS) ** 0.5
    mean, over_tables = of_table.mean(), of_table.std(ddof=1) / len(of_table) ** 0.5
    print(f"\n{answers} answers, {'scores' if scored else 'costs'} told: {mean:+.4f} ({over_tables:.4f})")
    print(" ".join(f"{g:+.4f} ({e:.4f})" for g, e in zip(of_table, error, strict=True)))
    assert mean > -2 * over_tables
