import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Estimates
from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import FIELDS
from wiserouter.pricing.prices import Usage


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


AMOUNTS = st.floats(0.0, 1e6)
CELLS = st.tuples(st.integers(0, 2), st.integers(0, 1))
ADDITIONS = st.one_of(
    st.tuples(st.just("cost"), CELLS, AMOUNTS, st.none() | st.integers(0, 9000)),
    st.tuples(st.just("reward"), CELLS, AMOUNTS, st.floats(0.0, 1.0), st.none() | AMOUNTS, st.floats(-5.0, 1e5)),
    st.tuples(st.just("invoked"), CELLS, st.sampled_from([1, -1])),
)


def add_cost(estimates, cell, cost, tokens):
    estimates.add_cost(*cell, np.float64(cost), None if tokens is None else Usage(tokens, 2 * tokens))
    usage = {} if tokens is None else {"metered": 1.0, "input_tokens": tokens, "output_tokens": 2 * tokens}
    return {"calls": 1.0, "cost": cost, "cost_sq": cost * cost} | usage


def add_reward(estimates, cell, reward, weight, old, delay_s):
    estimates.add_reward(*cell, reward, weight=weight, replacing=old, replaced_weight=0.5, delay_s=delay_s)
    old, old_weight = (0.0, 0.0) if old is None else (old, 0.5)
    more = weight - old_weight
    return {
        "scored": more,
        "delay_s": more * max(delay_s, 0.0),
        "labels": more,
        "reward": weight * reward - old_weight * old,
        "reward_sq": weight * reward * reward - old_weight * old * old,
    }


def add_invoked(estimates, cell, count):
    estimates.add_invoked(*cell, count)
    return {"invoked": count, "met": count}


ADD = {"cost": add_cost, "reward": add_reward, "invoked": add_invoked}


@settings(max_examples=60, deadline=None)
@given(st.lists(ADDITIONS), st.lists(ADDITIONS))
def test_every_addition_is_in_the_arrays_bit_by_bit(first, second):
    estimates, expected = Estimates(3, 2), {name: np.zeros((3, 2)) for name in FIELDS}

    def add(additions):
        for kind, cell, *amounts in additions:
            for field, amount in ADD[kind](estimates, cell, *amounts).items():
                expected[field][cell] += amount

    add(first)
    estimates.fade(0.7)
    estimates.add_model([0.5] * 3, [0.1] * 3, 0.0)
    estimates = estimates.copy()
    expected = {name: np.column_stack([0.7 * array, np.zeros(3)]) for name, array in expected.items()}
    add(second)
    for field, array in estimates.arrays().items():
        assert np.array_equal(array, expected[field]), field


def test_no_addition_lands_beyond_the_arrays():
    estimates = Estimates(2, 2)
    for cell in ((2, 0), (0, 2)):
        with pytest.raises(IndexError):
            estimates.add_cost(*cell, 1.0)
