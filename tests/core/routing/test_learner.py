"""The learner: observations reach all that learn from them, and shape follows the pool and the contexts."""

import numpy as np
import pytest

from support.engine_model import ModelEngine
from wiserouter import Contexts, Estimates, Growing, Model, Offline, Optimistic, Price, Usage, Watch
from wiserouter.artifacts.parts import RouterParts
from wiserouter.errors import InvalidInput, UnknownModel
from wiserouter.learning.residuals import QueryResiduals, Ridge
from wiserouter.routing.learner import Learner
from wiserouter.stores import Record
from wiserouter.stores.engines.base import ReadRequest, Reply
from wiserouter.stores.shared.estimate_sync import EstimateSync
from wiserouter.types import NO_CONTEXT, Decision

MODELS = (Model("small", Price(1e-6, 2e-6)), Model("large", Price(1e-5, 3e-5)))


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def parts(contexts=None, policy=None, residuals=None, n_contexts=2):
    contexts = contexts or Contexts(np.eye(n_contexts), [1.0 / n_contexts] * n_contexts)
    estimates = Estimates(contexts.n_contexts, len(MODELS))
    return RouterParts(MODELS, contexts, None, policy or Optimistic(), estimates, residuals)


def record(context=0, model=0, name="d", decided_at=0.0):
    decision = Decision(name, MODELS[model].name, context, 1.0, 1.0, 0.0, 1.0, 0.5, 1.0, "default", decided_at)
    return Record(decision, model, "actual")


def test_a_call_is_counted_charged_and_rewarded():
    learner, one = Learner(parts(), Clock()), record(1, 1)
    learner.add_invoked(1, 1)
    learner.add_cost(one, 0.5, Usage(input_tokens=10, output_tokens=4))
    learner.add_reward(one, 0.75, None)
    learner.add_reward(one, 0.25, 0.75)
    known = learner.estimates
    assert (known.invoked[1, 1], known.calls[1, 1], known.cost[1, 1]) == (1.0, 1.0, 0.5)
    assert (known.input_tokens[1, 1], known.labels[1, 1], known.reward[1, 1]) == (10.0, 1.0, 0.25)
    learner.take_back(one)
    assert known.invoked.sum() == 0.0


def test_a_query_without_a_context_teaches_nothing():
    learner, one = Learner(parts(), Clock()), record(NO_CONTEXT)
    before = learner.copy().estimates.arrays()
    learner.add_invoked(NO_CONTEXT, 0)
    learner.add_cost(one, 0.5, None)
    learner.add_reward(one, 1.0, None)
    learner.take_back(one)
    assert all(np.array_equal(array, before[name]) for name, array in learner.estimates.arrays().items())


def test_wrong_shapes_are_refused():
    wrong = parts()._replace(estimates=Estimates(3, 2))
    with pytest.raises(InvalidInput, match=r"one row per context \(2\) and one column per model \(2\), got \(3, 2\)"):
        Learner(wrong, Clock())


def test_a_model_joins_and_a_refusal_changes_nothing():
    learner = Learner(parts(), Clock(), watch=Watch())
    with pytest.raises(InvalidInput):
        learner.add_model(Model("small"), None, None)
    with pytest.raises(InvalidInput):
        learner.add_model(Model("new"), 2.0, None)
    assert (learner.pool.names, learner.estimates.shape) == (("small", "large"), (2, 2))
    learner.add_model(Model("new", Price(1e-6, 1e-6)), 0.5, 0.1)
    assert (learner.pool.names, learner.estimates.shape) == (("small", "large", "new"), (2, 3))
    assert learner.policy.plan.n_models == 3
    learner.add_invoked(0, 1)  # the watch follows the new shape


def test_a_model_that_joins_before_any_score_has_no_score_either():
    joined = Learner(parts(), Clock())
    for name in ("a", "b"):
        joined.add_cost(record(0, 0, name), 1e-4, Usage(input_tokens=20, output_tokens=10))
    joined.add_model(Model("middle", Price(4e-6, 8e-6)), None, None)
    known = joined.estimates
    assert (known.labels.sum(), known.calls[:, 2].tolist()) == (0.0, [1.0, 1.0])
    small, large, middle = joined.policy.plan.reward[0]
    assert small < middle < large  # by their prices
    joined.add_reward(record(), 1.0, None)
    joined.add_model(Model("last", Price(4e-6, 8e-6)), None, None)
    assert known.labels[:, 3].tolist() == [1.0, 1.0]


def test_a_model_that_joins_is_believed_to_be_as_good_as_the_others_that_have_a_score():
    learner = Learner(parts(), Clock())
    for context in (0, 1):
        learner.add_reward(record(context, 0), 0.75, None)  # before a cost of any model is known
    learner.add_model(Model("middle", Price(4e-6, 8e-6)), None, None)
    known = learner.estimates
    assert (known.labels[:, 2].tolist(), known.reward[:, 2].tolist()) == ([1.0, 1.0], [0.75, 0.75])
    assert known.calls[:, 2].tolist() == [0.0, 0.0]
    learner.add_model(Model("large@low", Price(1e-5, 3e-5)), None, None)  # its only kin, `large`, has no score
    assert known.labels[:, 3].tolist() == [0.0, 0.0]


def test_a_new_price_restates_the_costs():
    learner, one = Learner(parts(), Clock()), record(0, 0)
    learner.add_cost(one, 0.5, Usage(input_tokens=10, output_tokens=4))
    learner.update_model(Model("small", Price(2e-6, 4e-6)))
    assert learner.estimates.cost[0, 0] == pytest.approx(1.0)
    assert learner.pool.models[0].price == Price(2e-6, 4e-6)
    with pytest.raises(UnknownModel):
        learner.update_model(Model("other"))


def test_contexts_grow_and_observations_move():
    growing = Growing(n_contexts=2, first_after=6, per_context=1, background=False)
    learner = Learner(parts(Contexts.single()), Clock(), growing=growing)
    assert learner.needs_embedding
    points = np.array([[1.0, 0.0], [0.0, 1.0]] * 3, dtype=np.float32)
    for i, x in enumerate(points):
        one = record(0, 0, name=f"d{i}")
        learner.add_invoked(learner.context_of(one), one.model)
        learner.keep_query(one, x)
        if i < 4:
            learner.add_cost(one, 1.0 + i % 2, None)
    assert learner.contexts.n_contexts == 2
    assert learner.estimates.shape == (2, 2)
    assert sorted(learner.estimates.cost[:, 0].tolist()) == pytest.approx([2.0, 4.0], abs=1e-6)
    late = record(0, 0, name="d0")
    learner.add_reward(late, 1.0, None)
    assert learner.estimates.reward[learner.contexts.assign(points[0]), 0] == 1.0


def test_drift_is_tested_when_a_bucket_ends(caplog):
    caplog.set_level("INFO", "wiserouter")
    clock, rng = Clock(), np.random.default_rng(0)
    learner = Learner(parts(n_contexts=1), clock, watch=Watch(bucket_requests=200))
    for i in range(800):
        one = record(0, 0)
        learner.add_invoked(0, 0)
        learner.add_reward(one, float(rng.random() < (0.9 if i < 400 else 0.1)), None)
        clock.now_s += 1.0
        learner.add_cost(one, 1.0, None)
    assert "the rewards of small have changed" in caplog.text


def test_residuals_take_the_predicted_deviation_off():
    residuals = QueryResiduals(Ridge(np.eye(2), np.zeros((2, 2))))
    learner = Learner(parts(policy=Offline(), residuals=residuals)._replace(estimates=_table()), Clock())
    assert learner.needs_embedding
    x = np.array([1.0, 0.0], dtype=np.float32)
    one = record(0, 0)
    one.deviations = residuals.deviations(0, x)
    before = learner.estimates.reward[0, 0]
    learner.add_reward(one, 1.0, None)
    assert learner.estimates.reward[0, 0] == pytest.approx(before + 1.0 - one.deviations.reward[0])


def _table():
    estimates = Estimates(2, 2)
    estimates.add_table(np.arange(2), np.array([[0.2, 0.9], [0.5, 0.6]]), np.array([[1.0, 3.0], [1.0, 3.0]]))
    return estimates


def test_other_workers_are_heard_once():
    contexts = Contexts(np.eye(2), [0.5, 0.5])
    here, there = EstimateSync(contexts), EstimateSync(contexts)
    learner, other = (Learner(parts(contexts), Clock(), sync=sync) for sync in (here, there))
    assert not learner.merge_remote()
    other.add_reward(record(1, 1), 1.0, None)
    sent = there.outgoing(0.0)
    here.wanted(0.0)
    here.incoming(Reply(0.0, [], {}, {one.sums: one.deltas for one in sent}, {}))
    assert learner.merge_remote()
    assert learner.estimates.reward[1, 1] == 1.0
    assert not learner.merge_remote()


def test_a_copy_no_longer_changes():
    learner = Learner(parts(), Clock())
    copied = learner.copy()
    learner.add_cost(record(), 1.0, None)
    assert not copied.estimates.cost.any()
    assert copied.models == MODELS


def worker(clock):
    sync, contexts = EstimateSync(Contexts(np.eye(2), [0.5, 0.5])), Contexts(np.eye(2), [0.5, 0.5])
    return Learner(parts(contexts), clock, watch=Watch(half_life_s=3_600.0), sync=sync), sync


def exchange(engine, now_s, *workers):
    """Let all workers hear of each other."""
    for learner, sync in workers * 2:
        sync.incoming(engine.exchange(sync.outgoing(now_s), ReadRequest((), sync.wanted(now_s))))
        learner.merge_remote()


def test_workers_agree_on_releases_of_calls_of_each_other_that_have_faded():
    clock, engine = Clock(), ModelEngine()
    clock.now_s = 20_000.25 * 86_400.0
    (one, _), (other, _) = pair = worker(clock), worker(clock)
    lost = [record(1, 0, decided_at=clock.now_s) for _ in range(30)]
    for call in lost:
        one.add_invoked(1, 0)
        one.add_reward(call, 0.9, None)
    for _ in range(12):
        exchange(engine, clock.now_s, *pair)
        clock.now_s += 3_600.0
        for learner in (one, other):
            learner.check_drift()
            learner.add_invoked(0, 0)
    for call in lost:
        other.take_back(call)
        other.add_reward(call, 0.1, 0.9)
    exchange(engine, clock.now_s, *pair)
    first, second = one.estimates, other.estimates
    np.testing.assert_allclose(list(first.arrays().values()), list(second.arrays().values()), rtol=1e-9, atol=1e-9)
    assert first.met[1, 0] == pytest.approx(0.5 * 0.5**12)  # what the contexts began with
    assert first.reward[1, 0] == pytest.approx(0.1 * first.labels[1, 0])
    late = worker(clock)
    exchange(engine, clock.now_s, late)
    assert np.min(list(late[0].estimates.arrays().values())) >= 0.0
