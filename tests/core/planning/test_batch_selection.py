"""The preference of an allocation for what looks cheap, against simulated estimates."""

import numpy as np
import pytest

from wiserouter.planning.batch_allocation import BatchProgram
from wiserouter.planning.batch_margin import CostErrors
from wiserouter.planning.batch_selection import MOST_ROWS, selection_usd

GROUPS, MODELS, QUERIES = 6, 4, 600
REWARD = np.random.default_rng(1).random((QUERIES, MODELS))
TRUTH = np.random.default_rng(2).uniform(0.8, 1.2, (GROUPS, MODELS)) * [1.0, 1.2, 1.5, 2.0]
GROUP = np.arange(QUERIES) % GROUPS


def errors_of(deviation, shared=0.0):
    return CostErrors(0.9, GROUP, deviation * TRUTH, TRUTH, shared * TRUTH)


@pytest.mark.parametrize(("deviation", "shared"), [(0.1, 0.0), (0.2, 0.0), (0.05, 0.2)])
def test_the_cost_beyond_the_estimates_is_that_of_simulated_estimates(deviation, shared):
    errors, rng, budget, beyond, found = errors_of(deviation, shared), np.random.default_rng(3), 800.0, [], []
    for _ in range(150):
        estimate = (TRUTH + errors.drawn(rng))[GROUP]
        model = BatchProgram(REWARD, estimate).allocate(budget).model
        beyond.append((TRUTH[GROUP] - estimate)[np.arange(QUERIES), model].sum())
        found.append(selection_usd(REWARD, estimate, errors, budget))
    noise = np.std(beyond) / np.sqrt(len(beyond))
    assert np.mean(beyond) > 2 * noise  # there is something to find
    assert np.mean(found) == pytest.approx(np.mean(beyond), rel=0.3, abs=2 * noise)


def test_without_errors_and_at_the_floor_it_is_nothing_and_the_same_each_time():
    cost = TRUTH[GROUP]
    assert selection_usd(REWARD, cost, errors_of(0.0), 800.0) == 0.0
    assert selection_usd(REWARD, cost, errors_of(0.1), 1.0) >= 0.0  # below the floor, the cheapest models
    first = selection_usd(REWARD, cost, errors_of(0.1), 800.0)
    assert first == selection_usd(REWARD, cost, errors_of(0.1), 800.0) > 0.0


def test_a_large_batch_is_sampled_and_scaled():
    times = 10
    many = CostErrors(0.9, np.tile(GROUP, times), 0.1 * TRUTH, TRUTH)
    large = selection_usd(np.tile(REWARD, (times, 1)), np.tile(TRUTH[GROUP], (times, 1)), many, times * 800.0)
    assert times * QUERIES > MOST_ROWS
    assert large == pytest.approx(times * selection_usd(REWARD, TRUTH[GROUP], errors_of(0.1), 800.0), rel=0.3)


def test_models_that_cannot_take_a_query_stay_out():
    cost = TRUTH[GROUP]
    cost[::2, 3] = np.inf
    assert np.isfinite(selection_usd(REWARD, cost, errors_of(0.1), 800.0))
