"""Learning on real tables: one model seen per query, no history but a price list.

`Optimistic` learns on the training half and goes on to serve the test half, all out of one budget; `Offline` was
fitted on every model's answer to the training half. Quality is that on the test half.

A budget binds in a seed where the learned plan has a shadow price above 0 at the end: by its own estimates, more money
would buy something. The gap is that of the budgets that bind in nine of ten seeds; what is spent of one is counted in
the seeds in which it binds.

Four seeds a table, eight for SWE-bench; WISEROUTER_SEEDS=10 runs so many, twice as many for SWE-bench. With -s the
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

LEAST_SPENT = {ROUTERBENCH: 0.99, PARETO: 0.99, SWEBENCH: 0.985}
"""Share of a binding budget; less where requests are few and dear, as `Offline` spends .991 of these on SWE-bench."""


def seeds(name):
    asked = os.environ.get("WISEROUTER_SEEDS")
    few, many = (4, 8) if asked is None else (int(asked), 2 * int(asked))
    return range(many if name == SWEBENCH else few)


@cache
def runs(name):
    """Return what was `Learned` at every rate, one row per seed."""
    cost = read(name).cost_usd.mean(axis=0)
    rates = [cost.min() + share * (cost.max() - cost.min()) for share in SHARES]
    work = [halves(read(name), seed) for seed in seeds(name)]
    return {rate: np.array([learned(name, one, rate) for one in work]) for rate in rates}


def show(name):
    print(f"\n{name}, {len(seeds(name))} seeds")
    print("| USD per query | learned | fitted | gap | s.e. | spend/budget | seeds in which it binds |")
    for rate, of_seeds in runs(name).items():
        gap = of_seeds[:, 1] - of_seeds[:, 0]
        quality, fitted, spend, binds = (f"{mean:.4f}" for mean in of_seeds.mean(axis=0))
        error = gap.std(ddof=1) / np.sqrt(len(gap))
        print(f"| {rate:.4g} | {quality} | {fitted} | {gap.mean():+.4f} | {error:.4f} | {spend} | {binds} |")


@pytest.mark.parametrize("name", [ROUTERBENCH, PARETO, SWEBENCH])
def test_learning_comes_close_to_a_dense_history(name):
    show(name)
    binding = [of_seeds for of_seeds in runs(name).values() if of_seeds[:, 3].mean() >= 0.9]
    gap = np.mean([of_seeds[:, 1] - of_seeds[:, 0] for of_seeds in binding], axis=0)
    spent = [of_seeds[of_seeds[:, 3] > 0, 2].mean() for of_seeds in binding]
    print(f"where it binds: mean gap {gap.mean():.4f}, s.e. {gap.std(ddof=1) / np.sqrt(len(gap)):.4f}")
    print("spend/budget where it binds: " + ", ".join(f"{ratio:.4f}" for ratio in spent))
    assert gap.mean() <= MOST_GAP
    for ratio in spent:
        assert LEAST_SPENT[name] <= ratio <= 1.005
