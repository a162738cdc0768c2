"""Learning on real tables: one answer per query, and no history but a price list.

`Optimistic` starts with one context, learns on the training half and then serves the test half, all from one budget;
contexts grow with the queries. `Offline` was fitted on all answers to the training half. Quality is that on the test
half.

A budget binds in a split if a larger one would increase the expected reward, by the router's final estimates; it is a
binding budget if it binds in four of five splits. The gap is asserted over the binding budgets and all budgets, the
spend over the splits in which a binding budget binds: a router that estimates no benefit from more expensive models
does not spend the rest. The spend may miss its bounds by two standard errors, since one call of SWE-bench is up to 3 %
of a budget.

Few seeds by default; WISEROUTER_SEEDS=30 runs that many for each table, 16 times as many for SWE-bench. With -s the
test prints the figures of docs/learning.md.
"""

import os

import numpy as np
import pytest

from support.learning import Learned, encoded_split, learned
from support.tables import PARETO, ROUTERBENCH, SWEBENCH, needs_tables, read

pytestmark = [needs_tables, pytest.mark.slow]

SHARES = (0.05, 0.1, 0.2, 0.4)
"""Budgets between always the cheapest model (0) and always the most expensive one (1)."""

MOST_GAP = 0.015

LEAST_SPENT, MOST_SPENT = 0.99, 1.005
"""Bounds on the spent share of a binding budget."""

MOSTLY = 0.8
"""Least share of the splits in which a binding budget binds."""


SEEDS = {ROUTERBENCH: 10, PARETO: 6, SWEBENCH: 24}
"""A run of SWE-bench is the shortest and the least informative. RouterBench needs this many: its first four, six and
eight splits alone miss the bound (.0172, .0186, .0152), the first thirty and sixty do not."""


def seeds(name):
    asked = os.environ.get("WISEROUTER_SEEDS")
    if asked is None:
        return range(SEEDS[name])
    return range(int(asked) * (16 if name == SWEBENCH else 1))


def run_all(name):
    """Return the `Learned` figures, of shape (seeds, budgets), and the budgets in USD per query."""
    cost = read(name).cost_usd.mean(axis=0)
    rates = [cost.min() + share * (cost.max() - cost.min()) for share in SHARES]
    splits = (encoded_split(read(name), seed) for seed in seeds(name))
    figures = np.array([[learned(name, split, rate) for rate in rates] for split in splits])
    return Learned(*np.moveaxis(figures, -1, 0)), rates


def mean_of(figures):
    """Return the mean and its standard error."""
    return figures.mean(), figures.std(ddof=1) / np.sqrt(len(figures))


def mean_with_error(figures):
    return "{:.4f} ({:.4f})".format(*mean_of(figures)) if len(figures) > 1 else "-"


@pytest.mark.parametrize("name", [ROUTERBENCH, PARETO, SWEBENCH])
def test_learning_comes_close_to_a_dense_history(name):
    of, rates = run_all(name)
    gap, binds = of.fitted_quality - of.quality, of.binds > 0
    binding = binds.mean(axis=0) >= MOSTLY
    print(f"\n{name}, {len(gap)} seeds; standard errors in brackets")
    print("| USD per query | learned | fitted | gap | spend | binds in | spend there | gap there |")
    for i, rate in enumerate(rates):
        learned_quality, fitted_quality = of.quality[:, i].mean(), of.fitted_quality[:, i].mean()
        print(f"| {rate:.4g} | {learned_quality:.4f} | {fitted_quality:.4f} | {mean_with_error(gap[:, i])} ", end="")
        print(f"| {mean_with_error(of.spend_ratio[:, i])} | {binds[:, i].mean():.0%} ", end="")
        print(f"| {mean_with_error(of.spend_ratio[binds[:, i], i])} | {mean_with_error(gap[binds[:, i], i])} |")
    print(f"mean gap: {mean_with_error(gap.mean(axis=1))}; over the {binding.sum()} binding budgets ", end="")
    print(f"{mean_with_error(gap[:, binding].mean(axis=1))}, in the splits in which one binds {gap[binds].mean():.4f}")
    assert binding.any()
    assert gap.mean() <= MOST_GAP
    assert gap[:, binding].mean() <= MOST_GAP
    for i in np.flatnonzero(binding):
        spent, error = mean_of(of.spend_ratio[binds[:, i], i])
        assert LEAST_SPENT - 2.0 * error <= spent <= MOST_SPENT + 2.0 * error
