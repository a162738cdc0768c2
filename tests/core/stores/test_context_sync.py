"""Workers share the contexts that they fit: one version for all, and no observation lost or counted twice."""

import copy
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.engine_model import ModelEngine
from support.questions import SKILL, question
from support.redis_servers import MISSING, redis_server
from wiserouter import Budget, Contexts, Growing, Model, Price, Usage, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import FIELDS
from wiserouter.prompts.encoders.hashing import HashingTfidf
from wiserouter.stores.shared.shared_contexts import ContextMove, SharedContexts
from wiserouter.stores.shared.store import SharedStore

MODELS = [Model("a", Price(1e-6, 2e-6)), Model("b", Price(1e-6, 2e-6))]
WORKER = Path(__file__).parents[2] / "support" / "context_worker.py"


class Hand:
    """A clock that moves by hand."""

    def __init__(self):
        self.now_s = 1_000.0

    def __call__(self):
        return self.now_s


def worker(engine, clock, seed=0, **growing):
    store = SharedStore(engine, clock=clock, refresh_s=1.0)
    store._worker.client.closed = True  # exchanges by hand only
    terms = {"n_contexts": 4, "first_after": 40, "per_context": 10, "background": False, **growing}
    router = WiseRouter(MODELS, store=store, growing=Growing(**terms), seed=seed, watch=None)
    router.start(Budget(100.0, 100_000))
    return router


def serve(router, rng, n, *, score=True):
    """Serve `n` questions; return the decisions."""
    made = []
    for _ in range(n):
        kind = int(rng.integers(4))
        decision = router.decide(question(rng, kind))
        router.charge(decision, usage=Usage(100, 50))
        if score:
            right = rng.random() < SKILL[kind, router.pool.index(decision.model)]
            router.reward(decision, float(right))
        made.append(decision)
    return made


def exchange(routers, times=4, step_s=11.0):
    for _ in range(times):
        for router in routers:
            router._store._worker._clock.now_s += step_s
            router._store._worker.client._engine.now_s += step_s
            router._store.refresh()
            with router._lock:
                router._learner.merge_remote()


def totals(router):
    return {name: table.sum() for name, table in router.estimates.arrays().items()}


def assert_all_know(routers, **expected):
    """Check that all workers have the same contexts and the same sums, which add up to those expected."""
    first = routers[0]
    for router in routers:
        assert np.array_equal(router.contexts.centroids, first.contexts.centroids)
        for name in FIELDS:
            mine, its = getattr(router.estimates, name), getattr(first.estimates, name)
            np.testing.assert_allclose(mine, its, rtol=1e-6, atol=1e-6, err_msg=name)
        for name, total in expected.items():
            assert totals(router)[name] == pytest.approx(total, abs=1e-6), name


def test_one_worker_fits_and_all_take_over_its_contexts():
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(0)
    one, two = worker(engine, clock), worker(engine, clock, seed=1)
    serve(one, rng, 60)
    serve(two, rng, 30)
    exchange([one, two])
    assert one.contexts.n_contexts > 1
    assert_all_know([one, two], invoked=90, calls=90, labels=90)
    text = question(rng, 0)
    assert np.array_equal(one.encoder.encode(text), two.encoder.encode(text))


def test_a_worker_that_starts_later_knows_all_that_the_others_know():
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(1)
    one, two = worker(engine, clock, n_contexts=16), worker(engine, clock, seed=1, n_contexts=16)
    for _ in range(6):
        serve(one, rng, 40)
        serve(two, rng, 40)
        exchange([one, two])
    assert one._learner.version >= 2
    late = worker(engine, clock, seed=2, n_contexts=16)
    exchange([late, one, two])
    assert_all_know([one, two, late], invoked=480, calls=480, labels=480)
    serve(late, rng, 20)
    exchange([late, one, two])
    assert_all_know([one, two, late], invoked=500, calls=500, labels=500)


def test_a_worker_knows_all_at_its_start():
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(1)
    one = worker(engine, clock, n_contexts=16)
    for _ in range(6):
        serve(one, rng, 40)
        exchange([one])
    assert one._learner.version >= 2
    late = worker(engine, clock, seed=2, n_contexts=16, background=True)
    assert not late._learner.is_behind
    assert_all_know([one, late], invoked=240, calls=240, labels=240)


@pytest.mark.parametrize(
    "shown",
    [
        lambda router: router.estimates,
        lambda router: router.parts().estimates,
        lambda router: router.status() and router._learner.estimates,
        lambda router: router.plan and router._learner.estimates,
        lambda router: router.sums_of_days([0]) and router._learner.estimates,
    ],
)
def test_what_was_read_is_shown_before_the_next_decision(shown):
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(1)
    one, two = worker(engine, clock), worker(engine, clock, seed=1)
    serve(one, rng, 10)
    for router in (one, two):
        router._store.refresh()
    assert shown(two).calls.sum() == 10


def test_both_workers_fit_at_once_and_one_version_counts():
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(2)
    one, two = worker(engine, clock), worker(engine, clock, seed=1)
    serve(one, rng, 50)  # both have fitted before either exchange
    serve(two, rng, 50)
    assert one._learner._sync._publishing is not None
    assert two._learner._sync._publishing is not None
    exchange([one, two])
    assert one._learner.version == two._learner.version == 1
    assert_all_know([one, two], invoked=100, calls=100, labels=100)


def test_scores_of_decisions_made_under_former_contexts_count_once_wherever_they_arrive():
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(3)
    one, two = worker(engine, clock, keep=60), worker(engine, clock, seed=1, keep=60)
    unscored = serve(one, rng, 30, score=False)
    serve(one, rng, 60)
    exchange([one, two])
    assert one._learner.version == 1
    for at, decision in enumerate(unscored):
        (one if at % 2 else two).reward(decision.id, 1.0)
        (two if at % 2 else one).reward(decision.id, 0.5)  # replaces it, at the other worker
    exchange([one, two])
    for router in (one, two):
        assert router.estimates.labels.sum() == pytest.approx(90)
        assert router.estimates.calls.sum() == pytest.approx(90)
    assert totals(one)["reward"] == pytest.approx(totals(two)["reward"])


def test_a_score_from_contexts_that_this_worker_does_not_know_yet_is_not_lost():
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(4)
    one, two = worker(engine, clock), worker(engine, clock, seed=1)
    serve(one, rng, 60)
    exchange([one])
    (decision,) = serve(one, rng, 1, score=False)
    one._store.refresh()
    assert (one._learner.version, two._learner.version) == (1, 0)
    two.reward(decision.id, 1.0)
    exchange([one, two])
    assert_all_know([one, two], labels=61, invoked=61)


def test_the_contexts_outlive_a_store_that_has_lost_them():
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(5)
    one, two = worker(engine, clock), worker(engine, clock, seed=1)
    serve(one, rng, 60)
    exchange([one, two])
    engine.notes.clear()
    exchange([one, two])
    assert engine.notes
    late = worker(engine, clock, seed=2)
    exchange([late])
    assert np.array_equal(late.contexts.centroids, one.contexts.centroids)


def test_what_was_learned_in_former_contexts_counts_once_where_a_store_goes_back_to_them():
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(5)
    one, two = worker(engine, clock), worker(engine, clock, seed=1)
    serve(one, rng, 20)
    exchange([one, two])
    former = copy.deepcopy({name: getattr(engine, name) for name in ("sums", "learnt", "notes", "workers")})
    for n in (15, 25):
        serve(one, rng, n)
        exchange([one, two])
    assert one._learner.version == two._learner.version == 1
    vars(engine).update(former)
    exchange([one, two], step_s=1.0)  # in which the sums of former contexts are not due
    exchange([one, two])
    assert_all_know([one, two], invoked=60, calls=60, labels=60)


def test_a_worker_that_ends_while_it_fits_holds_up_none():
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(6)
    one, two = worker(engine, clock), worker(engine, clock, seed=1)
    serve(one, rng, 50)
    assert one._learner._sync._publishing is not None
    del one  # it never sends what it fitted
    serve(two, rng, 50)
    exchange([two])
    assert two._learner.version == 1


def test_contexts_of_others_that_cannot_be_read_are_left_alone(caplog):
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(7)
    one, two = worker(engine, clock), worker(engine, clock, seed=1)
    serve(one, rng, 60)
    exchange([one])
    for name in list(engine.notes):
        if name.startswith("contexts|") and name.endswith("|1"):
            engine.notes[name] = "{}"
    exchange([two])
    assert "contexts of the other workers are left alone" in caplog.text
    assert not two._learner.is_behind  # so that no start reads them again
    serve(two, rng, 5)
    assert two._learner.version == 0


def test_no_worker_takes_over_what_a_slower_one_publishes_under_a_former_number():
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(8)
    terms = {"first_after": 20, "per_context": 5, "n_contexts": 16}
    first, slower, late = (worker(engine, clock, seed=seed, **terms) for seed in range(3))
    serve(first, rng, 23)
    serve(slower, rng, 23)  # both have fitted a first version
    exchange([first, late], times=1)  # and one has published it, of which the third knows no more than the number
    for _ in range(4):
        serve(first, rng, 40)
        exchange([first], times=2)
    assert first._learner.version > 1
    exchange([slower], times=1)
    exchange([first, slower, late], times=6)
    assert_all_know([first, slower, late], invoked=206, calls=206, labels=206)


@settings(max_examples=15, deadline=None)
@given(order=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["serve", "exchange"])), min_size=5, max_size=25))
def test_however_the_exchanges_fall_each_observation_counts_once(order):
    engine, clock, rng = ModelEngine(), Hand(), np.random.default_rng(8)
    routers, served = [worker(engine, clock, seed=seed, n_contexts=16) for seed in range(3)], 0
    for which, step in order:
        if step == "serve":
            serve(routers[which], rng, 23)
            served += 23
        else:
            exchange([routers[which]], times=1)
    exchange(routers, times=6)
    assert_all_know(routers, invoked=served, calls=served, labels=served)


def test_the_text_of_contexts_is_read_back_and_damage_is_noticed():
    contexts = Contexts([[1.0, 0.0], [0.0, 1.0]], [0.25, 0.75], n_queries=8)
    encoder = HashingTfidf(dim=2).fit(["a b", "c"])
    shared = SharedContexts("s", contexts, encoder, True, 8, (ContextMove("first", np.array([[0.25, 0.75]])),))
    text = shared.to_text()
    again = SharedContexts.from_text(text)
    assert (again.sums, again.version, again.n_seen, again.refits_encoder) == ("s", 1, 8, True)
    assert np.array_equal(again.contexts.centroids, contexts.centroids)
    assert np.array_equal(again.encoder.encode("a b"), encoder.encode("a b"))
    fields = json.loads(text)
    for name in fields:
        for value in (None, 7, "x", []):
            try:
                SharedContexts.from_text(json.dumps({**fields, name: value}))
            except InvalidInput:
                continue
            assert name in ("n_queries", "sums", "encoder", "refits_encoder", "n_seen")


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("redis", marks=pytest.mark.skipif(redis_server() is None, reason=MISSING))]
)
def test_two_processes_end_with_the_same_contexts_and_all_observations(place, request, tmp_path):
    url = f"sqlite:///{tmp_path / 'b.db'}?timeout_s=60"
    if place == "redis":
        url = f"{request.getfixturevalue('server').url}?name={tmp_path.name}"
    command = [sys.executable, str(WORKER), url, "400"]
    environment = {**os.environ, "PYTHONPATH": str(WORKER.parents[1])}
    workers = [
        subprocess.Popen(
            [*command, str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for seed in range(2)
    ]
    try:
        for one in workers:
            assert one.stdout.readline() == "served\n"
        for one in workers:
            one.stdin.write("\n")
            one.stdin.flush()
        found = [json.loads(one.stdout.readline()) for one in workers]
    finally:
        for one in workers:
            one.kill()
            one.communicate()
    assert found[0]["n_contexts"] > 1
    for one, two in itertools.pairwise(found):
        assert one["centroids"] == two["centroids"]
    for one in found:
        assert one["labels"] == pytest.approx(800)
        assert one["calls"] == pytest.approx(800)
        assert one["invoked"] == pytest.approx(800)
