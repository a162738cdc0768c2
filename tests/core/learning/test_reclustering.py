"""Contexts that are fitted while serving: no observation is lost."""

import itertools
import time

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Growing, MemoryStore, Model, Price, WiseRouter
from wiserouter.errors import InvalidInput, WiseRouterError
from wiserouter.learning.estimates import Estimates
from wiserouter.pricing.prices import Usage

CENTRES = np.eye(4, 8)
SKILL = np.array([[0.9, 0.2], [0.2, 0.9], [0.9, 0.2], [0.2, 0.9]])


def growing_router(**settings):
    growing = Growing(
        **{"n_contexts": 4, "first_after": 40, "per_context": 20, "keep": 300, "background": False, **settings}
    )
    models = [Model("a", Price(1e-6, 1e-6)), Model("b", Price(1e-6, 1e-6))]
    now = itertools.count()
    router = WiseRouter(models, growing=growing, store=MemoryStore(lambda: float(next(now))), seed=0)
    router.start(Budget(1e6, 100_000))
    return router


def query(rng, topic=None):
    topic = int(rng.integers(4)) if topic is None else topic
    return topic, CENTRES[topic] + rng.normal(0, 0.05, 8)


def serve(router, rng, n):
    """Serve `n` queries, and return the chances of a right answer that were chosen."""
    worth = []
    for _ in range(n):
        topic, embedding = query(rng)
        decision = router.decide(embedding=embedding)
        chance = SKILL[topic, router.pool.index(decision.model)]
        router.charge(decision, usage=Usage(100, 50))
        router.reward(decision, float(rng.random() < chance))
        worth.append(chance)
    return np.array(worth)


def sums(estimates):
    return {name: table.sum(axis=0) for name, table in estimates.arrays().items() if name != "met"}


def test_from_one_context_to_four_that_are_told_apart():
    router, rng = growing_router(), np.random.default_rng(0)
    assert router.contexts.n_contexts == 1
    blind = serve(router, rng, 39).mean()
    worth = serve(router, rng, 1_500)
    assert router.contexts.n_contexts == 4
    assert blind < 0.7
    assert worth[-500:].mean() > 0.88
    assert router.estimates.labels.sum() == pytest.approx(1_539)


def test_a_move_loses_no_sum_kept_or_not():
    router, rng = growing_router(keep=100), np.random.default_rng(1)
    serve(router, rng, 39)
    serve(router, rng, 700)
    before = sums(router.estimates)
    router.refit_contexts(3)
    assert router.contexts.n_contexts == 3
    after = sums(router.estimates)
    for name, total in before.items():
        assert after[name] == pytest.approx(total), name
    assert router.estimates.n_invoked == 739


def test_kept_queries_move_exactly_to_where_their_embedding_falls():
    growing = Growing(4, keep=50, background=False)
    router = WiseRouter([Model("a"), Model("b")], growing=growing, seed=0)
    router.start(Budget(1e6, 1_000))
    rng, seen = np.random.default_rng(2), []
    for _ in range(40):
        _, embedding = query(rng)
        decision = router.decide(embedding=embedding)
        router.charge(decision, 1.0)
        router.reward(decision, 1.0)
        seen.append((embedding, router.pool.index(decision.model)))
    router.refit_contexts(4)
    expected = Estimates(4, 2)
    for embedding, model in seen:
        expected.add_cost(router.contexts.assign(embedding), model, 1.0)
    assert np.allclose(router.estimates.calls, expected.calls)
    assert np.allclose(router.estimates.labels, expected.calls)


def test_queries_that_came_while_contexts_were_fitted_are_placed_once(monkeypatch):
    growing, rng = Growing(4, background=False), np.random.default_rng(6)
    n_placed, assign_many = [], Contexts.assign_many
    for i in range(40):
        growing.add(str(i), query(rng)[1].astype(np.float32), 0, 0)
    fitted = growing.fit(4, None)._replace(placed={})
    monkeypatch.setattr(Contexts, "assign_many", lambda own, rows: n_placed.append(len(rows)) or assign_many(own, rows))
    growing.move(Estimates(1, 2), fitted, None)
    assert n_placed == [40]


def test_calls_in_flight_and_late_rewards_find_their_new_context():
    router, rng = growing_router(keep=60), np.random.default_rng(3)
    early = [router.decide(embedding=query(rng, 1)[1]) for _ in range(10)]
    serve(router, rng, 20)
    late = router.decide(embedding=query(rng, 2)[1])
    serve(router, rng, 50)  # the first ones are kept no longer, and contexts have moved
    assert router.contexts.n_contexts > 1
    for decision in (*early, late):
        router.charge(decision, usage=Usage(100, 50))
        router.reward(decision, 1.0)
    calls = router.estimates.calls.sum()
    assert calls == pytest.approx(81)
    assert (router.estimates.labels >= 0).all()
    failed = router.decide(embedding=query(rng)[1])
    router.release(failed)
    router.refit_contexts()
    assert router.estimates.invoked.sum() == pytest.approx(81)


def test_contexts_are_fitted_in_a_thread_while_requests_go_on():
    router, rng = growing_router(background=True), np.random.default_rng(4)
    deadline = time.monotonic() + 60
    while router.contexts.n_contexts == 1 and time.monotonic() < deadline:
        serve(router, rng, 10)
    assert router.contexts.n_contexts > 1


def test_recent_traffic_makes_new_contexts():
    router, rng = growing_router(refit_after=200), np.random.default_rng(5)
    serve(router, rng, 500)
    former = router.contexts.centroids
    for _ in range(600):  # other questions than before
        decision = router.decide(embedding=-CENTRES[int(rng.integers(4))] + rng.normal(0, 0.05, 8))
        router.charge(decision, 1.0)
    assert router.contexts.centroids.sum() < 0 < former.sum()


def test_text_is_encoded_from_the_first_query_on():
    kinds = {"sort": CENTRES[0], "poem": CENTRES[1]}
    encoder = lambda texts: np.array([kinds[text.split()[0]] for text in texts], dtype=np.float32)  # noqa: E731
    router = WiseRouter(
        [Model("a"), Model("b")], encoder=encoder, growing=Growing(2, first_after=4, per_context=2, background=False)
    )
    router.start(Budget(10.0, 100))
    for i in range(8):
        router.charge(router.decide(f"{'sort' if i % 2 else 'poem'} {i}"), 0.01)
    assert router.contexts.n_contexts == 2
    assert router.decide("sort it").context != router.decide("poem please").context


def test_a_context_found_before_a_move_gives_way_to_the_embedding():
    router, rng = growing_router(), np.random.default_rng(6)
    serve(router, rng, 200)
    _, embedding = query(rng)
    decision = router.decide(context=0, embedding=embedding)
    assert decision.context == router.contexts.assign(embedding)


def test_mistakes_are_refused():
    with pytest.raises(InvalidInput, match="keep must be a whole number of at least 16"):
        Growing(keep=10)
    router = WiseRouter([Model("a")], growing=None)
    with pytest.raises(InvalidInput, match="growing=Growing"):
        router.refit_contexts()
    router = growing_router()
    with pytest.raises(InvalidInput, match="got none"):
        router.refit_contexts()
    serve(router, np.random.default_rng(7), 5)
    with pytest.raises(WiseRouterError, match="at most the number of queries"):
        router.refit_contexts(30)
    assert router.contexts.n_contexts == 1


def test_an_artifact_holds_the_contexts_of_the_moment(tmp_path):
    router, rng = growing_router(), np.random.default_rng(8)
    serve(router, rng, 300)
    router.save(tmp_path / "grown.wise")
    loaded = WiseRouter.load(tmp_path / "grown.wise")
    assert np.array_equal(loaded.contexts.centroids, router.contexts.centroids)
    assert isinstance(loaded.contexts, Contexts)
    assert np.allclose(loaded.estimates.labels, router.estimates.labels)
