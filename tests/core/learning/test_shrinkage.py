"""Shrinkage toward the column's mean, against draws from the random-effects model and hand-checked numbers."""

import numpy as np
import pytest

from wiserouter.learning.shrinkage import UNIDENTIFIED_STRENGTH, mean_errors, shrunk_means, spreads


def balanced(cells, per_cell, spread_between, spread_within, seed):
    """Return counts, sums, squares of one model, drawn from the random-effects model, and the true cell means."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0.5, spread_between, cells)
    draws = rng.normal(truth, spread_within, (per_cell, cells))
    return np.full((cells, 1), float(per_cell)), draws.sum(0)[:, None], (draws**2).sum(0)[:, None], truth[:, None]


def test_the_strength_is_the_ratio_of_variances():
    count, total, square, _ = balanced(4000, 10, 0.1, 0.4, seed=0)
    means = shrunk_means(count, total, square, shrink=True)
    plain = total / count
    kept = np.polyfit(plain.ravel(), means.ravel(), 1)[0]  # n / (n + kappa), kappa = .4^2 / .1^2 = 16
    assert kept == pytest.approx(10 / (10 + 16), abs=0.02)


def test_shrinking_lowers_the_error_where_cells_are_thin_and_hardly_changes_thick_ones():
    errors = {}
    for per_cell in (3, 3000):
        count, total, square, truth = balanced(400, per_cell, 0.1, 0.4, seed=1)
        for shrink in (True, False):
            errors[per_cell, shrink] = np.mean((shrunk_means(count, total, square, shrink=shrink) - truth) ** 2)
    assert errors[3, True] < 0.25 * errors[3, False]
    assert errors[3000, True] == pytest.approx(errors[3000, False], rel=0.02)


def test_where_contexts_do_not_differ_the_models_mean_is_used():
    count, total, square, truth = balanced(1_000, 50, 0.0, 0.4, seed=2)
    error = {
        shrink: np.abs(shrunk_means(count, total, square, shrink=shrink) - truth).mean() for shrink in (True, False)
    }
    assert error[True] < 0.25 * error[False]


def test_one_strength_serves_models_of_any_scale():
    parts = [balanced(2000, 10, 0.1 * scale, 0.4 * scale, seed=3) for scale in (1.0, 1e-4)]
    count, total, square = (np.hstack(column) for column in list(zip(*parts, strict=True))[:3])
    means = shrunk_means(count, total, square, shrink=True)
    for k in range(2):
        kept = np.polyfit((total / count)[:, k], means[:, k], 1)[0]
        assert kept == pytest.approx(10 / (10 + 16), abs=0.02)


def test_hand_checked_shrinkage():
    # two cells of two: {0, 1} and {1, 1}: within (.5 + 0) / 2 = .25, between (.25 - .25) / 2 = 0 -> the model's mean
    count, total = np.array([[2.0], [2.0]]), np.array([[1.0], [2.0]])
    assert shrunk_means(count, total, total, shrink=True).ravel().tolist() == [0.75, 0.75]
    # one observation per cell: the two variances cannot be separated
    ones, once = np.ones((2, 1)), np.array([[0.0], [1.0]])
    kept = 1 / (1 + UNIDENTIFIED_STRENGTH)
    assert shrunk_means(ones, once, once, shrink=True).ravel() == pytest.approx([0.5 - kept / 2, 0.5 + kept / 2])


def test_the_strength_where_cells_are_alike_and_where_nothing_is_identified():
    count, total = np.array([[2.0], [2.0]]), np.array([[1.0], [2.0]])
    assert spreads(count, total, total).strength == float("inf")
    ones = np.ones((2, 1))
    assert spreads(ones, total, total**2).strength is None
    assert spreads(count, count, count).strength is None  # all observations are equal
    assert shrunk_means(count, count, count, shrink=True).tolist() == [[1.0], [1.0]]


def test_columns_share_one_strength_from_those_that_are_identified():
    # the first column: within .5, between (2 x 0.25 x 2 - .5) / 2 = .25; the second has one observation per cell
    count, total = np.array([[2.0, 1.0], [2.0, 1.0]]), np.array([[0.0, 0.0], [2.0, 1.0]])
    square = np.array([[0.5, 0.0], [2.5, 1.0]])
    of = spreads(count, total, square)
    assert (of.within[0], of.identified.tolist()) == (0.5, [True, False])
    assert of.strength == pytest.approx(2.0)


@pytest.mark.parametrize(("between", "n_cells", "counts"), [(0.0, 8, (20, 20)), (0.3, 8, (20, 20)), (1.0, 30, (5, 60))])
def test_the_errors_of_shrunk_means_are_those_of_the_random_effects_model(between, n_cells, counts):
    """The sum over the cells of a column, whose errors have the column's mean in common, and single cells."""
    rng, scaled, single = np.random.default_rng(3), [], []
    for _ in range(1_500):
        count = rng.integers(counts[0], counts[1] + 1, (n_cells, 4)).astype(float)
        truth = 5.0 + np.sqrt(between) * rng.normal(size=count.shape)
        total = count * truth + np.sqrt(count) * rng.normal(size=count.shape)
        square = total**2 / count + rng.chisquare(count - 1.0)
        error = shrunk_means(count, total, square, shrink=True) - truth
        own, shared, _ = mean_errors(count, total, square)
        scaled.append(error.sum(axis=0) / np.sqrt((own**2).sum(axis=0) + shared.sum(axis=0) ** 2))
        single.append(error / np.sqrt(own**2 + shared**2))
    assert np.std(scaled) == pytest.approx(1.0, abs=0.1)
    assert 0.8 <= np.std(single) <= 1.1  # smaller where cells do not differ, which is not known


def test_cells_deviate_in_proportion_to_their_means_unless_their_own_calls_say_otherwise():
    count, mean = np.array([[4.0], [400.0]]), np.array([[1.0], [100.0]])  # far apart: hardly any shrinkage
    variance = np.array([[0.04], [2_500.0]])
    own, shared, call = mean_errors(count, count * mean, count * mean**2 + (count - 1.0) * variance)
    assert call[1] == pytest.approx(50.0, rel=0.02)  # 0.5 of its mean
    assert 0.2 < call[0] < 10.0  # its own four calls, and eight in proportion to its mean: one for both would be 50
    assert own[1] == pytest.approx(call[1] / 20.0, rel=0.05)
    assert own[0] >= call[0] / np.sqrt(12.0)
    assert shared[1] < own[1]
    nothing = np.zeros((2, 3))
    assert not any(one.any() for one in mean_errors(nothing, nothing, nothing))


def test_the_rounding_that_moved_contexts_leave_makes_no_spread():
    count = np.array([[13.0, 2.0**-55], [23.0, 5.0], [15.0, 2.0**-55], [3.0, 2.0**-55]])
    total = np.array([[11.0, 2.0**-55], [17.0, 4.0], [13.0, 2.0**-55], [1.0, 0.0]])
    of = spreads(count, total, total)
    assert of.identified.tolist() == [True, False]
    assert of.strength is not None


def test_a_sum_that_rounding_leaves_of_observations_taken_back_gives_no_mean():
    count, total = np.array([[2.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 2e-17], [0.5, 0.0]])
    means = shrunk_means(count, total, total, shrink=True)
    assert np.isnan(means[:, 1]).all()
    assert means[:, 0] == pytest.approx([0.5, 0.5])
