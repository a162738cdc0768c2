"""Learning on real tables: one model seen per query, no history but a price list.

`Optimistic` starts with one context, learns on the training half and goes on to serve the test half, all out of one
budget; contexts grow with the queries. `Offline` was fitted on all answers to the training half. Quality is that on
the test half.

The gap is the mean over the budgets that bind by the plan of the dense history: more money would buy something. That
over the budgets that bind by the learned plan in nine of ten seeds is printed too; it is larger on SWE-bench. What is
spent is told of the seeds in which a budget binds by the learned plan at the end: a router that believes that no dear
model is worth it has nothing to spend the rest on. It may miss its bounds by two standard errors, since one call of
SWE-bench is up to 3 % of a budget.

Four seeds a table, 24 for SWE-bench; WISEROUTER_SEEDS=30 runs so many, 16 times as many for SWE-bench. With -s the
figures are printed: those in docs/learning.md.
"""

import os
from functools import cache

import numpy as np
import pytest

from learning import halves, learned
from tables import PARETO, ROUTERBENCH, SWEBENCH, needs_tables, read

pytestmark = needs_tables

SHARES = (0.05, 0.1, 0.2, 0.4)
"""Budgets, of the way from always the cheapest model to always the dearest."""

MOST_GAP = 0.015

LEAST_SPENT, MOST_SPENT = 0.99, 1.005
"""Shares of a binding budget."""


def seeds(name):
    asked = os.environ.get("WISEROUTER_SEEDS")
    n, n_swebench = (4, 24) if asked is None else (int(asked), 16 * int(asked))
    return range(n_swebench if name == SWEBENCH else n)


@cache
def runs(name):
    """Return what was `Learned` at every rate, one row per seed, for the rates that bind with a dense history."""
    cost = read(name).cost_usd.mean(axis=0)
    rates = [cost.min() + share * (cost.max() - cost.min()) for share in SHARES]
    work = [halves(read(name), seed) for seed in seeds(name)]
    of_rates = {rate: np.array([learned(name, one, rate) for one in work]) for rate in rates}
    return {rate: of_seeds for rate, of_seeds in of_rates.items() if of_seeds[:, 4].mean() >= 0.9}


def show(name):
    print(f"\n{name}, {len(seeds(name))} seeds")
    print("| USD per query | learned | fitted | gap | s.e. | spend/budget | seeds in which it binds |")
    for rate, of_seeds in runs(name).items():
        gap = of_seeds[:, 1] - of_seeds[:, 0]
        quality, fitted, spend, binds, _ = (f"{mean:.4f}" for mean in of_seeds.mean(axis=0))
        error = gap.std(ddof=1) / np.sqrt(len(gap))
        print(f"| {rate:.4g} | {quality} | {fitted} | {gap.mean():+.4f} | {error:.4f} | {spend} | {binds} |")


def mean_of(of_seeds):
    """Return the mean over seeds and its standard error."""
    return of_seeds.mean(), of_seeds.std(ddof=1) / np.sqrt(len(of_seeds))


def gap_of(budgets):
    """Return the mean gap over budgets, seed by seed."""
    return np.mean([of_seeds[:, 1] - of_seeds[:, 0] for of_seeds in budgets], axis=0)


@pytest.mark.parametrize("name", [ROUTERBENCH, PARETO, SWEBENCH])
def test_learning_comes_close_to_a_dense_history(name):
    show(name)
    budgets = list(runs(name).values())
    spent = [mean_of(of_seeds[of_seeds[:, 3] > 0, 2]) for of_seeds in budgets]
    gap = gap_of(budgets)
    print("mean gap {:.4f}, s.e. {:.4f}".format(*mean_of(gap)))
    if binding := [of_seeds for of_seeds in budgets if of_seeds[:, 3].mean() >= 0.9]:
        print("where it binds by the learned plan: {:.4f}, s.e. {:.4f}".format(*mean_of(gap_of(binding))))
    print("spend/budget where it binds (s.e.): " + ", ".join(f"{mean:.4f} ({error:.4f})" for mean, error in spent))
    assert gap.mean() <= MOST_GAP
    assert len(budgets) >= 3
    for mean, error in spent:
        assert LEAST_SPENT - 2.0 * error <= mean <= MOST_SPENT + 2.0 * error
