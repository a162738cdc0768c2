"""The estimators of single queries, against closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter.learning.residuals import LengthCost, PriceCurve, QueryResiduals, Ridge
from wiserouter.learning.residuals.price_curve import best_models, price_grid
from wiserouter.types import NO_CONTEXT

DIM, N_CONTEXTS, N_MODELS = 5, 3, 4


def history(n, seed=0, *, share_seen=1.0):
    """Return embeddings, contexts and residuals, NaN where not observed."""
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(n, DIM)).astype(np.float32)
    residual = rng.normal(size=(n, N_MODELS))
    residual[rng.random(residual.shape) > share_seen] = np.nan
    return embeddings, rng.integers(N_CONTEXTS, size=n), residual


def centroids(seed=9):
    return np.random.default_rng(seed).normal(size=(N_CONTEXTS, DIM)).astype(np.float32)


def closed_form(embeddings, contexts, residual, strength):
    z = (embeddings - centroids()[contexts]).astype(float)
    weights = []
    for y in residual.T:
        seen = ~np.isnan(y)
        gram = z[seen].T @ z[seen] + strength * np.eye(DIM)
        weights.append(np.linalg.solve(gram, z[seen].T @ y[seen]))
    return z @ np.array(weights).T


def taught(estimator, embeddings, contexts, residual, order):
    for i, k in order:
        if not np.isnan(residual[i, k]):
            estimator.learn(embeddings[i], int(contexts[i]), k, residual[i, k])
    return estimator


@pytest.mark.parametrize("share_seen", [1.0, 0.4])
def test_ridge_is_the_closed_form(share_seen):
    past = history(40, share_seen=share_seen)
    ridge = Ridge(centroids(), N_MODELS, strength=2.0).fit(*past)
    assert ridge.shifts(*past[:2]) == pytest.approx(closed_form(*past, 2.0))
    assert ridge.shift(past[0][7], past[1][7]) == pytest.approx(closed_form(*past, 2.0)[7])


@given(st.permutations([(i, k) for i in range(6) for k in range(N_MODELS)]), st.floats(0.5, 50.0))
def test_ridge_learns_the_same_in_any_order(order, strength):
    old, new = history(20, share_seen=0.7), history(6, seed=1)
    ridge = taught(Ridge(centroids(), N_MODELS, strength).fit(*old), *new, order)
    both = [np.concatenate(parts) for parts in zip(old, new, strict=True)]
    assert ridge.shifts(*both[:2]) == pytest.approx(closed_form(*both, strength), abs=1e-9)


def test_a_replaced_reward_is_as_if_it_had_been_the_first():
    embeddings, contexts, residual = history(20)
    ridge = Ridge(centroids(), N_MODELS).fit(embeddings, contexts, residual)
    changed = residual.copy()
    changed[3, 2] += 0.7
    ridge.amend(embeddings[3], int(contexts[3]), 2, 0.7)
    fresh = Ridge(centroids(), N_MODELS).fit(embeddings, contexts, changed)
    assert ridge.shift(embeddings[5], contexts[5]) == pytest.approx(fresh.shift(embeddings[5], contexts[5]))


def test_ridge_never_grows():
    ridge = Ridge(centroids(), N_MODELS)
    size = sum(array.nbytes for array in ridge.arrays().values())
    past = history(100)
    taught(ridge, *past, [(i, 0) for i in range(100)])
    assert sum(array.nbytes for array in ridge.arrays().values()) == size


def test_the_slope_is_that_of_least_squares_within_contexts():
    rng = np.random.default_rng(0)
    tokens, contexts = rng.integers(10, 500, size=200).astype(float), rng.integers(N_CONTEXTS, size=200)
    line = contexts * 100.0 + 3.0 * tokens
    cost = np.stack([line, line + rng.normal(size=200)], axis=1)
    cost[rng.random(cost.shape) < 0.2] = np.nan
    slopes = LengthCost(N_CONTEXTS, [0.0, 0.0]).fit(tokens, contexts, cost).slope_usd
    for k, y in enumerate(cost.T):
        seen = ~np.isnan(y)
        design = np.column_stack([tokens, np.eye(N_CONTEXTS)[contexts]])[seen]
        assert slopes[k] == pytest.approx(np.linalg.lstsq(design, y[seen])[0][0], rel=1e-6)


def test_length_learns_one_by_one_as_from_a_table():
    rng = np.random.default_rng(1)
    tokens, contexts = rng.integers(10, 500, size=30).astype(float), rng.integers(N_CONTEXTS, size=30)
    cost = rng.random((30, 2)) + tokens[:, None]
    table, online = LengthCost(N_CONTEXTS, [0, 0]).fit(tokens, contexts, cost), LengthCost(N_CONTEXTS, [0, 0])
    for i, k in rng.permutation([(i, k) for i in range(30) for k in range(2)]):
        online.learn(int(contexts[i]), k, tokens[i], cost[i, k])
    assert online.slope_usd == pytest.approx(table.slope_usd)
    assert table.shift(200, 1) == pytest.approx(table.shifts(np.array([200.0]), np.array([1]))[0])


def test_the_usual_length_is_that_of_history_or_of_the_first_query():
    table = LengthCost(1, [2.0]).fit(np.array([10.0, 20.0]), np.array([0, 0]), np.array([[1.0], [1.0]]))
    assert table.shift(25, 0) == pytest.approx(20.0)
    online = LengthCost(1, [2.0])
    for tokens in (10.0, 20.0):
        online.learn(0, 0, tokens, 1.0)
    assert online.shift(25, 0) == pytest.approx(30.0)


def test_a_slope_that_is_noise_shrinks_to_the_list_price():
    rng = np.random.default_rng(2)
    tokens, contexts = rng.integers(10, 500, size=300).astype(float), np.zeros(300, dtype=int)
    cost = (2.0 * tokens + 400.0 * rng.normal(size=300))[:, None]
    kept = abs(LengthCost(1, [2.0]).fit(tokens, contexts, cost).slope_usd[0] - 2.0)
    design = np.column_stack([tokens, np.ones(300)])
    assert kept <= abs(np.linalg.lstsq(design, cost[:, 0])[0][0] - 2.0)
    noise = rng.normal(size=(300, 1)) - rng.normal(size=(300, 1))
    assert LengthCost(1, [0.0]).fit(tokens, contexts, noise).slope_usd[0] < 1e-3


def test_without_any_call_a_length_says_nothing():
    assert LengthCost(2, [5.0, 0.0]).shift(1_000, 1).tolist() == [0.0, 0.0]


def test_a_price_is_what_spends_the_rate():
    reward = np.array([[0.2, 0.9], [0.2, 0.4], [0.5, 0.5]])
    cost = np.array([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0]])
    prices = price_grid(cost)
    spend = [cost[np.arange(3), best_models(reward, cost, price)].mean() for price in prices]
    curve = PriceCurve(prices, np.array(spend))
    assert (max(spend), min(spend)) == (pytest.approx(7 / 3), 1.0)  # the third gains nothing and stays cheap
    assert 0.1 < curve.at(2.0) < 0.11  # about where the second query, which gains 0.1 per USD, goes
    assert curve.at(10.0) == 0.0
    assert curve.at(0.5) == prices[-1]


def everything():
    embeddings, contexts, residual = history(80)
    tokens = np.arange(80.0)
    parts = [Ridge(centroids(), N_MODELS).fit(embeddings, contexts, residual)]
    length = LengthCost(N_CONTEXTS, np.zeros(N_MODELS)).fit(tokens, contexts, np.abs(residual) + tokens[:, None])
    curve = PriceCurve(np.array([0.0, 1.0]), np.array([2.0, 1.0]))
    return [QueryResiduals(N_MODELS, part, length, curve) for part in (*parts, None)]


def same(shift, other):
    return all(np.array_equal(a, b) for a, b in zip(shift, other, strict=True))


@pytest.mark.parametrize("residuals", everything(), ids=["ridge", "means"])
def test_a_copy_says_the_same_and_learns_alone(residuals):
    x = np.ones(DIM, dtype=np.float32)
    before = residuals.features(1, x, 50, 1.5)
    other = residuals.copy()
    assert same(other.features(1, x, 50, 1.5).shift, before.shift)
    other.learn_reward(before, 1, 0, 0.9)
    other.learn_cost(before, 1, 0, 0.9)
    other.add_model(0.0)
    assert len(other.features(1, x, 50, 1.5).shift.reward) == N_MODELS + 1
    assert other.features(1, x, 50, 1.5).shift.shadow_price is None
    assert same(residuals.features(1, x, 50, 1.5).shift, before.shift)


def test_without_text_context_or_length_there_is_nothing_to_add():
    ridge, means = everything()
    assert ridge.features(1, None, None, 1.0) is None
    assert ridge.features(NO_CONTEXT, np.ones(DIM, dtype=np.float32), 5, 1.0) is None
    assert means.features(1, np.ones(DIM, dtype=np.float32), None, 1.0) is None
    assert ridge.features(1, None, 5, 1.0).shift.reward.tolist() == [0.0] * N_MODELS
