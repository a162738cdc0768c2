"""Draws by a key: equal keys agree, the models are drawn as often as planned, and the probabilities stay right."""

import asyncio
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from wiserouter import (
    Budget,
    Contexts,
    EpsilonFirst,
    Estimates,
    ExploreShare,
    MemoryStore,
    Model,
    Offline,
    Optimistic,
    WiseRouter,
)
from wiserouter.artifacts.parts import RouterParts
from wiserouter.budgets import open_account
from wiserouter.errors import InvalidInput
from wiserouter.prompts.query import Query
from wiserouter.routing.decider import Decider
from wiserouter.routing.keyed_draws import KeyedDraws
from wiserouter.routing.learner import Learner

N = 20_000
REWARD, COST_USD = [[0.2, 0.3, 0.9]], [[1.0, 2.0, 4.0]]
NAMES = ("small", "middle", "large")
LARGE = 0.3
RATE_USD = 1.0 + 3.0 * LARGE
SURE = 1e-4
"""The level of the tests: seeds are fixed, so each is passed or failed for good."""


def decider(policy=None, *, explore=None, seed=0, known=True):
    estimates = Estimates(1, 3)
    if known:
        estimates.add_table(np.zeros(1, dtype=np.int64), REWARD, COST_USD)
    models = tuple(Model(name) for name in NAMES)
    parts = RouterParts(models, Contexts.single(), None, policy or Offline(accounting="paper"), estimates)
    learner = Learner(parts, lambda: 0.0)
    return Decider(learner, np.random.default_rng(seed), lambda: 0.0, explore=explore, keyed=KeyedDraws(seed))


def snapshot(now_s=0.0, **terms):
    return open_account(Budget(RATE_USD * 1_000, 1_000, **terms), now_s).snapshot()


def drawn(one, key, budget=None, **options):
    return one.decide(Query(0, None), budget or snapshot(), draw_key=key, **options).decision


def models(one, keys, budget=None, **options):
    budget = budget or snapshot()
    return [drawn(one, key, budget, **options).model for key in keys]


def test_the_numbers_of_keys_are_uniform_and_independent():
    draws = KeyedDraws(0)
    keys = [f"key {i}" for i in range(N)]
    both = [(draws.generator(key, "default", 0.0).random(2), draws.exploring().random()) for key in keys]
    numbers, explored = np.array([plan for plan, _ in both]), np.array([number for _, number in both])
    for column in (*numbers.T, explored):
        assert stats.kstest(column, "uniform").pvalue > SURE
        assert ((column >= 0) & (column < 1)).all()
    for first, second in ((numbers[:, 0], numbers[:, 1]), (numbers[:, 0], explored), (numbers[1:, 0], numbers[:-1, 0])):
        assert stats.pearsonr(first, second).pvalue > SURE


@pytest.mark.parametrize(
    "other",
    [("key", "team", 0.0, 0), ("key", "default", 3_600.0, 0), ("key", "default", 0.0, 1), ("kez", "default", 0.0, 0)],
)
def test_scope_epoch_seed_and_key_tell_draws_apart(other):
    *named, seed = other
    assert KeyedDraws(0).generator("key", "default", 0.0).random() != KeyedDraws(seed).generator(*named).random()


def test_a_scope_and_a_key_are_not_confused():
    draws = KeyedDraws(0)
    assert draws.generator("bc", "a", 0.0).random() != draws.generator("c", "ab", 0.0).random()


def test_the_numbers_of_a_key_stay_the_same_from_version_to_version():
    draws = KeyedDraws(7)
    asked = [("a", "default", 0.0), ("b", "team", 86_400.0), ("a", "default", 0.0)]
    drawn = [draws.generator(*key).random() for key in asked]
    assert drawn == [0.8549273838790197, 0.22572628986482557, 0.8549273838790197]


def test_workers_without_a_seed_agree():
    assert KeyedDraws(None).generator("a", "b", 0.0).random() == KeyedDraws(0).generator("a", "b", 0.0).random()


def test_over_many_keys_models_are_drawn_as_planned():
    one, budget = decider(), snapshot()
    decisions = [drawn(one, f"conversation {i}", budget) for i in range(N)]
    counts = Counter(decision.model for decision in decisions)
    expected = {"large": LARGE * N, "small": (1 - LARGE) * N}
    assert counts.keys() == expected.keys()
    assert stats.chisquare([counts[k] for k in expected], [*expected.values()]).pvalue > SURE
    chance = {"large": LARGE, "small": 1 - LARGE}
    assert all(decision.probability == pytest.approx(chance[decision.model]) for decision in decisions)


def test_equal_keys_agree_within_an_epoch_and_across_workers():
    keys = [f"conversation {i}" for i in range(200)]
    one, another = decider(), decider()
    first = models(one, keys)
    assert models(one, reversed(keys)) == first[::-1]
    assert models(another, keys) == first
    assert len(set(first)) == 2


def test_a_larger_share_moves_keys_one_way_only():
    one, keys = decider(), [f"conversation {i}" for i in range(500)]
    richer = open_account(Budget((RATE_USD + 0.3) * 1_000, 1_000), 0.0).snapshot()
    moves = Counter(zip(models(one, keys), models(one, keys, richer), strict=True))
    assert moves["large", "small"] == 0
    assert moves["small", "large"] == pytest.approx(50, abs=25)


def test_a_new_window_draws_again():
    one, keys = decider(), [f"conversation {i}" for i in range(2_000)]
    hours = [snapshot(now_s, every="1h") for now_s in (0.0, 3_599.0, 3_600.0)]
    assert [budget.account.epoch_s for budget in hours] == [0.0, 0.0, 3_600.0]
    first, same, later = ([drawn(one, key, hour).model for key in keys] for hour in (*hours[:1], *hours[:1], hours[2]))
    assert first == same
    large = np.array([[model == "large" for model in those] for those in (first, later)])
    assert stats.pearsonr(*large).pvalue > SURE


def test_nested_budgets_have_the_epoch_of_the_innermost():
    day = Budget(10.0, 100, every="day", within=Budget(100.0, 1_000, every="month"))
    assert open_account(day, 90_000.0).snapshot().account.epoch_s == 86_400.0
    once = Budget(10.0, 100, within=Budget(100.0, 1_000, every="month"))
    assert open_account(once, 90_000.0).snapshot().account.epoch_s == 0.0


def test_explored_shares_hold_over_keys_and_propensities_are_unbiased():
    one, budget = decider(explore=ExploreShare(0.3)), snapshot()
    decisions = [drawn(one, f"question {i}", budget) for i in range(N)]
    mix = {"small": 0.7 * (1 - LARGE) + 0.1, "middle": 0.1, "large": 0.7 * LARGE + 0.1}
    counts = Counter(decision.model for decision in decisions)
    assert stats.chisquare([counts[k] for k in mix], [N * share for share in mix.values()]).pvalue > SURE
    assert all(decision.probability == pytest.approx(mix[decision.model]) for decision in decisions)
    for name in NAMES:  # inverse propensity scoring of always that model, each reward 1
        weights = np.array([(decision.model == name) / decision.probability for decision in decisions])
        assert abs(weights.mean() - 1.0) < 4 * weights.std() / np.sqrt(N)
    assert models(one, ["a"] * 20, budget) == [drawn(one, "a", budget).model] * 20


POLICIES = {
    "offline": Offline(),
    "optimistic": Optimistic(),
    "exploring": EpsilonFirst(10_000),
    "skipping": Offline(allow_skip=True),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_every_policy_draws_by_the_key(policy):
    one, budget = decider(policy), snapshot()
    keys = [f"conversation {i}" for i in range(2_000)]
    records = [one.decide(Query(0, None), budget, draw_key=key) for key in keys]
    mix = dict(records[0].trace.choice.mix)
    counts = Counter(record.model for record in records)
    assert counts.keys() == mix.keys()
    if len(mix) > 1:
        assert stats.chisquare([counts[k] for k in mix], [2_000 * share for share in mix.values()]).pvalue > SURE
    again = [one.decide(Query(0, None), budget, draw_key=key).model for key in keys]
    assert again == [record.model for record in records]


def test_exploration_is_uniform_over_keys():
    one, budget = decider(EpsilonFirst(10_000), known=False), snapshot()
    counts = Counter(models(one, map(str, range(6_000)), budget))
    assert stats.chisquare([counts[name] for name in NAMES]).pvalue > SURE


def test_calls_without_a_key_draw_as_if_there_were_no_keys():
    plain, mixed, budget = decider(seed=5), decider(seed=5), snapshot()
    alone = [plain.decide(Query(0, None), budget).decision.model for _ in range(300)]
    beside = []
    for i in range(300):
        drawn(mixed, f"conversation {i}", budget)
        beside.append(mixed.decide(Query(0, None), budget).decision.model)
    rng = np.random.default_rng(5)
    assert alone == beside == ["large" if rng.random() < LARGE else "small" for _ in range(300)]


def router(horizon=4_000, **options):
    estimates = Estimates(1, 3)
    estimates.add_table(np.zeros(1, dtype=np.int64), REWARD, COST_USD)
    one = WiseRouter([Model(name) for name in NAMES], estimates=estimates, policy=Offline(), **options)
    one.start(Budget(RATE_USD * horizon, horizon))
    return one


@pytest.mark.parametrize("n_keys", [1, 7, 100_000])
def test_the_budget_is_spent_however_many_keys_there_are(n_keys):
    one, rng, large = router(), np.random.default_rng(1), 0
    for _ in range(4_000):
        decision = one.decide(draw_key=f"key {rng.integers(n_keys)}")
        one.charge(decision, cost_usd=dict(zip(NAMES, COST_USD[0], strict=True))[decision.model])
        large += decision.model == "large"
    assert 0.98 < one.status().spent_usd / (RATE_USD * 4_000) < 1.005
    assert large / 4_000 == pytest.approx(LARGE, abs=0.03)


def test_both_ways_to_decide_take_a_key():
    one = router()
    seen = {(one.decide(draw_key=f"{i}").model, asyncio.run(one.adecide(draw_key=f"{i}")).model) for i in range(50)}
    assert seen == {("small", "small"), ("large", "large")}


def test_loaded_routers_agree_with_the_fitted_one(tmp_path):
    first = router(seed=0)
    first.save(tmp_path / "a.zip")
    second = WiseRouter.load(tmp_path / "a.zip", store=MemoryStore())
    second.start(Budget(RATE_USD * 4_000, 4_000))
    keys = [f"conversation {i}" for i in range(100)]
    assert [first.decide(draw_key=key).model for key in keys] == [second.decide(draw_key=key).model for key in keys]


def test_workers_on_one_store_agree(tmp_path):
    workers = [router(store=f"sqlite:///{tmp_path}/budget.db") for _ in range(2)]
    keys = [f"conversation {i}" for i in range(60)]
    seen = [[worker.decide(draw_key=key).model for key in keys] for worker in workers]
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 2
    for worker in workers:
        worker.close()


@pytest.mark.parametrize("key", ["", 3, b"a"])
def test_a_key_is_a_text(key):
    one = router()
    with pytest.raises(InvalidInput, match="draw_key must be a text"):
        one.decide(draw_key=key)
    assert one.status().decided == 0
    assert one.decide(draw_key="\ud800 half a character").model in NAMES
