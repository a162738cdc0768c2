"""Shadow mode on dense tables: the interval of the reported gain contains the truth in at least 90 % of the replays.

Each replay routes a sample of a table through `observe`, with scores for a share of the calls, and reads the journal
back as `wiserouter shadow report` does. `WISEROUTER_REPLAYS=100 pytest tests/scenarios/test_shadow.py -n0 -s -m slow`
prints the coverage and the mean width of the intervals; by default there are 100 replays of one road, and 10 of others.
The last test judges a sample of the would-be answers where nothing is acted on.
"""

import asyncio
import os
from functools import cache

import numpy as np
import pytest

from support.tables import ROUTERBENCH, needs_tables, read
from support.worlds import OUTPUT_USD, SKILL, TOKENS
from wiserouter import Budget, Contexts, Estimates, Model, Optimistic, Shadow, WiseRouter
from wiserouter.evaluation.off_policy.judged_gain import judged_gain
from wiserouter.evaluation.off_policy.observed_calls import observed_calls
from wiserouter.evaluation.off_policy.shadow_calls import read_shadow_calls
from wiserouter.evaluation.off_policy.shadow_gain import gain
from wiserouter.evaluation.off_policy.shadow_judging import CallTexts, ShadowJudging, judge_calls, plan_judging
from wiserouter.evaluation.off_policy.would_be_verdicts import VerdictFile
from wiserouter.routing.journal_reader import JournalReader

pytestmark = pytest.mark.slow

REPLAYS = int(os.environ.get("WISEROUTER_REPLAYS", "0"))
MOST, FEW = 100, 10


class World:
    """A dense table with the contexts of its queries, and the models that run without a router."""

    def __init__(self, context, reward, cost_usd, pool):
        self.context, self.reward, self.cost_usd, self.pool = context, reward, cost_usd, pool
        self.freq = np.bincount(context) / len(context)
        self.names = [f"m{k}" for k in range(reward.shape[1])]

    def router(self, shadow, n, seed):
        contexts = Contexts(np.eye(len(self.freq), dtype=np.float32), self.freq)
        estimates = Estimates(len(self.freq), len(self.names))
        known = np.random.default_rng(seed).integers(len(self.context), size=60)
        estimates.add_table(self.context[known], self.reward[known], self.cost_usd[known])
        router = WiseRouter(
            [Model(name) for name in self.names], contexts, estimates=estimates, policy=Optimistic(), seed=seed
        )
        router.shadow = shadow
        rate = self.cost_usd.mean(axis=0)
        router.start(Budget(n * float(rate.min() + 0.3 * (rate.max() - rate.min())), n))
        return router


@cache
def synthetic():
    rng = np.random.default_rng(5)
    context = rng.choice(4, size=4_000, p=[0.4, 0.3, 0.2, 0.1])
    length = TOKENS[context] * np.exp(rng.normal(-0.08, 0.4, 4_000))
    reward = (rng.random((4_000, 3)) < SKILL[context]).astype(float)
    return World(context, reward, length[:, np.newaxis] * np.array(OUTPUT_USD), pool=[1, 2])


@cache
def routerbench():
    table = read(ROUTERBENCH)
    length = np.array([len(prompt) for prompt in table.prompts])
    context = np.searchsorted(np.quantile(length, [0.25, 0.5, 0.75]), length)
    by_cost = np.argsort(table.cost_usd.mean(axis=0))
    kept = by_cost[[0, 3, 6, len(by_cost) - 1]]
    return World(context, table.reward[:, kept], table.cost_usd[:, kept], pool=[1, 3])


def replay(world, path, seed, *, share, pool, named, n=1_500, scored=0.5):
    """Write a journal, and return the row of each decision, and the true gain in rewards and in USD."""
    rng = np.random.default_rng([seed, 1])
    router = world.router(Shadow(share, salt=str(seed)), n, seed)
    journal = router.journal_to(path)
    rows, incumbents = rng.integers(len(world.context), size=n), rng.choice(pool, size=n)
    mixes, row_of = np.empty((n, len(world.names))), {}
    for i, (row, k) in enumerate(zip(rows, incumbents, strict=True)):
        name = world.names[k]
        given = {"incumbent": name} if named else {}
        decision = router.observe(context=int(world.context[row]), draw_key=f"call {i}", **given)
        row_of[decision.id] = int(row)
        ran = world.names.index(decision.model) if named or not decision.would_be else k
        mix = dict(router._store.find(decision.id).trace.choice.mix)
        mixes[i] = [mix.get(one, 0.0) for one in range(len(world.names))]
        router.charge(decision, cost_usd=float(world.cost_usd[row, ran]), model=world.names[ran])
        if rng.random() < scored:
            router.reward(decision, float(world.reward[row, ran]))
    assert journal.flush(30.0)
    journal.close()
    before = (
        np.eye(len(world.names))[incumbents]
        if named
        else np.tile(np.bincount(pool, minlength=len(world.names)) / len(pool), (n, 1))
    )
    truth = [float(((mixes - before) * table[rows]).sum(axis=1).mean()) for table in (world.reward, world.cost_usd)]
    return row_of, *truth


def judged_by(world, path, row_of, seed, *, right, most=200):
    """Return what a judge shows that is right with a probability on each pair that differs, and ties on the others."""
    rng, column = np.random.default_rng([seed, 2]), {name: k for k, name in enumerate(world.names)}

    def judge(prompt, *answers):
        first, second = (world.reward[int(prompt), column[name]] for name in answers)
        better = first > second if rng.random() < right else first < second
        return 0.5 if first == second else float(better)

    def answers(model, prompt):
        return model, float(world.cost_usd[int(prompt), column[model]])

    calls, book = observed_calls(JournalReader(path)), VerdictFile(None)
    texts = {call.id: CallTexts(str(row_of[call.id]), call.ran) for call in calls}
    judging = ShadowJudging(answers, judge, float(most), 1.0, 0.0, concurrency=1, seed=seed)
    plan = plan_judging(judging, calls, texts, book)
    asyncio.run(judge_calls(judging, plan.calls, texts, unpaid, book))
    return judged_gain([(call, book.verdicts[call.id]) for call in plan.calls], plan.differing, plan.observed)


async def unpaid(cost_usd, *, billed=False):
    """Pay nothing: the plan bounds the cost."""


ROADS = {
    "ten percent acted on, one incumbent": {"share": 0.1, "named": True, "one": True},
    "a fifth acted on, one incumbent": {"share": 0.2, "named": True, "one": True},
    "nothing acted on, a load balancer": {"share": 0.0, "named": False, "one": False},
    "nothing acted on, one incumbent": {"share": 0.0, "named": True, "one": True},
}


def check(world, tmp_path, road, replays):
    terms = ROADS[road]
    pool = world.pool[:1] if terms["one"] else world.pool
    held, widths, shown, errors = [], [], [], []
    for seed in range(REPLAYS or replays):
        path = tmp_path / f"{seed}.jsonl"
        _, true_reward, true_cost = replay(world, path, seed, share=terms["share"], pool=pool, named=terms["named"])
        calls = read_shadow_calls(JournalReader(path))
        reward, cost = gain(calls, "reward"), gain(calls, "cost_usd")
        path.unlink()
        held.append(
            (reward.total.low <= true_reward <= reward.total.high, cost.total.low <= true_cost <= cost.total.high)
        )
        widths.append(reward.total.high - reward.total.low)
        shown.append(reward.share)
        errors.append((reward.total.mean - true_reward, (cost.total.mean - true_cost) / abs(true_cost)))
    covered, off = np.mean(held, axis=0), np.mean(errors, axis=0)
    print(
        f"\n{road}: reward {covered[0]:.2f}, USD {covered[1]:.2f}, width {np.mean(widths):.3f}, "
        f"shown {np.mean(shown):.2f}, off by {off[0]:+.4f} and {off[1]:+.1%}"
    )
    least = 0.9 - (0.0 if len(held) >= MOST else 2 * (0.9 * 0.1 / len(held)) ** 0.5)
    assert covered[0] >= least
    if terms["share"]:  # without, the costs of models that never ran are estimates without an interval
        assert covered[1] >= least


@pytest.mark.parametrize("road", ROADS)
def test_the_reported_gain_covers_the_truth_of_a_synthetic_table(tmp_path, road):
    check(synthetic(), tmp_path, road, MOST if road.startswith("a fifth") else FEW)


@needs_tables
@pytest.mark.parametrize("road", ROADS)
def test_the_reported_gain_covers_the_truth_of_routerbench(tmp_path, road):
    check(routerbench(), tmp_path, road, FEW)


@pytest.mark.parametrize("table", [synthetic, pytest.param(routerbench, marks=needs_tables)])
def test_two_hundred_judged_answers_cover_the_truth_where_nothing_is_acted_on(tmp_path, table):
    world, held, widths, seen, n = table(), [], [], [], REPLAYS or FEW
    for seed in range(n):
        path = tmp_path / f"{seed}.jsonl"
        row_of, true_reward, true_cost = replay(
            world, path, seed, share=0.0, pool=world.pool[:1], named=True, scored=0.0
        )
        exact, erring = (judged_by(world, path, row_of, seed, right=right) for right in (1.0, 0.8))
        path.unlink()
        held.append(
            (
                exact.reward.low <= true_reward <= exact.reward.high,
                exact.cost_usd.low <= true_cost <= exact.cost_usd.high,
            )
        )
        widths.append(exact.reward.high - exact.reward.low)
        seen.append((true_reward, exact.reward.mean, erring.reward.mean))
    covered, means = np.mean(held, axis=0), np.mean(seen, axis=0)
    print(
        f"\n{table.__name__}: reward {covered[0]:.2f}, USD {covered[1]:.2f}, width {np.mean(widths):.3f}, "
        f"true {means[0]:+.4f}, judged {means[1]:+.4f}, by a judge right on 80 % {means[2]:+.4f}"
    )
    assert (covered >= 0.9 - 2 * (0.9 * 0.1 / n) ** 0.5).all()
