"""Learning on real tables: one model seen per query, no history but a price list.

`Optimistic` starts with one context, learns on the training half and goes on to serve the test half, all out of one
budget; contexts grow with the queries. `Offline` was fitted on all answers to the training half. Quality is that on
the test half.

A budget binds in a split where more money would buy something, by what the router has learned at its end; it is a
binding budget if it does in nine of ten splits. The gap is asserted over the binding budgets and over all, what is
spent over the splits in which a binding budget binds: a router that believes that no dearer model is worth it has
nothing to spend the rest on. What is spent may miss its bounds by two standard errors, since one call of SWE-bench is
up to 3 % of a budget.

Few seeds by default; WISEROUTER_SEEDS=30 runs so many of each table, 16 times as many of SWE-bench. With -s the
figures are printed: those in docs/learning.md.
"""

import os

import numpy as np
import pytest

from support.learning import Learned, learned, split
from support.tables import PARETO, ROUTERBENCH, SWEBENCH, needs_tables, read

pytestmark = needs_tables

SHARES = (0.05, 0.1, 0.2, 0.4)
"""Budgets, of the way from always the cheapest model to always the dearest."""

MOST_GAP = 0.015

LEAST_SPENT, MOST_SPENT = 0.99, 1.005
"""Shares of a binding budget."""

MOSTLY = 0.9
"""Share of the splits that a binding budget binds in at least."""


SEEDS = {ROUTERBENCH: 10, PARETO: 6, SWEBENCH: 24}
"""One run of SWE-bench is the shortest, and says the least. RouterBench has as many as it takes: its first four, six
and eight splits miss the bound by themselves (.0172, .0186, .0152), the first thirty and sixty do not."""


def seeds(name):
    asked = os.environ.get("WISEROUTER_SEEDS")
    if asked is None:
        return range(SEEDS[name])
    return range(int(asked) * (16 if name == SWEBENCH else 1))


def runs(name):
    """Return what was `Learned`, of shape (seeds, budgets), and the budgets in USD per query."""
    cost = read(name).cost_usd.mean(axis=0)
    rates = [cost.min() + share * (cost.max() - cost.min()) for share in SHARES]
    splits = (split(read(name), seed) for seed in seeds(name))
    figures = np.array([[learned(name, work, rate) for rate in rates] for work in splits])
    return Learned(*np.moveaxis(figures, -1, 0)), rates


def mean_of(figures):
    """Return the mean and its standard error."""
    return figures.mean(), figures.std(ddof=1) / np.sqrt(len(figures))


def told(figures):
    return "{:.4f} ({:.4f})".format(*mean_of(figures)) if len(figures) > 1 else "-"


@pytest.mark.parametrize("name", [ROUTERBENCH, PARETO, SWEBENCH])
def test_learning_comes_close_to_a_dense_history(name):
    of, rates = runs(name)
    gap, binds = of.fitted_quality - of.quality, of.binds > 0
    binding = binds.mean(axis=0) >= MOSTLY
    print(f"\n{name}, {len(gap)} seeds; standard errors in brackets")
    print("| USD per query | learned | fitted | gap | spend | binds in | spend there | gap there |")
    for i, rate in enumerate(rates):
        learned_quality, fitted_quality = of.quality[:, i].mean(), of.fitted_quality[:, i].mean()
        print(f"| {rate:.4g} | {learned_quality:.4f} | {fitted_quality:.4f} | {told(gap[:, i])} ", end="")
        print(f"| {told(of.spend_ratio[:, i])} | {binds[:, i].mean():.0%} ", end="")
        print(f"| {told(of.spend_ratio[binds[:, i], i])} | {told(gap[binds[:, i], i])} |")
    print(f"mean gap: {told(gap.mean(axis=1))}; over the {binding.sum()} binding budgets ", end="")
    print(f"{told(gap[:, binding].mean(axis=1))}, in the splits in which one binds {gap[binds].mean():.4f}")
    assert binding.sum() >= 2
    assert gap.mean() <= MOST_GAP
    assert gap[:, binding].mean() <= MOST_GAP
    for i in np.flatnonzero(binding):
        spent, error = mean_of(of.spend_ratio[binds[:, i], i])
        assert LEAST_SPENT - 2.0 * error <= spent <= MOST_SPENT + 2.0 * error
