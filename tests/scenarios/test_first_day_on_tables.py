"""The first day on real tables: no log, few or no scores, and prices with or without published scores as the prior.

The workload is that of `test_learning_on_tables.py`: the training half, then the test half, out of one budget, from one
context that grows; quality is that on the test half. Here only a share of the calls is ever scored. The seeds were not
used while the policy was made. WISEROUTER_SEEDS=2 runs twice as many; with -s the test prints the figures of
docs/first-day.md.

A budget binds in a split if a larger one would increase the expected reward, by the router's final estimates.
"""

import os
from typing import NamedTuple

import numpy as np
import pytest

from support.learning import USD_PER_MTOK, EncodedSplit, encoded_split
from support.published_scores import prior_qualities
from support.tables import PARETO, ROUTERBENCH, SWEBENCH, needs_tables, read
from wiserouter import Budget, Growing, Model, Optimistic, Price, WiseRouter
from wiserouter.errors import BudgetError

pytestmark = [needs_tables, pytest.mark.slow]

SHARES = (0.05, 0.1, 0.4)
"""Budgets between always the cheapest model (0) and always the most expensive one (1)."""

SEEDS = {ROUTERBENCH: 3, PARETO: 3, SWEBENCH: 12}

WITH_PRIOR = {ROUTERBENCH: (0.66, 0.70, 0.82), PARETO: (0.92, 0.92, 0.92), SWEBENCH: (0.59, 0.61, 0.65)}
"""Least quality without a single score, with published scores as the prior."""

LEAST_SPENT = {ROUTERBENCH: 0.98, PARETO: 0.98, SWEBENCH: 0.85}

ALWAYS_CHEAPEST = {ROUTERBENCH: 0.594, PARETO: 0.792, SWEBENCH: 0.544}
"""Quality of the cheapest calls, as measured before. On SWE-bench GPT-5 mini, cheapest by its bills, scores .598."""


class FirstDay(NamedTuple):
    """Quality on the test half, spend over budget, and whether the budget binds; arrays of shape (seeds, budgets)."""

    quality: np.ndarray
    spend_ratio: np.ndarray
    binds: np.ndarray


def seeds(name):
    return range(3_000, 3_000 + SEEDS[name] * int(os.environ.get("WISEROUTER_SEEDS", "1")))


def served(name: str, split: EncodedSplit, rate_usd: float, scored: float, prior: dict[str, float]):
    table, train, test, *_ = split
    prices = [Price(*(usd / 1e6 for usd in price)) for price in USD_PER_MTOK[name]]
    models = [Model(model, price, score=prior.get(model)) for model, price in zip(table.models, prices, strict=True)]
    order = np.concatenate([np.random.default_rng(100 + split.seed).permutation(train), test])
    is_scored = np.random.default_rng(7_000 + split.seed).random(len(order)) < scored
    router = WiseRouter(models, growing=Growing(background=False), policy=Optimistic(), seed=split.seed)
    router.start(Budget(rate_usd * len(order), len(order)))
    quality = np.zeros(len(order))
    for at, i in enumerate(order):
        try:
            decision = router.decide(embedding=split.embeddings[i])
        except BudgetError:
            continue
        k = router.pool.index(decision.model)
        router.charge(decision, float(table.cost_usd[i, k]))
        if is_scored[at]:
            router.reward(decision, float(table.reward[i, k]))
        quality[at] = table.reward[i, k]
    status, plan = router.status(), router.plan
    binds = plan.shadow_price(max(rate_usd, plan.floor_usd)) > 0
    return quality[len(train) :].mean(), status.spent_usd / status.amount_usd, float(binds)


def first_day(name, scored, prior):
    cost = read(name).cost_usd.mean(axis=0)
    rates = [cost.min() + share * (cost.max() - cost.min()) for share in SHARES]
    splits = (encoded_split(read(name), seed) for seed in seeds(name))
    figures = np.array([[served(name, split, rate, scored, prior) for rate in rates] for split in splits])
    of = FirstDay(*np.moveaxis(figures, -1, 0))
    print(f"\n{name}, {scored:.0%} scored, {'published scores' if prior else 'prices alone'}, {len(figures)} seeds")
    error = of.quality.std(axis=0, ddof=1) / np.sqrt(len(figures))
    for i, share in enumerate(SHARES):
        print(f"| {share:.0%} | {of.quality[:, i].mean():.3f} ({error[i]:.3f}) ", end="")
        print(f"| {of.spend_ratio[:, i].mean():.3f} | {of.binds[:, i].mean():.0%} |")
    return of, error


@pytest.mark.parametrize("name", [ROUTERBENCH, PARETO, SWEBENCH])
def test_without_a_single_score_published_scores_decide(name):
    of, error = first_day(name, 0.0, prior_qualities(name))
    assert (of.quality.mean(axis=0) + error >= WITH_PRIOR[name]).all()
    for i in np.flatnonzero(of.binds.mean(axis=0) >= 0.9):
        assert LEAST_SPENT[name] <= of.spend_ratio[:, i].mean() <= 1.005


@pytest.mark.parametrize("name", [ROUTERBENCH, PARETO, SWEBENCH])
def test_without_a_single_score_prices_alone_beat_the_cheapest_and_spend_the_budget(name):
    of, _ = first_day(name, 0.0, {})
    assert (of.quality.mean(axis=0) >= ALWAYS_CHEAPEST[name]).all()
    assert (of.spend_ratio.mean(axis=0) >= 0.9).all()


@pytest.mark.parametrize("scored", [0.02, 0.05])
@pytest.mark.parametrize("name", [PARETO, SWEBENCH])
def test_few_scores_never_make_it_worse_than_the_cheapest(name, scored):
    of, error = first_day(name, scored, {})
    assert (of.quality.mean(axis=0) + error >= ALWAYS_CHEAPEST[name] - 0.01).all()
