"""Coverage of the 95 % intervals of off-policy estimates in dense tables: 200 logs each, reward and cost.

With 200 logs the coverage has a standard error of .017. The intervals of one outcome and estimator must contain the
truth in 90 % of all logs and targets, and those of one target in 90 % minus two standard errors.
`WISEROUTER_LOGS=1000 pytest tests/scenarios/test_off_policy_coverage.py -s` prints the figures of docs/off_policy.md.
"""

import os
from collections import defaultdict

import numpy as np
import pytest

from support.tables import PARETO, ROUTERBENCH, SWEBENCH, needs_tables, read
from support.worlds import OUTPUT_USD, SKILL, TOKENS
from wiserouter import Plan
from wiserouter.evaluation.errors import ThinOverlap
from wiserouter.evaluation.off_policy import Decisions, always, evaluate

pytestmark = pytest.mark.slow

LOGS = int(os.environ.get("WISEROUTER_LOGS", "200"))
NOISE = 2 * (0.9 * 0.1 / LOGS) ** 0.5
ESTIMATORS = ("ips", "snips", "dr")


class DenseTable:
    """A dense table: every model's score and cost on every query, with the queries' contexts."""

    def __init__(self, context, reward, cost_usd):
        self.context, self.reward, self.cost_usd = context, reward, cost_usd
        self.freq = np.bincount(context) / len(context)
        means = [np.array([table[context == j].mean(axis=0) for j in range(len(self.freq))]) for table in self.tables]
        self.plan = Plan(self.freq, *means)
        self.names = tuple(f"m{k}" for k in range(reward.shape[1]))

    @property
    def tables(self):
        return self.reward, self.cost_usd

    def rate(self, share):
        low, high = self.plan.floor_usd, self.plan.ceiling_usd
        return low + share * (high - low)

    def truth(self, mix):
        return [float((mix[self.context] * table).sum(axis=1).mean()) for table in self.tables]

    def log(self, n, draw, rng, label=1.0):
        """Return a log of `n` queries; `draw` returns the chosen models and the probabilities."""
        at = rng.integers(len(self.context), size=n)
        chosen, chances = draw(self.context[at], self.reward[at], rng)
        reward = np.where(rng.random(n) < label, self.reward[at, chosen], np.nan)
        known = {"cost_usd": self.cost_usd[at, chosen], "reward": reward}
        return Decisions.of_arrays(self.names, chosen, chances, context=self.context[at], freq=self.freq, **known)


def following(mix):
    """Return a draw from a mix per context."""

    def draw(context, _reward, rng):
        chances = mix[context]
        cut = chances.cumsum(axis=1)[:, :-1]
        return (rng.random((len(context), 1)) > cut).sum(axis=1), chances

    return draw


def greedy(explore):
    """Return a draw of the best model so far in the context, with a share drawn uniformly."""

    def draw(context, reward, rng):
        n_models = reward.shape[1]
        gained, tried = np.zeros((2, context.max() + 1, n_models))
        chosen, chances = np.empty(len(context), dtype=np.int64), np.empty(reward.shape)
        for these in np.array_split(np.arange(len(context)), len(context) // 25):  # learns after every 25 queries
            best = np.eye(n_models)[(gained / np.maximum(tried, 1.0)).argmax(axis=1)]
            mix = (1.0 - explore) * best + explore / n_models
            chosen[these], chances[these] = following(mix)(context[these], reward[these], rng)
            np.add.at(gained, (context[these], chosen[these]), reward[these, chosen[these]])
            np.add.at(tried, (context[these], chosen[these]), 1.0)
        return chosen, chances

    return draw


def synthetic():
    rng = np.random.default_rng(5)
    context = rng.choice(4, size=4_000, p=[0.4, 0.3, 0.2, 0.1])
    length = TOKENS[context] * np.exp(rng.normal(-0.08, 0.4, 4_000))
    reward = (rng.random((4_000, 3)) < SKILL[context]).astype(float)
    return DenseTable(context, reward, length[:, np.newaxis] * np.array(OUTPUT_USD))


def of_table(name):
    """Return a public table; its contexts are the quartiles of the queries by length."""
    table = read(name)
    length = np.array([len(prompt) for prompt in table.prompts])
    return DenseTable(np.searchsorted(np.quantile(length, [0.25, 0.5, 0.75]), length), table.reward, table.cost_usd)


def coverage(world, targets, n, draw, label=1.0):
    """Return the coverage and the effective decisions of each estimate in all logs, and the number of refused logs."""
    rng, held, refused = np.random.default_rng(0), defaultdict(list), 0
    truths = {name: world.truth(mix) for name, mix in targets.items()}
    for _ in range(LOGS):
        log = world.log(n, draw, rng, label)
        for name, mix in targets.items():
            target = np.column_stack([mix[log.context], np.zeros(n)])
            for outcome, truth in zip(("reward", "cost_usd"), truths[name], strict=True):
                try:
                    evaluation = evaluate(log, target, outcome)
                except ThinOverlap:
                    refused += 1
                    continue
                for estimator in ESTIMATORS:
                    one = getattr(evaluation, estimator)
                    held[name, outcome, estimator].append((one.low <= truth <= one.high, evaluation.overlap.effective))
    return held, refused


def check(world, targets, n, draw, label=1.0):
    held, refused = coverage(world, targets, n, draw, label)
    print()
    for name in targets:
        for outcome in ("reward", "cost_usd"):
            shares = [np.mean([hit for hit, _ in held[name, outcome, each]]) for each in ESTIMATORS]
            worth = np.mean([effective for _, effective in held[name, outcome, "ips"]])
            print(f"{name:>22} {outcome:>8}", *(f"{share:.3f}" for share in shares), f"worth {worth:,.0f} of {n:,}")
    assert refused == 0
    assert {len(each) for each in held.values()} == {LOGS}
    for (_, outcome, each), hits in held.items():
        everywhere = [hit for name in targets for hit, _ in held[name, outcome, each]]
        assert np.mean(everywhere) >= 0.9, (outcome, each)
        assert np.mean([hit for hit, _ in hits]) >= 0.9 - NOISE, (outcome, each)


def varied(plan, rate_usd, share):
    return (1 - share) * plan.mix(rate_usd) + share / plan.n_models


def targets_of(world, *shares):
    return {f"rate at {share:.0%}": world.plan.mix(world.rate(share)) for share in shares}


def without_its_most_used(world, share):
    """Return the plan at a rate without its most used model."""
    plan, rate = world.plan, world.rate(share)
    most = int((world.freq @ plan.mix(rate)).argmax())
    less = Plan(plan.freq, np.delete(plan.reward, most, axis=1), np.delete(plan.cost_usd, most, axis=1))
    return np.insert(less.mix(max(rate, less.floor_usd)), most, 0.0, axis=1)


def test_intervals_cover_the_truth_of_a_synthetic_table():
    world = synthetic()
    targets = {**targets_of(world, 0.6), "another pool": without_its_most_used(world, 0.3)}
    check(world, targets, 1_500, following(varied(world.plan, world.rate(0.3), 0.3)))


def test_intervals_cover_the_truth_if_few_are_scored():
    world = synthetic()
    check(world, targets_of(world, 0.1), 4_000, following(varied(world.plan, world.rate(0.3), 0.3)), label=0.5)


def test_intervals_cover_the_truth_if_probabilities_depend_on_the_past():
    world = synthetic()
    alone = np.zeros((4, 3))
    alone[:, 1] = 1.0
    check(world, {"middle alone": alone}, 1_500, greedy(0.3))


@needs_tables
@pytest.mark.parametrize("name", [PARETO, ROUTERBENCH, SWEBENCH])
def test_intervals_cover_the_truth_of_public_tables(name):
    world = of_table(name)
    targets = {**targets_of(world, 0.1), "another pool": without_its_most_used(world, 0.2)}
    check(world, targets, 3_000, following(varied(world.plan, world.rate(0.2), 0.5)))


def test_a_plan_alone_is_refused_each_time():
    world = synthetic()
    held, refused = coverage(world, targets_of(world, 0.9), 1_500, following(world.plan.mix(world.rate(0.1))))
    assert (len(held), refused) == (0, 2 * LOGS)


def test_naive_means_of_what_was_drawn_mislead():
    """The mean cost of a model's own calls differs from its mean cost on all queries."""
    world = synthetic()
    log = world.log(4_000, following(varied(world.plan, world.rate(0.2), 0.3)), np.random.default_rng(0))
    naive = float(log.cost_usd[log.chosen == 0].mean())
    estimate, truth = evaluate(log, always(log, "m0"), "cost_usd"), float(world.cost_usd[:, 0].mean())
    assert abs(estimate.dr.mean - truth) < 3 * estimate.dr.se < abs(naive - truth)
