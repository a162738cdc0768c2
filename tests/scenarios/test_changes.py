"""Changes while a router serves: it recovers, beats a policy with frozen estimates, and never exceeds a hard budget.

Each scenario runs two seeds, starting from a price list alone. The frozen policy is the paper's WR-Online: it explores
for 4 requests per (context, model) from the same budget, then keeps its estimates of that moment. Recovery is the
number of requests after the change until the mean of the last 150 reaches 95 % of the value of the best plan in the
changed environment at the budget's rate.
"""

import numpy as np
import pytest

from support.worlds import NAMES, OUTPUT_USD, World, hard
from wiserouter import Budget, EpsilonFirst, Model, Optimistic, Price

pytestmark = pytest.mark.slow

SEEDS = (1, 2)
T = 6_000
CHANGE = 2_500
RATE_USD = 0.0018  # between all-small (.0003) and all-large (.0046)


def frozen():
    return EpsilonFirst(48, accounting="paper")


def kept(router, world):
    status = router.status()
    assert sum(world.spent) == pytest.approx(status.spent_usd)
    assert status.spent_usd <= status.amount_usd
    return float(np.mean(world.worth))


def both(seed, scenario, budget=None):
    """Return the learner's world, and the mean rewards of the learner and the frozen policy in the same scenario."""
    learner, other = World(seed), World(seed)
    fresh = budget or hard(RATE_USD * T, T)
    ours, theirs = learner.router(Optimistic(), fresh), other.router(frozen(), fresh)
    scenario(learner, ours)
    scenario(other, theirs)
    return learner, kept(ours, learner), kept(theirs, other)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_price_drops_tenfold(seed):
    def scenario(world, router):
        world.serve(router, CHANGE)
        world.price[2] /= 10
        if isinstance(router.policy, Optimistic):  # the frozen policy ignores prices
            router.update_model(Model("large", Price(0.0, world.price[2]), max_output_tokens=1_600))
        world.serve(router, T - CHANGE)

    world, ours, theirs = both(seed, scenario)
    assert world.recovery(CHANGE, 0.95 * world.best(RATE_USD)) <= 200
    assert ours > theirs
    assert np.mean([name == "large" for name in world.chosen[CHANGE + 200 :]]) > 0.6


@pytest.mark.parametrize("seed", SEEDS)
def test_a_model_degrades(seed):
    def scenario(world, router):
        world.serve(router, CHANGE)
        world.skill[:, 1] -= 0.5
        world.serve(router, T - CHANGE)

    world, ours, theirs = both(seed, scenario)
    assert world.recovery(CHANGE, 0.95 * world.best(RATE_USD)) <= 600
    assert ours > theirs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", [1, 2])
def test_a_model_breaks(seed, model):
    world = World(seed)
    router = world.router(Optimistic(), hard(RATE_USD * T, T))
    world.serve(router, CHANGE)
    world.skill[:, model] = 0.0
    world.serve(router, 1_500)
    assert world.chosen[CHANGE:].count(NAMES[model]) <= 60
    assert world.recovery(CHANGE, 0.95 * world.best(RATE_USD)) <= 400
    kept(router, world)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_better_model_joins(seed):
    def scenario(world, router):
        world.serve(router, CHANGE)
        world.skill = np.column_stack([world.skill, [0.95] * 4])
        world.price.append(OUTPUT_USD[1])
        if isinstance(router.policy, Optimistic):  # the frozen policy never tries it
            router.add_model(Model("new", Price(0.0, OUTPUT_USD[1]), max_output_tokens=1_600))
        world.serve(router, T - CHANGE)

    world, ours, theirs = both(seed, scenario)
    assert world.recovery(CHANGE, 0.95 * world.best(RATE_USD)) <= 200
    assert ours > theirs


@pytest.mark.parametrize("seed", SEEDS)
def test_traffic_doubles_in_mid_month(seed):
    # 30 days, one query per 20 minutes, then one per 10: 3,240 in total, while the fixed horizon expects 2,160
    def scenario(world, router):
        world.gap_s = 1_200.0
        world.serve(router, 1_080)
        world.gap_s = 600.0
        world.serve(router, 2_100)

    amount = RATE_USD * 2_160
    world, ours, _ = both(seed, scenario, Budget(amount, every="30d", limit="hard"))
    other = World(seed)
    theirs = other.router(frozen(), hard(amount, 2_160))
    scenario(other, theirs)
    assert "" not in world.chosen  # all are served, and the budget is used
    assert 0.9 * amount < sum(world.spent) <= amount
    assert ours > kept(theirs, other)


@pytest.mark.parametrize("seed", SEEDS)
def test_feedback_stops(seed):
    def scenario(world, router):
        world.serve(router, CHANGE)
        world.serve(router, T - CHANGE, feedback=False)

    world, ours, theirs = both(seed, scenario)
    before, after = np.mean(world.worth[CHANGE - 1_000 : CHANGE]), np.mean(world.worth[CHANGE:])
    assert after > before - 0.02
    assert ours > theirs


@pytest.mark.parametrize("seed", SEEDS)
def test_feedback_comes_a_day_late_and_shuffled(seed):
    day = 500  # requests

    def scenario(world, router):
        waiting = []
        for t in range(T):
            answered = world.ask(router)
            if answered is not None:
                waiting.append(answered)
            if t % day == day - 1:
                late, waiting = waiting[: -day or None] if t > day else [], waiting[-day:]
                for i in world.rng.permutation(len(late)):
                    router.reward(*late[i])

    world, ours, theirs = both(seed, scenario)
    assert world.recovery(0, 0.95 * world.best(RATE_USD)) <= 1_500
    assert ours > theirs
