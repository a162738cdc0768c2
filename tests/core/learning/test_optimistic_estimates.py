"""Optimistic estimates against the formula of the module's docstring and its extremes."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.random_effects import joint, priors
from wiserouter import Estimates, Model, Price
from wiserouter.learning.cost_prior import prior_costs_usd
from wiserouter.learning.optimistic_estimates import TIE, OptimisticEstimates, mean_within_range, quantile_sq
from wiserouter.learning.random_effects import PRIOR_REWARD_VARIANCE
from wiserouter.learning.shrinkage import PRIOR_COUNT

REQUESTS = 1_000


def seen(reward, per_cell, seed=0):
    """Return estimates of calls that score 0 or 1; `per_cell` of each, or at most that many."""
    rng = np.random.default_rng(seed)
    reward = np.asarray(reward, dtype=float)
    estimates = Estimates(*reward.shape)
    counts = np.broadcast_to(per_cell, reward.shape)
    for j, k in np.ndindex(reward.shape):
        for _ in range(int(counts[j, k])):
            estimates.add_invoked(j, k)
            estimates.add_cost(j, k, 0.01)
            estimates.add_reward(j, k, float(rng.random() < reward[j, k]))
    return estimates


def outlook(estimates, models=(), alpha=0.4, requests=REQUESTS, share=1.0):
    n = estimates.shape[0]
    estimates.met[:, 0] += 1.0 / n
    look = OptimisticEstimates(estimates, models, alpha)
    tables = look.refresh(requests, share)
    assert np.array_equal(np.stack(tables, axis=1), rows(look))
    return look


def rows(look):
    return [look.row(j) for j in range(len(look.freq))]


def random_cells(seed, n_contexts=6, n_models=4, most=12):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, most + 1, size=(n_contexts, n_models))
    counts[0] += 2  # every model was tried
    return seen(rng.random((n_contexts, n_models)), counts, seed)


def variance_of_reward(estimates):
    count, total, square = estimates.labels, estimates.reward, estimates.reward_sq
    freedom = count.sum(axis=0) - (count > 0).sum(axis=0)
    inside = (square - total**2 / np.maximum(count, 1)).sum(axis=0)
    return (inside.sum() + PRIOR_COUNT * PRIOR_REWARD_VARIANCE) / (freedom.sum() + PRIOR_COUNT)


def quantile(ahead):
    return math.sqrt(quantile_sq(np.array([ahead])).item())


def clipped_mean(mean, deviation):
    return mean_within_range(np.array([mean]), np.array([deviation])).item()


@given(st.floats(-0.5, 1.5), st.floats(0.005, 0.5))
def test_a_mean_within_the_range_is_that_of_a_clipped_normal(mean, deviation):
    normal = NormalDist(mean, deviation)
    steps = np.linspace(1e-4, 1 - 1e-4, 2_001)
    exact = np.mean([min(max(normal.inv_cdf(p), 0.0), 1.0) for p in steps])
    assert clipped_mean(mean, deviation) == pytest.approx(exact, abs=0.02 * deviation + 1e-3)


def test_what_is_hardly_known_is_not_expected_to_be_perfect():
    assert clipped_mean(1.1, 0.3) < 0.95
    assert clipped_mean(0.995, 0.002) > 0.99


@given(st.floats(0.0, 1e9))
def test_the_quantile_is_that_of_a_normal(ahead):
    assert quantile(ahead) == pytest.approx(max(NormalDist().inv_cdf(1 - 1 / (1 + max(ahead, 1e-9))), 0.0), abs=5e-4)


@pytest.mark.parametrize("seed", range(12))
def test_a_row_is_the_formula(seed):
    estimates = random_cells(seed)
    for _ in range(seed):  # calls without a score
        estimates.add_invoked(seed % 6, 0)
    share = 1.0 / (1 + seed)
    look, (J, K), alpha = outlook(estimates, share=share), estimates.shape, 0.4
    noise, none = variance_of_reward(estimates), np.zeros(K)
    of = joint(estimates.labels, estimates.reward, noise, priors(none, none, none))
    kappa = noise / of.interaction
    scored = (estimates.labels.sum() + 1) / (max(estimates.invoked.sum(), estimates.labels.sum()) + 2)
    assured = scored - math.sqrt(scored * (1 - scored) / (max(estimates.invoked.sum(), estimates.labels.sum()) + 3))
    met = estimates.invoked.sum(axis=1) + 1.0 * np.full(J, 1 / J)
    labels = estimates.labels.sum(axis=0)
    expected_labels = np.maximum(scored * estimates.invoked.sum(axis=0) - labels, 0)
    of_models, calls = 1 / (1 / of.variance + expected_labels / noise), np.maximum(labels + expected_labels, 1)
    for j in range(J):
        mean, reward, _ = look.row(j)
        for k in range(K):
            n = estimates.labels[j, k]
            prior = clipped_mean(of.mean[j, k], math.sqrt(of.variance[k]))
            expected = (estimates.reward[j, k] + kappa * prior) / (n + kappa)
            known = max(n, scored * estimates.invoked[j, k]) + kappa
            of_cell = noise / known * quantile(REQUESTS * met[j] / met.sum() / (K * known)) ** 2
            above = of_models[k] * (kappa / known) ** 2 * quantile(REQUESTS / (K * calls[k])) ** 2
            doubt = alpha * math.sqrt(assured * share * (above + of_cell))
            assert mean[k] == pytest.approx(expected, abs=1e-9)
            capped = 1.0 - TIE * (1.0 - expected)
            assert reward[k] == pytest.approx(capped if expected + doubt >= 1.0 else expected + doubt, abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(-2, 2))
def test_rewards_stay_in_range_and_alpha_has_the_sign_of_the_deviation(seed, alpha):
    look = outlook(random_cells(seed), alpha=alpha)
    for mean, reward, cost in rows(look):
        assert all(0 <= value <= 1 for value in (*mean, *reward))
        assert all(value > 0 for value in cost)
        for m, r in zip(mean, reward, strict=True):
            assert (r - m) * alpha >= 0


def test_the_bonus_shrinks_with_the_requests_to_come_and_a_penalty_does_not():
    def doubts(alpha, requests, share):
        mean, reward, _ = outlook(seen([[0.5, 0.6], [0.4, 0.5]], 9), (), alpha, requests, share).row(0)
        return np.array(reward) - mean

    early, late = doubts(0.4, 1_000, 1.0), doubts(0.4, 100, 0.1)
    assert np.all(late < early * math.sqrt(0.1))
    assert np.all(late > 0)
    assert doubts(-0.4, 100, 0.1) == pytest.approx(doubts(-0.4, 1_000, 1.0))


def test_a_model_is_explored_where_there_are_too_few_queries_to_explore_its_cells():
    def bonus(requests, n_contexts):
        estimates = seen(np.full((n_contexts, 4), 0.5), 1)
        estimates.invoked[:, 3] = estimates.labels[:, 3] = estimates.reward[:, 3] = estimates.reward_sq[:, 3] = 0.0
        mean, reward, _ = outlook(estimates, alpha=0.3, requests=requests).row(0)
        return np.subtract(reward, mean)

    few = bonus(50, 16)
    assert few[3] > 1.2 * few[0]  # the model that was never tried
    assert np.all(bonus(5_000, 16) > few)


@pytest.mark.parametrize("seed", range(4))
def test_the_spread_of_a_call_is_shrunk_toward_that_of_all_models(seed):
    rng = np.random.default_rng(seed)
    models = [Model(f"m{k}", Price(1e-6, 1e-6)) for k in range(3)]
    estimates = Estimates(4, 3)
    for j, k in rng.integers((0, 0), (4, 3), size=(30, 2)):
        estimates.add_invoked(j, k)
        estimates.add_cost(j, k, rng.exponential(0.01))
    prior = prior_costs_usd(estimates, models)
    calls, total, square = estimates.calls, estimates.cost / prior, estimates.cost_sq / prior**2
    inside = (square - total**2 / np.maximum(calls, 1)).sum(axis=0)
    freedom = calls.sum(axis=0) - (calls > 0).sum(axis=0)
    of_all = (inside.sum() + 8 * 0.5**2) / (freedom.sum() + 8)
    spread_usd = np.sqrt((inside + 8 * of_all) / (freedom + 8)) * prior
    assert outlook(estimates, models).spread_usd == pytest.approx(spread_usd)


def test_two_calls_of_equal_cost_do_not_promise_a_third():
    estimates = seen([[0.5, 0.5]], 2)
    assert np.all(outlook(estimates).spread_usd > 0)


def test_alpha_of_zero_is_the_shrunk_mean():
    for mean, reward, _ in rows(outlook(random_cells(1), alpha=0.0)):
        assert mean.tolist() == reward.tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 5), st.integers(0, 3))
def test_more_labels_never_raise_the_bonus(seed, context, model):
    estimates = random_cells(seed)
    estimates.add_reward(context, model, 0.5)  # keeps the mean away from 0 and 1, where the reward is cut off
    look = outlook(estimates, alpha=1e-3)
    doubts = []
    for _ in range(4):
        mean, reward, _ = look.row(context)
        doubts.append(reward[model] - mean[model] if 0.1 < mean[model] < 0.9 else 0.0)
        estimates.add_reward(context, model, mean[model])
    assert doubts == sorted(doubts, reverse=True)


def test_replaced_rewards_leave_means_in_range():
    estimates = Estimates(1, 1)
    for old, new in ((0.1, 1.0), (0.3, 1.0), (0.7, 1.0), (0.2, 1.0), (0.9, 1.0), (0.6, 1.0)):
        estimates.add_reward(0, 0, old)
        estimates.add_reward(0, 0, new, replacing=old)
    estimates.reward[0, 0] = np.nextafter(6.0, 7.0)  # what rounding may leave
    assert 0.8 < outlook(estimates).row(0).mean[0] <= 1.0


def test_cells_whose_differences_no_model_or_context_explains_keep_what_was_seen():
    rng = np.random.default_rng(0)
    column = np.linspace(0.05, 0.95, 20)
    estimates = seen(np.column_stack([rng.permutation(column) for _ in range(6)]), 40)
    plain = estimates.reward / estimates.labels
    assert np.array([row.mean for row in rows(outlook(estimates))]) == pytest.approx(
        plain, abs=0.04
    )  # 41 rewards for 40


def test_contexts_that_are_all_alike_are_pooled():
    estimates = seen(np.tile([0.2, 0.5, 0.8], (20, 1)), 20)
    pooled = estimates.reward.sum(axis=0) / estimates.labels.sum(axis=0)
    for row in rows(outlook(estimates)):
        assert row.mean == pytest.approx(pooled, abs=0.03)


def test_a_leaderboard_score_counts_as_its_weight_in_observations():
    models = [Model("scored", score=0.9, score_weight=20), Model("plain")]
    none = Estimates(1, 2)
    assert outlook(none, models).row(0).mean == pytest.approx(
        [0.9, 0.75], abs=0.05
    )  # the other is taken to be nearly as good
    estimates = seen([[0.0, 0.0]], 10)
    assert outlook(estimates, models).row(0).mean == pytest.approx([20 * 0.9 / 30, 0.0], abs=0.05)
    scored, plain = np.subtract(*np.array(outlook(none, models, alpha=1e-6).row(0))[[1, 0]])
    assert scored < plain


def test_calls_without_feedback_lower_the_bonus_of_all_models_and_scores_keep_it():
    def doubts(labels, calls):
        estimates = seen([[0.5, 0.5]], 0)
        estimates.add_invoked(0, 0, calls)
        for _ in range(labels):
            estimates.add_reward(0, 0, 0.5)
        mean, reward, _ = outlook(estimates, alpha=0.6).row(0)
        return np.subtract(reward, mean)

    assert (doubts(0, 0) > 0.2).all()
    silent = np.array([doubts(0, n) for n in (10**3, 10**5, 10**7)])
    assert (np.diff(silent, axis=0) < 0).all()
    assert silent[-1] == pytest.approx(0.0, abs=0.01)
    tried, never_tried = doubts(1_000, 1_000)
    assert never_tried > 10 * tried


def test_labels_of_a_history_do_not_vouch_for_calls_that_were_never_scored():
    history = Estimates(2, 2)
    history.add_table(np.arange(1_000) % 2, np.full((1_000, 2), 0.5), np.full((1_000, 2), 0.01))
    history.labels[0, 1], history.reward[0, 1], history.reward_sq[0, 1] = 3, 1.5, 0.75
    before = outlook(history, alpha=0.05).row(0)
    history.add_invoked(0, 1, 5)
    for _ in range(5):  # half of the calls are scored: as many as were expected to be
        history.add_invoked(0, 0)
        history.add_reward(0, 0, 0.5)
    after = outlook(history, alpha=0.05).row(0)
    assert after.reward[1] - after.mean[1] > 0.5 * (before.reward[1] - before.mean[1])
