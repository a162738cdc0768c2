"""The estimators of single queries, against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter.learning.residuals import PriceCurve, QueryResiduals, Ridge, Sample
from wiserouter.learning.residuals.kept_shares import KeptShares, kept_shares
from wiserouter.learning.residuals.price_curve import best_models, price_grid
from wiserouter.learning.residuals.ridge import left_out
from wiserouter.learning.residuals.ridge_selection import select_ridge
from wiserouter.types import NO_CONTEXT

DIM, N_CONTEXTS, N_MODELS = 5, 3, 4
ALL = KeptShares(np.ones(N_MODELS), None)


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
    ridge = Ridge.fitted(x, reward, context_reward(), strength=2.0, shares=ALL)
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
    ridge = Ridge.fitted(x, reward, context_reward(), strength=2.0, shares=KeptShares(np.zeros(N_MODELS), 0.0))
    wanted = reward.mean(axis=0) - context_reward()[contexts]
    assert ridge.shifts(x, contexts) == pytest.approx(wanted)


def test_a_model_without_a_score_keeps_the_means_of_the_contexts():
    x, contexts, reward = history(30)
    reward[:, 2] = np.nan
    assert not Ridge.fitted(x, reward, context_reward(), strength=2.0, shares=ALL).shifts(x, contexts)[:, 2].any()


def table(n, seed, *, edge):
    """Return a sample of 6 models; the scores of half of them follow the embedding by `edge`, all cost the same."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, DIM)).astype(np.float32)
    reward = np.clip(0.5 + edge * x[:, :1] * np.tile([1.0, -1.0], 3) + 0.3 * rng.normal(size=(n, 6)), 0.0, 1.0)
    return Sample(x, np.zeros(n, dtype=np.int64), reward, np.ones((n, 6)))


def test_little_is_predicted_where_models_do_not_follow_the_text():
    spreads = {
        edge: [np.std(select_ridge(x, reward).reward, axis=0).mean() for x, _, reward, _ in tables(edge)]
        for edge in (0, 0.2)
    }
    assert min(spreads[0.2]) > 0.15
    assert np.mean(spreads[0]) < 0.01


def tables(edge):
    return [table(400, seed, edge=edge) for seed in range(6)]


def test_a_model_that_does_not_follow_the_text_has_a_share_of_its_own():
    rng = np.random.default_rng(0)
    predicted = rng.normal(size=(2_000, 3))
    true = predicted * [1.0, 0.9, 0.1] + rng.normal(size=predicted.shape)
    of_models = kept_shares(predicted, np.where(rng.random(true.shape) < 0.1, np.nan, true)).of_models
    assert of_models == pytest.approx([1.0, 0.9, 0.1], abs=0.08)


def drawn_to_each_other(predicted, true):
    """Return the shares by the formulas of DerSimonian and Laird, model by model."""
    slope, error_sq = [], []
    for x, y in zip(predicted.T, true.T, strict=True):
        b = x @ y / (x @ x)
        slope.append(b)
        error_sq.append(sum((x * (y - b * x)) ** 2) / (x @ x) ** 2)
    weight = [1 / v for v in error_sq]
    fixed = sum(w * b for w, b in zip(weight, slope, strict=True)) / sum(weight)
    q = sum(w * (b - fixed) ** 2 for w, b in zip(weight, slope, strict=True))
    c = sum(weight) - sum(w * w for w in weight) / sum(weight)
    between = max(0.0, (q - (len(slope) - 1)) / c)
    total = [1 / (v + between) for v in error_sq]
    mean = sum(w * b for w, b in zip(total, slope, strict=True)) / sum(total)
    if between == 0.0:
        return np.clip([mean] * len(slope), 0, 1)
    drawn = [(b / v + mean / between) / (1 / v + 1 / between) for b, v in zip(slope, error_sq, strict=True)]
    return np.clip(drawn, 0, 1)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(2, 8), st.floats(0.0, 1.0))
def test_shares_are_those_of_a_meta_analysis_of_slopes(seed, n_models, spread):
    rng = np.random.default_rng(seed)
    predicted = rng.normal(size=(60, n_models)) * rng.uniform(0.5, 2.0, n_models)
    true = predicted * (0.5 + spread * rng.normal(size=n_models)) + rng.normal(size=predicted.shape)
    x, y = (values - values.mean(axis=1, keepdims=True) for values in (predicted, true))
    shares = kept_shares(predicted, true)
    assert shares.of_models == pytest.approx(drawn_to_each_other(x, y), abs=1e-9)
    level = predicted.mean(axis=1) @ true.mean(axis=1) / (predicted.mean(axis=1) @ predicted.mean(axis=1))
    assert shares.of_all == pytest.approx(np.clip(level, 0, 1))
    kept = shares.of(predicted)
    assert kept.mean(axis=1) == pytest.approx((shares.of_all * predicted + shares.of_models * x).mean(axis=1))


@pytest.mark.parametrize("seen", [1.0, np.nan])
@pytest.mark.parametrize("n_models", [1, 3])
def test_predictions_that_say_nothing_are_not_kept(n_models, seen):
    true = np.arange(4.0 * n_models).reshape(4, n_models)
    true[0] *= seen
    shares = kept_shares(np.zeros((4, n_models)), true)
    assert not shares.of(np.ones((4, n_models))).any()


def test_weights_and_predictions_are_kept_alike():
    x, contexts, reward = history(40)
    shares = KeptShares(np.array([0.2, 1.0, 0.0, 0.5]), 0.7)
    part, whole = (Ridge.fitted(x, reward, context_reward(), strength=2.0, shares=one) for one in (shares, ALL))
    deviations = whole.shifts(x, contexts) + context_reward()[contexts] - reward.mean(axis=0)
    wanted = reward.mean(axis=0) + shares.of(deviations)
    assert part.shifts(x, contexts) + context_reward()[contexts] == pytest.approx(wanted, abs=1e-5)


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
    embeddings, _, reward = history(80)
    ridge = Ridge.fitted(embeddings, reward, context_reward(), strength=10.0, shares=ALL)
    return QueryResiduals(ridge, PriceCurve(np.array([0.0, 1.0]), np.array([2.0, 1.0])))


def test_a_copy_says_the_same_and_changes_alone():
    x, residuals = np.ones(DIM, dtype=np.float32), everything()
    before, other = residuals.deviations(1, x).reward, residuals.copy()
    assert np.array_equal(other.deviations(1, x).reward, before)
    assert other.price(1.5) == residuals.price(1.5) == 0.5
    other.add_model()
    assert len(other.deviations(1, x).reward) == N_MODELS + 1
    assert other.price(1.5) is None
    assert np.array_equal(residuals.deviations(1, x).reward, before)


def test_without_text_or_context_there_is_nothing_to_add():
    residuals = everything()
    assert residuals.deviations(1, None) is None
    assert residuals.deviations(NO_CONTEXT, np.ones(DIM, dtype=np.float32)) is None
