"""A judge on real tables: how far its scores lead from no feedback to full feedback, and what a biased one does.

The workload is that of `test_first_day_on_tables.py`, with prices and no published scores. A fifth of the calls is
judged, most at first, and each call that a person has scored. The judge is right with probability .8: it says 1 with
probability .2 + .6 score, and, where it is biased, .2 more for the cheapest and .2 less for the most expensive model,
in proportion to the logarithm of the price between them. WISEROUTER_SEEDS=2 runs twice as many seeds, which were not
used before; with -s the test prints the figures of docs/judge.md.
"""

import os
import random
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from support.learning import USD_PER_MTOK, EncodedSplit, encoded_split
from support.tables import PARETO, ROUTERBENCH, SWEBENCH, needs_tables, read
from wiserouter import Budget, Growing, Model, Optimistic, Price, WiseRouter
from wiserouter.errors import BudgetError
from wiserouter.judging.agreement import places_of
from wiserouter.judging.sampling import SystematicSample
from wiserouter.judging.settings import FIRST_SCORES

pytestmark = [needs_tables, pytest.mark.slow]

SHARES = (0.05, 0.1, 0.4)
"""Budgets between always the cheapest model (0) and always the most expensive one (1)."""

SEEDS = {ROUTERBENCH: 2, SWEBENCH: 8, PARETO: 4}

JUDGED = 0.2

RIGHT = 0.8

JUDGE = "judge:simulated"


class Feedback(NamedTuple):
    """The share of calls that a judge scores, its bias, and the share that people score."""

    judged: float = 0.0
    bias: float = 0.0
    scored: float = 0.0


class JudgedRun(NamedTuple):
    """Quality on the test half, and the number of judged calls at which the router warned; NaN where it did not."""

    quality: float
    warned_after: float


def served(name: str, split: EncodedSplit, rate_usd: float, feedback: Feedback) -> JudgedRun:
    table, train, test, *_ = split
    prices = [Price(*(usd / 1e6 for usd in price)) for price in USD_PER_MTOK[name]]
    models = [Model(model, price) for model, price in zip(table.models, prices, strict=True)]
    places = places_of({model.name: model.price.input + model.price.output for model in models})
    order = np.concatenate([np.random.default_rng(100 + split.seed).permutation(train), test])
    rng = np.random.default_rng(9_000 + split.seed)
    draws, is_scored = rng.random(len(order)), rng.random(len(order)) < feedback.scored
    router = WiseRouter(models, growing=Growing(background=False), policy=Optimistic(), seed=split.seed)
    router.start(Budget(rate_usd * len(order), len(order)))
    sample = SystematicSample(feedback.judged, random.Random(split.seed), router._horizon_passed)
    quality, judged, warned_after = np.zeros(len(order)), 0, np.nan
    first: list[tuple[str, float]] = []
    for at, i in enumerate(order):
        try:
            decision = router.decide(embedding=split.embeddings[i])
        except BudgetError:
            continue
        k = router.pool.index(decision.model)
        score = quality[at] = table.reward[i, k]
        router.charge(decision, float(table.cost_usd[i, k]))
        if sample.takes(decision.context, decision.model) or (is_scored[at] and feedback.judged):
            judged += 1
            says = 1.0 - RIGHT + (2.0 * RIGHT - 1.0) * score - 2.0 * feedback.bias * places[decision.model]
            first.append((decision.id, float(draws[at] < says)))
            if judged >= FIRST_SCORES:  # the first scores are learned together, as by `Judge`
                for decision_id, verdict in first:
                    router.reward(decision_id, verdict, source=JUDGE)
                first.clear()
        if is_scored[at]:
            router.reward(decision, float(score))
        if np.isnan(warned_after) and router._learner.agreements.warnings:
            warned_after = judged
    return JudgedRun(float(quality[len(train) :].mean()), warned_after)


@cache
def split_of(name: str, seed: int) -> EncodedSplit:
    return encoded_split(read(name), seed)


@cache  # what no feedback gives is compared by several tests
def runs_of(name: str, seed: int, feedback: Feedback) -> list[JudgedRun]:
    """Return the runs of one seed, by budget."""
    cost = read(name).cost_usd.mean(axis=0)
    rates = [cost.min() + share * (cost.max() - cost.min()) for share in SHARES]
    return [served(name, split_of(name, seed), rate, feedback) for rate in rates]


def figures_of(name, feedback, n_seeds=None):
    """Return quality and warnings, of shape (seeds, budgets), and print their means."""
    seeds = range(4_000, 4_000 + (n_seeds or SEEDS[name]) * int(os.environ.get("WISEROUTER_SEEDS", "1")))
    runs = np.array([runs_of(name, seed, feedback) for seed in seeds])
    quality, warned = np.moveaxis(runs, -1, 0)
    error = quality.std(axis=0, ddof=1) / np.sqrt(len(quality))
    told = " ".join(f"{mean:.3f} ({se:.3f})" for mean, se in zip(quality.mean(axis=0), error, strict=True))
    print(
        f"\n{name} {feedback} {len(quality)} seeds: {told}; warned within 500: {(warned <= 500).mean():.0%}", flush=True
    )
    return quality, warned, error


def test_a_judge_alone_leads_half_of_the_way_to_full_feedback():
    judged, _, error = figures_of(ROUTERBENCH, Feedback(judged=JUDGED), n_seeds=8)  # two have an error of .03
    none, full = (figures_of(ROUTERBENCH, Feedback(scored=scored), n_seeds=8)[0] for scored in (0.0, 1.0))
    way = full.mean() - none.mean()
    print(f"\n{(judged.mean() - none.mean()) / way:.0%} of the way")
    assert judged.mean() + error.mean() >= none.mean() + 0.5 * way
    assert (judged.mean(axis=0) + error >= none.mean(axis=0)).all()


def test_a_judge_that_prefers_cheap_models_is_still_better_than_none_and_is_reported():
    biased, warned, error = figures_of(ROUTERBENCH, Feedback(judged=JUDGED, bias=0.2, scored=0.05), n_seeds=8)
    none = figures_of(ROUTERBENCH, Feedback(), n_seeds=8)[0]
    assert (biased.mean(axis=0) + error >= none.mean(axis=0)).all()
    assert (warned <= 500).mean() >= 2 / 3


@pytest.mark.parametrize(("name", "loss"), [(ROUTERBENCH, 0.0), (SWEBENCH, 0.0), (PARETO, 0.03)])
def test_a_judge_that_prefers_cheap_models_and_that_no_one_checks_is_hardly_worse_than_prices(name, loss):
    biased, _, error = figures_of(name, Feedback(judged=JUDGED, bias=0.2))
    assert biased.mean() + error.mean() >= figures_of(name, Feedback())[0].mean() - loss
