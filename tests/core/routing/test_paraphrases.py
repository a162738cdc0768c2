"""Paraphrases get the same model wherever they are placed in the same context, at budgets that mix two models."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from wiserouter import Budget, Contexts, Estimates, Model, Offline, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.routing.keyed_draws import CONTEXT_BLOCK_S, context_key
from wiserouter.stores import MemoryStore
from wiserouter.types import NO_CONTEXT

N_PAIRS, N_CONTEXTS, DIM = 420, 8, 16
SURE = 1e-4
"""The level of the tests: seeds are fixed, so each is passed or failed for good."""


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def centroids(rng):
    return rng.standard_normal((N_CONTEXTS, DIM)) * 0.7


def router(budget, clock=None, contexts=None, costs=(1.0, 4.0), n_contexts=N_CONTEXTS):
    """Return a router of two models, whose gain differs from context to context."""
    estimates = Estimates(n_contexts, 2)
    for j in range(n_contexts):
        table = np.full(30, j, dtype=np.int64)
        rewards = np.tile([0.3, 0.5 + 0.05 * j], (30, 1))
        estimates.add_table(table, rewards, np.tile(costs, (30, 1)))
    one = WiseRouter(
        [Model("small"), Model("large")],
        contexts or Contexts.single(),
        policy=Offline(),
        estimates=estimates,
        store=MemoryStore(clock or Clock()),
        seed=0,
    )
    one.start(budget)
    return one


def placed_pairs(rng, one):
    """Return the contexts of questions and of their paraphrases, whose embeddings lie near them."""
    questions = one.contexts.centroids[rng.integers(N_CONTEXTS, size=N_PAIRS)] + rng.standard_normal((N_PAIRS, DIM))
    paraphrases = questions + 0.9 * rng.standard_normal((N_PAIRS, DIM))
    return np.array([[one.contexts.assign(x) for x in pair] for pair in zip(questions, paraphrases, strict=True)])


def same_model(one, pairs, key):
    """Return which pairs get the same model; nothing is charged, so that the budget stays where it is."""
    chosen = []
    for pair in pairs:
        decisions = [one.decide(context=int(context), draw_key=key(int(context))) for context in pair]
        chosen.append(decisions[0].model == decisions[1].model)
        for decision in decisions:
            one.release(decision)
    return np.array(chosen)


@pytest.mark.parametrize("rate_usd", [1.4, 2.0, 2.6, 3.2])
def test_the_same_model_share_is_the_same_context_share(rate_usd):
    rng = np.random.default_rng(3)
    contexts = Contexts(centroids(rng), np.full(N_CONTEXTS, 1 / N_CONTEXTS))
    one = router(Budget(rate_usd * 1e6, 10**6), contexts=contexts)
    pairs = placed_pairs(rng, one)
    together = pairs[:, 0] == pairs[:, 1]
    assert 0.5 < together.mean() < 0.98
    agree = same_model(one, pairs, lambda context: context_key(context, 0.0))
    assert agree[together].all()
    assert agree.mean() >= together.mean()
    alone = same_model(one, pairs, lambda context: None)
    assert not alone[together].all()


def test_in_one_context_all_pairs_agree_where_calls_of_their_own_agree_by_chance():
    one, pairs = router(Budget(2.5e6, 10**6), n_contexts=1), np.zeros((N_PAIRS, 2), dtype=np.int64)
    assert same_model(one, pairs, lambda context: context_key(context, 0.0)).all()
    assert same_model(one, pairs, lambda context: None).mean() == pytest.approx(0.5, abs=0.1)


def test_over_blocks_each_model_is_drawn_as_planned_and_propensities_are_unbiased():
    one = router(Budget(2.5e6, 10**6), n_contexts=1)
    decisions = []
    for block in range(4_000):
        decisions.append(one.decide(context=0, draw_key=context_key(0, block * CONTEXT_BLOCK_S)))
        one.release(decisions[-1])
    counts = Counter(decision.model for decision in decisions)
    assert stats.binomtest(counts["large"], 4_000, 0.5).pvalue > SURE
    for name in ("small", "large"):
        weights = np.array([(decision.model == name) / decision.probability for decision in decisions])
        assert abs(weights.mean() - 1.0) < 4 * weights.std() / np.sqrt(len(weights))


@pytest.mark.parametrize("n_blocks", [5, 24, 400])
def test_the_budget_is_spent_as_planned_however_long_a_block_is(n_blocks):
    horizon, clock = 6_000, Clock()
    one = router(Budget(2.5 * horizon, horizon), clock, n_contexts=1)
    large = 0
    for i in range(horizon):
        clock.now_s = i * n_blocks * CONTEXT_BLOCK_S / horizon
        decision = one.decide(context=0, draw_key=context_key(0, clock.now_s))
        one.charge(decision, cost_usd=4.0 if decision.model == "large" else 1.0)
        large += decision.model == "large"
    assert 0.98 < one.status().spent_usd / (2.5 * horizon) < 1.005
    assert large / horizon == pytest.approx(0.5, abs=0.03)


def test_a_context_and_a_block_are_told_apart():
    keys = {context_key(context, now_s) for context in (1, 11, 111) for now_s in (0.0, 3_600.0, 36_000.0, 396_000.0)}
    assert len(keys) == 12
    assert context_key(NO_CONTEXT, 0.0) != context_key(1, 0.0)
    with pytest.raises(InvalidInput):
        router(Budget(1.0, 1), n_contexts=1).decide(context=0, draw_key="")
