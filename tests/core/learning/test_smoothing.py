"""Mean rewards smoothed by a regression: what it adds moves, fades and becomes less as the rewards do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.random_effects import joint, priors
from wiserouter.fitting.fit_residuals import smoothing_of
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import Sample
from wiserouter.learning.residuals.ridge_selection import select_ridge
from wiserouter.learning.smoothing import Smoothing


def sample_of(n, n_models, seed, n_contexts=4, dim=6, noise=0.35):
    """Return queries whose rewards are linear in the embedding but for noise, and the true mean rewards."""
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(n, dim)).astype(np.float32)
    contexts = rng.integers(n_contexts, size=n)
    embeddings[:, 0] += contexts
    mean = np.clip(0.5 + embeddings @ rng.normal(0, 0.05, (dim, n_models)), 0, 1)
    reward = np.clip(mean + rng.normal(0, noise, mean.shape), 0, 1)
    return Sample(embeddings, contexts, reward, rng.uniform(0.1, 1, reward.shape)), mean


def counted(sample, n_contexts=4):
    estimates = Estimates(n_contexts, sample.reward.shape[1])
    estimates.add_table(sample.contexts, sample.reward, sample.cost_usd)
    return estimates


def by_context(values, contexts, n_contexts=4):
    return np.array([values[contexts == j].mean(axis=0) for j in range(n_contexts)])


def thinned(sample, share, seed=0):
    """Return a log with that share of the answers, at least one of each model."""
    hidden = np.random.default_rng(seed).random(sample.reward.shape) >= share
    hidden[0] = False
    reward, cost = (np.where(hidden, np.nan, values) for values in (sample.reward, sample.cost_usd))
    return Sample(sample.embeddings, sample.contexts, reward, cost)


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_smoothed_means_are_the_posterior_of_what_the_regression_leaves(share):
    sample = thinned(sample_of(300, 3, seed=0)[0], share)
    estimates = counted(sample)
    estimates.smoothing = smoothing_of(sample, estimates)
    settings_ = select_ridge(sample.embeddings, sample.reward)
    by_text = by_context(settings_.reward - settings_.mean, sample.contexts)
    n, squares = estimates.labels, 0.0
    for j, k in np.ndindex(n.shape):
        of_cell = sample.reward[sample.contexts == j, k]
        squares += np.nansum((of_cell - np.nanmean(of_cell)) ** 2)
    noise = (squares + 2 * 0.25) / (n.sum() - n.size + 2)  # with two pseudo-rewards of a coin's variance
    costs = np.log(estimates.means().cost_usd.mean(axis=0))
    prior = priors(costs - costs.mean(), np.zeros(3), np.zeros(3))
    left = estimates.reward - n * by_text
    rest = joint(n, left, noise, prior)
    wanted = by_text + (left + noise / rest.interaction * rest.mean) / (n + noise / rest.interaction)
    np.testing.assert_allclose(estimates.means().reward, np.clip(wanted, 0, 1), atol=1e-6)
    observed = estimates.means(shrink=False).reward
    np.testing.assert_allclose(observed, estimates.reward / n)


@pytest.mark.parametrize(("share", "part"), [(1.0, 0.8), (0.1, 0.8)])
def test_means_of_many_models_are_closer_to_the_truth(share, part):
    errors = {True: [], False: []}
    for seed in range(20):
        sample, mean = sample_of(160, 20, seed)
        sample = thinned(sample, share)
        estimates = counted(sample)
        for smooth in (False, True):
            estimates.smoothing = smoothing_of(sample, estimates) if smooth else None
            found = estimates.means().reward - by_context(mean, sample.contexts)
            errors[smooth].append(float((found**2).mean()))
    assert np.mean(errors[True]) < part * np.mean(errors[False])


def test_many_queries_speak_for_themselves():
    rng = np.random.default_rng(0)
    contexts = rng.integers(4, size=8_000)
    chance = np.array([[0.9, 0.1], [0.1, 0.9], [0.8, 0.3], [0.2, 0.7]])
    reward = (rng.random((8_000, 2)) < chance[contexts]).astype(float)
    sample = Sample(rng.normal(size=(8_000, 3)).astype(np.float32), contexts, reward, np.ones((8_000, 2)))
    estimates = counted(sample)
    estimates.smoothing = smoothing_of(sample, estimates)
    np.testing.assert_allclose(estimates.means().reward, by_context(reward, contexts), atol=0.005)


def test_what_is_learned_counts_as_it_is():
    sample, _ = sample_of(200, 2, seed=1)
    estimates = counted(sample)
    estimates.smoothing = smoothing_of(sample, estimates)
    added = estimates.smoothing.at(estimates.labels)[0, 0]
    n = estimates.labels[0, 0]
    for _ in range(int(3 * n)):
        estimates.add_reward(0, 0, 1.0)
    assert estimates.smoothing.at(estimates.labels)[0, 0] == pytest.approx(added / 4, rel=0.02)
    assert estimates.smoothing.at(estimates.labels)[1, 1] == estimates.smoothing.at(0 * estimates.labels)[1, 1]


def test_it_fades_moves_and_is_copied_as_the_rewards_are():
    sample, _ = sample_of(200, 2, seed=2)
    estimates = counted(sample)
    estimates.smoothing = smoothing_of(sample, estimates)
    again, before = estimates.copy(), estimates.means().reward
    estimates.fade(0.5)
    np.testing.assert_allclose(again.means().reward, before)
    np.testing.assert_allclose(estimates.smoothing.at(estimates.labels), again.smoothing.at(again.labels))
    estimates.add_model(np.full(4, 0.5), np.full(4, 1.0), 1.0, 1.0)
    assert estimates.means().reward.shape == (4, 3)
    assert not estimates.smoothing.at(estimates.labels)[:, 2].any()
    one = again.smoothing.moved(np.ones((4, 1)))
    np.testing.assert_allclose(one.reward, again.smoothing.reward.sum(axis=0, keepdims=True))
    np.testing.assert_allclose(one.labels, 200.0)


def test_an_empty_context_adds_nothing():
    smoothing = Smoothing(np.array([[0.0, 2.0]]), np.array([[0.0, 0.4]]))
    assert smoothing.at(np.zeros((1, 2))).tolist() == [[0.0, 0.2]]


def test_an_empty_cell_follows_its_model_and_its_context():
    sample, mean = sample_of(400, 4, seed=3)
    sample.reward[(sample.contexts == 2), 1] = np.nan
    estimates = counted(sample)
    plain = estimates.means().reward[2, 1]
    estimates.smoothing = smoothing_of(sample, estimates)
    truth = by_context(mean, sample.contexts)[2, 1]
    assert abs(estimates.means().reward[2, 1] - truth) < 0.5 * abs(plain - truth)


def test_a_log_without_rewards_is_not_smoothed():
    sample, _ = sample_of(50, 2, seed=3)
    sample.reward[:] = np.nan
    assert smoothing_of(sample, counted(sample)) is None


def test_a_model_without_rewards_is_still_not_preferred():
    sample, _ = sample_of(50, 3, seed=3)
    sample.reward[:, 2] = np.nan
    estimates = counted(sample)
    estimates.smoothing = smoothing_of(sample, estimates)
    assert not estimates.means().reward[:, 2].any()


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 40),
    n_models=st.integers(1, 4),
    n_contexts=st.integers(1, 5),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 2**16),
    kind=st.sampled_from(["linear", "equal", "zero or one", "same prompt", "free"]),
)
def test_smoothed_means_of_any_log_are_rewards(n, n_models, n_contexts, share, seed, kind):
    embeddings, contexts, reward, cost = sample_of(n, n_models, seed, n_contexts)[0]
    if kind in ("equal", "zero or one"):
        reward = np.ones_like(reward) if kind == "equal" else reward.round()
    if kind == "same prompt":
        embeddings = np.ones_like(embeddings)
    sample = thinned(Sample(embeddings, contexts, reward, cost * (kind != "free")), share, seed)
    estimates = counted(sample, n_contexts)
    estimates.smoothing = smoothing_of(sample, estimates)
    found = estimates.means().reward
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 1
    if kind == "equal":
        assert found.min() > 0.6
