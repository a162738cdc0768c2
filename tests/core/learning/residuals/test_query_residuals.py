"""The estimators of single queries, against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter.learning.residuals import LengthCost, PriceCurve, QueryResiduals, Ridge, Sample
from wiserouter.learning.residuals.price_curve import best_models, price_grid
from wiserouter.learning.residuals.ridge import left_out
from wiserouter.learning.residuals.ridge_selection import select_ridge
from wiserouter.types import NO_CONTEXT

DIM, N_CONTEXTS, N_MODELS = 5, 3, 4


def history(n, seed=0, *, share_seen=1.0):
    """Return embeddings, contexts and rewards, NaN where not observed."""
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(n, DIM)).astype(np.float32)
    reward = embeddings @ rng.normal(size=(DIM, N_MODELS)) + rng.normal(size=(n, N_MODELS)) + np.arange(N_MODELS)
    reward[rng.random(reward.shape) > share_seen] = np.nan
    return embeddings, rng.integers(N_CONTEXTS, size=n), reward


def context_reward(seed=9):
    return np.random.default_rng(seed).random((N_CONTEXTS, N_MODELS))


def predicted_by_sklearn(train, y, queries, strength):
    """Return the predictions of a ridge regression with a constant, for one model."""
    from sklearn.linear_model import Ridge as Oracle

    seen = ~np.isnan(y)
    return Oracle(alpha=strength).fit(train[seen].astype(float), y[seen]).predict(queries.astype(float))


@pytest.mark.parametrize("share_seen", [1.0, 0.4])
def test_ridge_is_that_of_sklearn(share_seen):
    x, contexts, reward = history(40, share_seen=share_seen)
    ridge = Ridge.fitted(x, reward, context_reward(), strength=2.0)
    wanted = np.stack([predicted_by_sklearn(x, y, x, 2.0) for y in reward.T], axis=1)
    assert ridge.shifts(x, contexts) + context_reward()[contexts] == pytest.approx(wanted, abs=1e-5)
    assert ridge.shift(x[7], contexts[7]) == pytest.approx(ridge.shifts(x, contexts)[7])


@pytest.mark.parametrize("share_seen", [1.0, 0.5])
def test_predictions_left_out_are_those_of_a_fit_without_the_query(share_seen):
    x, _, reward = history(25, share_seen=share_seen)
    for strength, predicted in zip((0.5, 20.0), left_out(x, reward, [0.5, 20.0]), strict=True):
        for i in range(len(x)):
            rest = np.arange(len(x)) != i
            wanted = [predicted_by_sklearn(x[rest], y[rest], x[i : i + 1], strength)[0] for y in reward.T]
            assert predicted[i] == pytest.approx(wanted, abs=1e-5)


def test_without_its_share_the_regression_is_the_mixture_of_single_models():
    x, contexts, reward = history(30)
    ridge = Ridge.fitted(x, reward, context_reward(), strength=2.0, share=0.0)
    wanted = reward.mean(axis=0) - context_reward()[contexts]
    assert ridge.shifts(x, contexts) == pytest.approx(wanted)


def test_a_model_without_a_score_keeps_the_means_of_the_contexts():
    x, contexts, reward = history(30)
    reward[:, 2] = np.nan
    assert not Ridge.fitted(x, reward, context_reward(), strength=2.0).shifts(x, contexts)[:, 2].any()


def table(n, seed, *, edge):
    """Return a sample of 6 models; the scores of half of them follow the embedding by `edge`, all cost the same."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, DIM)).astype(np.float32)
    reward = np.clip(0.5 + edge * x[:, :1] * np.tile([1.0, -1.0], 3) + 0.3 * rng.normal(size=(n, 6)), 0.0, 1.0)
    return Sample(x, np.zeros(n, dtype=np.int64), np.ones(n), reward, np.ones((n, 6)))


def test_the_share_is_near_one_where_many_queries_gain_and_less_where_none_does():
    shares = {
        edge: [select_ridge(*with_costs(table(400, s, edge=edge)), s).share for s in range(6)] for edge in (0, 0.2)
    }
    assert min(shares[0.2]) > 0.4
    assert np.mean(shares[0]) < 0.5 * np.mean(shares[0.2])


def with_costs(sample):
    return sample, sample.cost_usd


@settings(max_examples=10)
@given(st.integers(0, 99))
def test_the_scale_of_costs_does_not_change_what_is_kept(seed):
    x, contexts, tokens, reward, _ = table(60, seed, edge=0.1)
    cost = np.random.default_rng(seed).random(reward.shape) + 0.1
    one, other = (
        select_ridge(Sample(x, contexts, tokens, reward, unit * cost), unit * cost, 0) for unit in (1.0, 1024.0)
    )
    assert (one.strength, one.share) == (other.strength, pytest.approx(other.share))


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
    assert curve.at(1.0) is not None
    assert curve.at(0.5) is None  # less than any price spends


def everything():
    embeddings, contexts, reward = history(80)
    tokens = np.arange(80.0)
    ridge = Ridge.fitted(embeddings, reward, context_reward(), strength=10.0)
    length = LengthCost(N_CONTEXTS, np.zeros(N_MODELS)).fit(tokens, contexts, np.abs(reward) + tokens[:, None])
    curve = PriceCurve(np.array([0.0, 1.0]), np.array([2.0, 1.0]))
    return [QueryResiduals(N_MODELS, part, length, curve) for part in (ridge, None)]


def same(shift, other):
    return all(np.array_equal(a, b) for a, b in zip(shift, other, strict=True))


@pytest.mark.parametrize("residuals", everything(), ids=["ridge", "means"])
def test_a_copy_says_the_same_and_learns_alone(residuals):
    x = np.ones(DIM, dtype=np.float32)
    before = residuals.features(1, x, 50, 1.5)
    other = residuals.copy()
    assert same(other.features(1, x, 50, 1.5).shift, before.shift)
    other.learn_cost(before, 1, 0, 0.9)
    other.add_model(0.0)
    assert len(other.features(1, x, 50, 1.5).shift.cost_usd) == N_MODELS + 1
    assert other.features(1, x, 50, 1.5).shift.shadow_price is None
    assert same(residuals.features(1, x, 50, 1.5).shift, before.shift)


def test_costs_by_length_are_restated_at_a_new_price():
    before, after = (LengthCost(2, [1.0, 1.0]) for _ in range(2))
    for length, factor in ((before, 1.0), (after, 0.1)):
        for tokens, cost_usd in ((10, 25.0), (20, 41.0), (30, 66.0), (40, 79.0)):
            for context in (0, 1):
                length.learn(context, 0, tokens, cost_usd * factor)
                length.learn(context, 1, tokens, cost_usd)
    after._price[0] = 0.1
    before.reprice(0, np.array([0.1, 0.1]), 0.1)
    assert before.slope_usd == pytest.approx(after.slope_usd)
    before.reprice(0, np.zeros(2), 3.0)  # what was free says nothing about the new price
    assert before.slope_usd == pytest.approx([3.0, after.slope_usd[1]])


def test_without_text_context_or_length_there_is_nothing_to_add():
    ridge, means = everything()
    assert ridge.features(1, None, None, 1.0) is None
    assert ridge.features(NO_CONTEXT, np.ones(DIM, dtype=np.float32), 5, 1.0) is None
    assert means.features(1, np.ones(DIM, dtype=np.float32), None, 1.0) is None
    assert ridge.features(1, None, 5, 1.0).shift.reward is None
