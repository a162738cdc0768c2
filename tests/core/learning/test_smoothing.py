"""Mean rewards smoothed by a regression: what it adds moves, fades and becomes less as the rewards do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter.fitting.fit_residuals import smoothing_of
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import Sample
from wiserouter.learning.residuals.cross_validation import hold_out
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


def test_smoothed_means_are_predictions_and_what_they_miss_shrunk():
    sample, _ = sample_of(300, 3, seed=0)
    estimates = counted(sample)
    estimates.smoothing = smoothing_of(sample, estimates, seed=0)
    predicted = hold_out(sample, 4, 0).ridge.reward
    missed, p = sample.reward - predicted, by_context(predicted, sample.contexts)
    n = np.bincount(sample.contexts, minlength=4)[:, None].astype(float)
    mean, cells = missed.mean(axis=0), by_context(missed, sample.contexts)
    # analysis of variance by hand, one ratio of variances for all models
    within = ((missed - cells[sample.contexts]) ** 2).sum(axis=0) / (len(missed) - 4)
    spread = len(missed) - (n**2).sum() / len(missed)
    between = np.maximum((n * (cells - mean) ** 2).sum(axis=0) - 3 * within, 0) / spread
    share = (between / (within + between)).mean()
    kappa = (1 - share) / share if share else np.inf
    own = mean if np.isinf(kappa) else (n * cells + kappa * mean) / (n + kappa)
    np.testing.assert_allclose(estimates.means().reward, np.clip(p + own, 0, 1), rtol=1e-9)
    np.testing.assert_allclose(estimates.means(shrink=False).reward, by_context(sample.reward, sample.contexts))


def test_means_of_many_models_are_closer_to_the_truth():
    errors = {True: [], False: []}
    for seed in range(20):
        sample, mean = sample_of(160, 20, seed)
        estimates = counted(sample)
        for smooth in (False, True):
            estimates.smoothing = smoothing_of(sample, estimates, seed=0) if smooth else None
            found = estimates.means().reward - by_context(mean, sample.contexts)
            errors[smooth].append(float((found**2).mean()))
    assert np.mean(errors[True]) < 0.8 * np.mean(errors[False])


def test_many_queries_speak_for_themselves():
    rng = np.random.default_rng(0)
    contexts = rng.integers(4, size=8_000)
    chance = np.array([[0.9, 0.1], [0.1, 0.9], [0.8, 0.3], [0.2, 0.7]])
    reward = (rng.random((8_000, 2)) < chance[contexts]).astype(float)
    sample = Sample(rng.normal(size=(8_000, 3)).astype(np.float32), contexts, reward, np.ones((8_000, 2)))
    estimates = counted(sample)
    estimates.smoothing = smoothing_of(sample, estimates, seed=0)
    np.testing.assert_allclose(estimates.means().reward, by_context(reward, contexts), atol=0.005)


def test_what_is_learned_counts_as_it_is():
    sample, _ = sample_of(200, 2, seed=1)
    estimates = counted(sample)
    estimates.smoothing = smoothing_of(sample, estimates, seed=0)
    added = estimates.smoothing.at(estimates.labels)[0, 0]
    n = estimates.labels[0, 0]
    for _ in range(int(3 * n)):
        estimates.add_reward(0, 0, 1.0)
    assert estimates.smoothing.at(estimates.labels)[0, 0] == pytest.approx(added / 4, rel=0.02)
    assert estimates.smoothing.at(estimates.labels)[1, 1] == estimates.smoothing.at(0 * estimates.labels)[1, 1]


def test_it_fades_moves_and_is_copied_as_the_rewards_are():
    sample, _ = sample_of(200, 2, seed=2)
    estimates = counted(sample)
    estimates.smoothing = smoothing_of(sample, estimates, seed=0)
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


@pytest.mark.parametrize("what", ["reward", "cost_usd"])
def test_a_log_with_gaps_is_not_smoothed(what):
    sample, _ = sample_of(50, 2, seed=3)
    getattr(sample, what)[7, 1] = np.nan
    assert smoothing_of(sample, counted(sample), seed=0) is None


def test_a_log_of_few_queries_is_not_smoothed():
    sample, _ = sample_of(4, 2, seed=4, n_contexts=1)
    assert smoothing_of(sample, counted(sample, 1), seed=0) is None


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(5, 40),
    n_models=st.integers(1, 4),
    n_contexts=st.integers(1, 5),
    seed=st.integers(0, 2**16),
    kind=st.sampled_from(["linear", "equal", "zero or one", "same prompt", "free"]),
)
def test_smoothed_means_of_any_complete_log_are_rewards(n, n_models, n_contexts, seed, kind):
    embeddings, contexts, reward, cost = sample_of(n, n_models, seed, n_contexts)[0]
    if kind in ("equal", "zero or one"):
        reward = np.ones_like(reward) if kind == "equal" else reward.round()
    if kind == "same prompt":
        embeddings = np.ones_like(embeddings)
    sample = Sample(embeddings, contexts, reward, cost * (kind != "free"))
    estimates = counted(sample, n_contexts)
    estimates.smoothing = smoothing_of(sample, estimates, seed=0)
    found = estimates.means().reward
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 1
    if kind == "equal":
        np.testing.assert_allclose(found, 1.0)
