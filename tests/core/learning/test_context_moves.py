"""Observations move linearly: whatever moves, when and in which order, each model keeps every sum."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter.learning.context_moves import KnownQueries, correction, drawn_context, moved_sums, spread_of
from wiserouter.learning.estimates import FIELDS

shapes = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(0, 30), st.integers(0, 10**6))


def world(shape, faded=1.0):
    """Return sums, of which known queries are a part, these queries, and the spread."""
    n_old, n_new, n_models, n, seed = shape
    rng = np.random.default_rng(seed)
    known = KnownQueries(
        rng.integers(n_old, size=n),
        rng.integers(n_new, size=n),
        rng.integers(n_models, size=n),
        rng.random((n, len(FIELDS))),
    )
    sums = {name: rng.random((n_old, n_models)) for name in FIELDS}
    for name, values in zip(FIELDS, known.values.T, strict=True):
        np.add.at(sums[name], (known.old, known.model), values)
        sums[name] *= faded
    freq = rng.dirichlet(np.ones(n_new))
    return sums, known, spread_of(known.old, known.new, n_old, freq)


@settings(max_examples=100, deadline=None)
@given(shape=shapes, faded=st.sampled_from([1.0, 0.5, 0.0]))
def test_no_sum_of_a_model_changes_and_none_becomes_negative(shape, faded):
    sums, known, spread = world(shape, faded)
    moved, right = moved_sums(sums, spread), correction(sums, spread, known)
    for name in FIELDS:
        assert np.allclose(right[name].sum(axis=0), 0.0, atol=1e-9)
        assert np.allclose((moved[name] + right[name]).sum(axis=0), sums[name].sum(axis=0))
        assert (moved[name] + right[name] >= -1e-9).all()


@settings(max_examples=50, deadline=None)
@given(shape=shapes)
def test_known_queries_lie_exactly_where_they_belong(shape):
    sums, known, spread = world(shape)
    moved, right = moved_sums(sums, spread), correction(sums, spread, known)
    for name, values in zip(FIELDS, known.values.T, strict=True):
        exact, others = np.zeros_like(moved[name]), sums[name].copy()
        np.add.at(exact, (known.new, known.model), values)
        np.add.at(others, (known.old, known.model), -values)
        assert np.allclose(moved[name] + right[name], exact + spread.T @ others)


@settings(max_examples=50, deadline=None)
@given(shape=shapes, late=st.integers(0, 10**6))
def test_sums_that_arrive_later_move_as_if_they_had_come_before(shape, late):
    sums, _, spread = world(shape)
    more = {name: np.random.default_rng(late).random(table.shape) for name, table in sums.items()}
    together = moved_sums({name: sums[name] + more[name] for name in FIELDS}, spread)
    apart, later = moved_sums(sums, spread), moved_sums(more, spread)
    assert all(np.allclose(together[name], apart[name] + later[name]) for name in FIELDS)


def test_a_decision_is_drawn_in_proportion_and_always_into_the_same_context():
    spread = np.array([[0.2, 0.3, 0.5]])
    drawn = [drawn_context(f"decision {i}", 0, [spread]) for i in range(3_000)]
    assert np.allclose(np.bincount(drawn) / 3_000, spread[0], atol=0.04)
    assert drawn == [drawn_context(f"decision {i}", 0, [spread]) for i in range(3_000)]
    assert drawn_context("d", 7, [spread]) == -1
    assert drawn_context("d", 0, []) == 0
