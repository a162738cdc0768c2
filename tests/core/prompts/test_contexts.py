import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from wiserouter import Contexts
from wiserouter.errors import InvalidInput
from wiserouter.prompts import contexts as module

BLOBS = np.concatenate([np.random.default_rng(j).normal(10 * j, 0.1, (20 * (j + 1), 3)) for j in range(3)])


@settings(max_examples=100, deadline=None)
@given(
    arrays(np.float32, st.tuples(st.integers(2, 20), st.just(5)), elements=st.floats(-10, 10, width=32)),
    arrays(np.float32, 5, elements=st.floats(-10, 10, width=32)),
)
def test_assign_finds_a_nearest_centroid(centroids, x):
    contexts = Contexts(centroids, np.full(len(centroids), 1 / len(centroids)))
    distance = np.linalg.norm(centroids.astype(float) - x, axis=1)
    assert distance[contexts.assign(x)] == pytest.approx(distance.min(), abs=1e-3)
    assert contexts.assign_many(x[None, :])[0] == contexts.assign(x)


def test_fit_finds_the_blobs_and_their_shares():
    contexts = Contexts.fit(BLOBS, 3, seed=0)
    assert sorted(contexts.freq.tolist()) == pytest.approx([20 / 120, 40 / 120, 60 / 120])
    labels = contexts.assign_many(BLOBS)
    assert len(set(labels[:20])) == len(set(labels[20:60])) == len(set(labels[60:])) == 1


def test_the_same_seed_gives_the_same_contexts():
    a, b = (Contexts.fit(BLOBS, 5, seed=3) for _ in range(2))
    assert np.array_equal(a.centroids, b.centroids)


def test_mini_batches_find_the_blobs_too(monkeypatch):
    monkeypatch.setattr(module, "MINI_BATCH_ROWS", 10)
    assert sorted(Contexts.fit(BLOBS, 3, seed=0).freq.tolist()) == pytest.approx([1 / 6, 2 / 6, 3 / 6])


def test_fewer_distinct_rows_than_contexts_give_fewer_contexts():
    rows = np.repeat([[0.0, 1.0], [1.0, 0.0]], 10, axis=0)
    assert Contexts.fit(rows, 8).n_contexts == 2


def test_single_needs_no_embedding():
    assert Contexts.single().assign([1.0, 2.0]) == 0
    assert Contexts.single().assign_many(np.zeros((3, 0))).tolist() == [0, 0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_embedding_that_is_not_finite_is_refused(bad):
    contexts = Contexts([[0.0, 0.0], [1.0, 1.0]], [0.5, 0.5])
    with pytest.raises(InvalidInput, match="finite"):
        contexts.assign([0.0, bad])
    with pytest.raises(InvalidInput, match="row 1"):
        contexts.assign_many([[0.0, 0.0], [0.0, bad]])


def test_wrong_shapes_are_refused():
    contexts = Contexts([[0.0, 0.0], [1.0, 1.0]], [0.5, 0.5])
    with pytest.raises(InvalidInput, match=r"shape \(2,\), got \(3,\)"):
        contexts.assign([0.0, 0.0, 0.0])
    with pytest.raises(InvalidInput, match="2 columns, got 3"):
        contexts.assign_many([[0.0, 0.0, 0.0]])
    with pytest.raises(InvalidInput, match="at most the number of queries, 3"):
        Contexts.fit(np.eye(3), 4)
    with pytest.raises(InvalidInput, match="one share per centroid"):
        Contexts([[0.0], [1.0]], [1.0])
    with pytest.raises(InvalidInput, match="matrix of numbers"):
        Contexts.fit([["a"]], 1)
    with pytest.raises(InvalidInput, match="n >= 1"):
        Contexts.fit(np.zeros((0, 3)), 1)
