import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Estimates
from wiserouter.errors import InvalidInput


def filled(seed, n_contexts=4, n_models=3, n=60):
    rng = np.random.default_rng(seed)
    estimates = Estimates(n_contexts, n_models)
    reward, cost = rng.random((n, n_models)), rng.random((n, n_models))
    reward[rng.random(reward.shape) < 0.3] = np.nan
    estimates.add_table(rng.integers(n_contexts, size=n), reward, cost)
    return estimates


def test_plain_means_are_means():
    rng = np.random.default_rng(0)
    contexts, reward, cost = rng.integers(3, size=50), rng.random((50, 2)), rng.random((50, 2))
    estimates = Estimates(3, 2)
    estimates.add_table(contexts, reward, cost)
    means = estimates.means(shrink=False)
    for j in range(3):
        assert means.reward[j] == pytest.approx(reward[contexts == j].mean(axis=0))
        assert means.cost_usd[j] == pytest.approx(cost[contexts == j].mean(axis=0))


def test_one_by_one_equals_the_table():
    rng = np.random.default_rng(1)
    contexts, reward, cost = rng.integers(3, size=20), rng.random((20, 2)), rng.random((20, 2))
    table, single = Estimates(3, 2), Estimates(3, 2)
    table.add_table(contexts, reward, cost)
    for j, u, c in zip(contexts, reward, cost, strict=True):
        for k in range(2):
            single.add_cost(j, k, c[k])
            single.add_reward(j, k, u[k])
    assert not table.scored.any()  # no call of a table was decided here
    assert single.scored.sum() == 40
    for name in set(table.arrays()) - {"scored", "delay_s"}:
        assert single.arrays()[name] == pytest.approx(table.arrays()[name]), name
    assert single.n_observations == table.n_observations == 80


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(4)))
def test_merging_commutes(order):
    merged, straight = Estimates(4, 3), Estimates(4, 3)
    for seed in order:
        merged.merge(filled(seed))
    for seed in range(4):
        straight.merge(filled(seed))
    for name, array in straight.arrays().items():
        assert merged.arrays()[name] == pytest.approx(array), name


def test_a_replaced_reward_leaves_no_trace():
    replaced, plain = Estimates(1, 1), Estimates(1, 1)
    replaced.add_reward(0, 0, 0.2)
    replaced.add_reward(0, 0, 0.9, replacing=0.2)
    plain.add_reward(0, 0, 0.9)
    for name, array in plain.arrays().items():
        assert replaced.arrays()[name] == pytest.approx(array), name


def test_cells_and_models_that_were_never_seen():
    estimates = Estimates(2, 3)
    estimates.add_cost(0, 0, 0.2)
    estimates.add_reward(0, 0, 0.6)
    estimates.add_cost(0, 1, 0.4)
    for shrink in (True, False):
        means = estimates.means(shrink=shrink)
        assert means.reward.tolist() == [[0.6, 0.0, 0.0], [0.6, 0.0, 0.0]]
        assert means.cost_usd.tolist() == [[0.2, 0.4, 0.4], [0.2, 0.4, 0.4]]


def test_nothing_seen_is_an_error():
    with pytest.raises(InvalidInput, match="at least one cost"):
        Estimates(2, 3).means()


def test_arrays_bring_estimates_back():
    estimates = filled(0)
    estimates.add_invoked(1, 2)
    again = Estimates.of_arrays(estimates.arrays())
    assert again.n_invoked == 1
    assert again.n_observations == estimates.n_observations
    again.add_cost(0, 0, 1.0)  # a copy: the first stays as it was
    assert again.calls[0, 0] == estimates.calls[0, 0] + 1


def test_shapes_must_match():
    with pytest.raises(InvalidInput, match=r"shape \(4, 3\), got \(1, 1\)"):
        filled(0).merge(Estimates(1, 1))
    with pytest.raises(InvalidInput, match="n_models"):
        Estimates(1, 0)
