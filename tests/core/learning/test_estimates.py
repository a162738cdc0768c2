import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Estimates
from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import FIELDS
from wiserouter.learning.fading import Left
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
    st.tuples(st.just("reward"), CELLS, AMOUNTS, st.floats(0.0, 1.0), st.floats(-5.0, 1e5)),
    st.tuples(st.just("invoked"), CELLS, st.integers(1, 9)),
)


def add_cost(estimates, cell, cost, tokens):
    estimates.add_cost(*cell, np.float64(cost), None if tokens is None else Usage(tokens, 2 * tokens))
    usage = {} if tokens is None else {"metered": 1.0, "input_tokens": tokens, "output_tokens": 2 * tokens}
    return {"calls": 1.0, "cost": cost, "cost_sq": cost * cost} | usage


def add_reward(estimates, cell, reward, weight, delay_s):
    estimates.add_reward(*cell, reward, weight=weight, delay_s=delay_s)
    return {
        "scored": weight,
        "delay_s": weight * max(delay_s, 0.0),
        "labels": weight,
        "reward": weight * reward,
        "reward_sq": weight * reward * reward,
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
    estimates.add_model([0.5] * 3, [0.1] * 3, 0.0, 0.0)
    estimates = estimates.copy()
    expected = {name: np.column_stack([0.7 * array, np.zeros(3)]) for name, array in expected.items()}
    add(second)
    for field, array in estimates.arrays().items():
        assert np.array_equal(array, expected[field]), field


SHARES = st.floats(0.0, 1.0)
STEPS = st.one_of(
    st.tuples(st.just("decide"), CELLS),
    st.tuples(st.just("release"), CELLS, SHARES),
    st.tuples(st.just("score"), CELLS, SHARES, SHARES),
    st.tuples(st.just("score again"), CELLS, SHARES, SHARES, SHARES),
    st.tuples(st.just("fade"), SHARES),
    st.tuples(st.just("hear"), st.lists(st.tuples(CELLS, st.sampled_from(["labels", "reward", "met"]), SHARES))),
)


def take(estimates, step, cell, *shares):
    """Take one step of `STEPS`, whatever was added before."""
    if step == "decide":
        estimates.add_invoked(*cell)
    elif step == "release":
        estimates.take_back(*cell, Left(*(shares[0],) * 4))
    elif step == "score":
        estimates.add_reward(*cell, shares[0], weight=shares[1])
    elif step == "score again":
        estimates.add_reward(*cell, shares[0], replacing=shares[1], left=Left(*(shares[2],) * 4))
    elif step == "fade":
        estimates.fade(cell)
    else:
        other = Estimates(*estimates.shape)
        for at, field, amount in cell:
            getattr(other, field)[at] -= amount
        estimates.merge(other)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS))
def test_whatever_is_taken_back_no_sum_is_negative_and_no_mean_out_of_range(steps):
    estimates = Estimates(3, 2)
    for step in steps:
        take(estimates, *step)
        for field, array in estimates.arrays().items():
            assert (array >= 0.0).all(), field
        assert (estimates.reward <= estimates.labels * (1.0 + 1e-9)).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_workers_agree_whichever_hears_first_of_a_decision_or_of_its_release(seed, n_decisions):
    changes, rng = [], np.random.default_rng(seed)
    for _ in range(n_decisions):
        decided, released = Estimates(1, 1), Estimates(1, 1)
        decided.add_invoked(0, 0)
        decided.add_reward(0, 0, 0.9)
        released.invoked -= 1.0
        released.met -= 1.0
        released.reward += 0.2 - 0.9
        released.reward_sq += 0.2**2 - 0.9**2
        changes += [decided, released]
    for _ in range(2):
        worker = Estimates(1, 1)
        for at in rng.permutation(len(changes)):
            worker.merge(changes[at])
        assert worker.met[0, 0] == pytest.approx(0.0, abs=1e-9)
        assert worker.labels[0, 0] == n_decisions
        assert worker.reward[0, 0] == pytest.approx(0.2 * n_decisions)


def test_rewards_less_a_deviation_are_merged_as_they_are_beside_a_release():
    known, other = Estimates(1, 3), Estimates(1, 3)
    known.add_invoked(0, 2)
    for model, reward in enumerate((1.15, -0.15)):
        other.add_reward(0, model, reward)
    other.invoked[0, 2] -= 1.0
    for n in range(1, 4):
        known.merge(other)
        np.testing.assert_allclose(known.reward[0], [n * 1.15, n * -0.15, 0.0])
        other.invoked[0, 2] = 0.0


def test_no_addition_lands_beyond_the_arrays():
    estimates = Estimates(2, 2)
    for cell in ((2, 0), (0, 2)):
        with pytest.raises(IndexError):
            estimates.add_cost(*cell, 1.0)
