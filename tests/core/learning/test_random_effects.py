"""Rewards as model + context + interaction: against the joint normal distribution written out, and by properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.random_effects import joint, priors
from wiserouter.learning.random_effects import DEVIATIONS, effect_prior, effects

seeds = st.integers(0, 2**32 - 1)


def pools(rng, n_models, share_scored=0.4):
    precision = np.where(rng.random(n_models) < share_scored, rng.uniform(4.0, 160.0, n_models), 0.0)
    return rng.normal(0.0, 1.5, n_models), rng.random(n_models), precision


def cells(rng, n_contexts, n_models):
    """Return counts with fractions, as of judges' scores, and sums; many cells are empty."""
    count = rng.poisson(1.5, (n_contexts, n_models)) * rng.choice([0.36, 1.0], (n_contexts, n_models))
    return count, count * rng.random((n_contexts, n_models))


def unscored(log_price):
    none = np.zeros(len(log_price))
    return effect_prior(np.asarray(log_price, dtype=float), none, none)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 6))
def test_the_prior_is_that_of_the_joint_distribution(seed, n_models):
    pool = pools(np.random.default_rng(seed), n_models)
    for mine, its in zip(effect_prior(*pool), priors(*pool), strict=True):
        assert mine == pytest.approx(its, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 5), st.integers(1, 5), st.floats(0.01, 0.25))
def test_it_is_the_posterior_of_the_joint_distribution(seed, n_contexts, n_models, noise):
    rng = np.random.default_rng(seed)
    prior, seen = effect_prior(*pools(rng, n_models)), cells(rng, n_contexts, n_models)
    mine, its = effects(*seen, noise, prior), joint(*seen, noise, prior)
    assert mine.mean == pytest.approx(its.mean, abs=1e-7)
    assert mine.variance == pytest.approx(its.variance, abs=1e-7)
    assert mine.interaction == pytest.approx(its.interaction, abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 30), st.integers(2, 25), st.integers(0, 60))
def test_models_and_contexts_without_a_score_follow_the_others(seed, n_contexts, n_models, n_scores):
    """A large table with few scores, as at first, against the dense joint distribution of all its cells."""
    rng = np.random.default_rng(seed)
    prior, (count, total) = effect_prior(*pools(rng, n_models)), np.zeros((2, n_contexts, n_models))
    some = rng.integers(n_models, size=rng.integers(1, n_models + 1))
    for context, model in zip(rng.integers(n_contexts, size=n_scores), rng.choice(some, n_scores), strict=True):
        count[context, model] += 1.0
        total[context, model] += rng.random() < (context + model) / (n_contexts + n_models)
    mine, its = effects(count, total, 0.2, prior), joint(count, total, 0.2, prior)
    for my_own, of_all in zip(mine, its, strict=True):
        assert my_own == pytest.approx(of_all, abs=1e-9)


def test_billions_of_equal_scores_leave_a_posterior():
    """The differences between contexts are then small differences of large numbers."""
    count = np.full((64, 20), 1e9)
    count[:, 10:] = 0.0
    of = effects(count, count, 1e-9, unscored(np.linspace(-2.0, 2.0, 20)))
    assert of.mean[:, :10] == pytest.approx(1.0, abs=1e-6)
    assert np.all((of.variance[:10] >= 0.0) & (of.variance[:10] < 0.01))
    assert np.all(of.variance[10:] > 0.0)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_the_order_of_contexts_and_models_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    pool, (count, total) = pools(rng, 4), cells(rng, 3, 4)
    rows, columns = rng.permutation(3), rng.permutation(4)
    straight = effects(count, total, 0.2, effect_prior(*pool))
    turned = effects(
        count[rows][:, columns], total[rows][:, columns], 0.2, effect_prior(*(of_each[columns] for of_each in pool))
    )
    assert turned.mean == pytest.approx(straight.mean[rows][:, columns], abs=1e-9)
    assert turned.variance == pytest.approx(straight.variance[columns], abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(0, 2), st.integers(0, 3))
def test_a_score_moves_its_cell_as_it_points_and_makes_no_model_less_certain_where_variances_are_known(
    seed, context, model
):
    rng = np.random.default_rng(seed)
    (count, total), prior = cells(rng, 3, 4), unscored(rng.normal(size=4))
    before = effects(count, total, 0.2, prior)
    count[context, model] += 1.0
    low = effects(count, total, 0.2, prior).mean[context, model]
    total[context, model] += 1.0
    high = effects(count, total, 0.2, prior)
    assert low < high.mean[context, model]
    assert np.isfinite(before.mean).all()
    assert np.all(high.variance > 0.0)


def test_a_model_that_was_sent_the_hard_questions_is_not_blamed_for_them():
    reward = np.array([[0.9, 0.8], [0.5, 0.4]])  # model 0 is better in both contexts
    count = np.array([[2.0, 40.0], [40.0, 8.0]])
    plain = (count * reward).sum(axis=0) / count.sum(axis=0)
    of = effects(count, count * reward, 0.15, unscored([0.0, 0.0]))
    assert plain[0] < plain[1]
    assert np.all(of.mean[:, 0] > of.mean[:, 1])


def test_one_score_counts_in_all_contexts_as_far_as_contexts_are_alike():
    def follows(apart):
        """Return how much a score of 1 raises the same model in a context without scores of it."""
        rng = np.random.default_rng(0)
        reward = np.clip(0.5 + apart * rng.choice([-1.0, 1.0], (6, 3)), 0.0, 1.0)
        count = np.full((6, 3), 30.0)
        count[0, 0] = 0.0
        total = count * reward
        before = effects(count, total, 0.2, unscored(np.zeros(3))).mean[0, 0]
        total[1:, 0] += 3.0
        return effects(count, total, 0.2, unscored(np.zeros(3))).mean[0, 0] - before

    assert follows(0.0) > follows(0.4) > 0.0


def test_the_variance_of_interactions_is_found():
    rng = np.random.default_rng(3)
    additive = 0.5 + rng.normal(0.0, 0.1, (16, 1)) + rng.normal(0.0, 0.1, 8)
    count = np.full((16, 8), 200.0)
    without, with_some = (
        effects(count, count * (additive + rng.normal(0.0, deviation, additive.shape)), 0.2, unscored(np.zeros(8)))
        for deviation in (0.0, 0.2)
    )
    assert without.interaction < 0.1 * DEVIATIONS[0] ** 2
    assert with_some.interaction == pytest.approx(0.04, rel=0.2)


def test_without_any_score_the_models_are_at_their_priors():
    prior = effect_prior(np.array([-1.0, 0.0, 1.0]), np.array([0.7, 0.0, 0.6]), np.array([80.0, 0.0, 80.0]))
    of = effects(np.zeros((4, 3)), np.zeros((4, 3)), 0.25, prior)
    assert of.mean[:, 0] == pytest.approx(0.7)
    assert of.mean[:, 2] == pytest.approx(0.6)
    assert np.all((of.mean[:, 1] > 0.5) & (of.mean[:, 1] < 0.7))
