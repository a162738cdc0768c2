"""Workers of one store that have other models, in another order, and other contexts."""

import uuid
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wiserouter import (
    Budget,
    Contexts,
    Conversations,
    Decision,
    MemoryStore,
    Model,
    Price,
    Shadow,
    Usage,
    WiseRouter,
)
from wiserouter.learning.residuals import Deviations
from wiserouter.routing.own_records import ContextNames, own_record
from wiserouter.routing.shadow import observed_scope
from wiserouter.stores.base import Record
from wiserouter.stores.shared.codec import answered_of_text, record_of_text, text_of_name, text_of_record
from wiserouter.types import NO_CONTEXT

NAMES = ("small", "large", "other", "007")
MODELS = {name: Model(name, Price(0.0, 1e-4), max_cost_usd=1.0) for name in NAMES}


@pytest.fixture(params=["memory", "sqlite", "redis"])
def place(request, tmp_path):
    """Return a function that returns a new place for routers to share."""
    if request.param == "memory":
        return MemoryStore
    if request.param == "sqlite":
        return lambda: f"sqlite:///{tmp_path / uuid.uuid4().hex}.db"
    server = request.getfixturevalue("server")
    return lambda: f"{server.url}?name={uuid.uuid4().hex}"


def worker(store, *names, contexts=None, **options):
    one = WiseRouter([MODELS[name] for name in names], contexts, store=store, watch=None, seed=0, **options)
    one.start(Budget(100.0, 1_000))
    return one


def grouped(*rows):
    return Contexts(np.array(rows), np.full(len(rows), 1.0 / len(rows)))


def learned(store, workers, field):
    """Return the sums that workers have learned of each model, without those that are 0."""
    if not isinstance(store, MemoryStore):  # what the workers share is what one that starts later reads
        for one in workers:
            one.refresh()
        workers = [worker(store, *NAMES)]
        workers[0].refresh()
        workers[0]._learner.merge_remote()
    sums = defaultdict(float)
    for one in workers:
        for name, value in zip(one.pool.names, getattr(one.estimates, field).sum(axis=0), strict=True):
            sums[name] += float(value)
    if not isinstance(store, MemoryStore):
        workers[0].close()
    return {name: pytest.approx(value) for name, value in sums.items() if value}


POOLS = st.lists(st.permutations(NAMES).flatmap(lambda names: st.integers(1, 4).map(lambda n: names[:n])), min_size=2)


@given(pools=POOLS.filter(lambda pools: len(pools) <= 3), data=st.data())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_worker_learns_of_the_models_by_their_names(place, pools, data):
    store = place()
    workers = [worker(store, *names) for names in pools]
    costs, rewards, invoked = (defaultdict(float) for _ in range(3))
    spent_usd, one_of = 0.0, st.sampled_from(workers)
    for n in range(1, data.draw(st.integers(2, 6))):
        decider, charger, scorer = data.draw(one_of), data.draw(one_of), data.draw(one_of)
        chosen = data.draw(st.sampled_from(decider.pool.names))
        answered = data.draw(st.none() | st.sampled_from(charger.pool.names))
        decision = decider.decide(context=0, eligible=[chosen])
        decider.refresh()
        charger.charge(decision.id, 0.001 * n, model=answered)
        charger.refresh()
        scorer.reward(decision.id, 0.125 * n)
        invoked[chosen] += 1.0
        spent_usd += 0.001 * n
        name = answered or chosen
        if name in charger.pool.names:
            costs[name] += 0.001 * n
        if name in scorer.pool.names:
            rewards[name] += 0.125 * n
        assert scorer.explain(decision.id).answered_by == name
    found = {field: learned(store, workers, field) for field in ("cost", "reward", "invoked")}
    assert found == {"cost": costs, "reward": rewards, "invoked": invoked}
    workers[0].refresh()
    assert workers[0].status().spent_usd == pytest.approx(spent_usd)
    for one in workers:
        one.close()


def test_a_call_of_a_model_that_a_worker_lacks_is_counted_and_teaches_nothing(place, tmp_path):
    store = place()
    decider, other = worker(store, "small", "large"), worker(store, "small")
    journal = other.journal_to(tmp_path / "journal.jsonl")
    charged, released = (decider.decide(context=0, eligible=["large"]) for _ in range(2))
    decider.refresh()
    other.charge(charged.id, 0.25, usage=Usage(10, 10))
    assert not other.reward(charged.id, 0.5, source="judge:one")
    assert other.reward(charged.id, 0.75, source="judge:one")
    other.release(released.id)
    journal.close()
    assert other.estimates.calls.tolist() == other.estimates.labels.tolist() == [[0.0]]
    assert other.status().spent_usd == 0.25
    events = journal.path.read_text()
    assert '"model":"large"' in events.replace(" ", "")
    for one in (decider, other):
        one.close()


def test_a_score_moves_to_the_model_that_answered_also_in_another_order(place):
    store = place()
    decider, other = worker(store, "small", "large"), worker(store, "large", "small")
    decision = decider.decide(context=0, eligible=["large"])
    decider.refresh()
    other.reward(decision.id, 0.75)
    other.charge(decision.id, 0.25, model="small")
    assert dict(zip(other.pool.names, other.estimates.reward[0].tolist(), strict=True)) == {"large": 0.0, "small": 0.75}
    other.refresh()
    other.reward(decision.id, 0.25)
    assert learned(store, [decider, other], "reward") == {"small": 0.25}
    for one in (decider, other):
        one.close()


def test_a_score_that_another_worker_has_taken_moves_to_the_model_that_answered(tmp_path):
    store = f"sqlite:///{tmp_path / 'store.db'}"
    decider, other = (worker(store, "small", "large") for _ in range(2))
    decision = decider.decide(context=0, eligible=["large"])
    other.reward(decision.id, 0.75)
    other.refresh()
    decider.charge(decision.id, 0.25, model="small")
    assert learned(store, [decider, other], "reward") == {"small": 0.75}
    decider.refresh()
    other.reward(decision.id, 0.25)
    assert learned(store, [decider, other], "reward") == {"small": 0.25}
    for one in (decider, other):
        one.close()


def test_a_worker_that_decided_scores_the_model_that_another_one_says_has_answered(place):
    store = place()
    decider, other = (worker(store, "small", "large") for _ in range(2))
    decision = decider.decide(context=0, eligible=["small"])
    decider.refresh()
    other.charge(decision.id, 0.25, model="large")
    other.refresh()
    decider.reward(decision.id, 0.5)
    assert decider.estimates.reward.tolist() == [[0.0, 0.5]]
    assert decider.explain(decision.id).answered_by == "large"
    for one in (decider, other):
        one.close()


def test_an_observed_call_is_learned_for_its_incumbent_in_another_order(place):
    store = place()
    decider, other = (
        WiseRouter([MODELS[name] for name in names], store=store, watch=None, seed=0)
        for names in (("small", "large"), ("other", "large", "small"))
    )
    for one in (decider, other):
        one.shadow = Shadow()
        one.start(Budget(100.0, 1_000))
    decision = decider.observe(context=0, incumbent="large")
    decider.refresh()
    other.charge(decision.id, 0.25)
    other.refresh()
    decider.reward(decision.id, 0.5)
    assert learned(store, [decider, other], "cost") == {"large": 0.25}
    assert learned(store, [decider, other], "reward") == {"large": 0.5}
    for one in (decider, other):
        one.close()


def test_a_restart_with_a_model_in_front_takes_late_scores_for_the_model_that_answered(tmp_path):
    store = f"sqlite:///{tmp_path / 'shared.db'}"
    before = worker(store, "small", "large")
    decision = before.decide(context=0, eligible=["small"])
    before.charge(decision, 0.25, model="large")
    before.close()
    after = worker(store, "other", "small", "large")
    after.reward(decision.id, 0.5)
    assert after.estimates.reward.tolist() == [[0.0, 0.0, 0.5]]
    after.close()


@pytest.mark.parametrize("others", [None, grouped([1.0, 0.0], [0.0, 1.0]), grouped([0.0, 1.0], [1.0, 0.0], [0.5, 0.5])])
def test_only_workers_with_the_same_contexts_learn_from_each_other(place, others):
    store, contexts = place(), grouped([0.0, 1.0], [1.0, 0.0])
    decider, same = (worker(store, "small", contexts=contexts) for _ in range(2))
    other = worker(store, "small", contexts=others)
    for one, learns in ((same, 1.0), (other, 0.0)):
        decision = decider.decide(context=1)
        decider.refresh()
        one.charge(decision.id, 0.25)
        one.reward(decision.id, 0.5)
        assert (one.estimates.calls.sum(), one.estimates.labels.sum()) == (learns, learns)
        assert one.explain(decision.id).context.id == 1
    decider.refresh()
    assert decider.status().spent_usd == 0.5
    for one in (decider, same, other):
        one.close()


def test_a_conversation_takes_its_context_along_to_the_same_contexts_only(tmp_path):
    store = f"sqlite:///{tmp_path / 'shared.db'}"
    contexts, others = grouped([0.0, 1.0], [1.0, 0.0]), grouped([1.0, 0.0], [0.0, 1.0])
    settings_ = {"conversations": Conversations(unit="run")}
    decider, same = (worker(store, "small", contexts=contexts, **settings_) for _ in range(2))
    other = worker(store, "small", contexts=others, **settings_)
    assert decider.decide(context=1, conversation="chat").context == 1
    decider.refresh()
    assert same.decide(conversation="chat", context=0).context == 1
    assert other.decide(conversation="chat", context=0).context == 0
    for one in (decider, same, other):
        one.close()


@pytest.mark.parametrize("contexts", [None, grouped([0.0, 1.0], [1.0, 0.0])])
def test_a_call_and_a_conversation_of_an_early_version_go_on_in_a_later_one(place, contexts):
    store, last = place(), 0 if contexts is None else 1
    early, later = (worker(store, "small", contexts=contexts, conversations=Conversations()) for _ in range(2))
    early._learner.context_names = ContextNames("", "")  # it names no contexts
    decision = early.decide(context=last, conversation="chat")
    early.refresh()
    later.charge(decision.id, 0.25)
    later.reward(decision.id, 0.5)
    assert (later.estimates.calls[last].sum(), later.estimates.reward[last].sum()) == (1.0, 0.5)
    assert later.decide(conversation="chat").context == last
    for one in (early, later):
        one.close()


def test_an_early_record_of_contexts_that_a_worker_lacks_teaches_nothing():
    router = worker(MemoryStore(), "small", contexts=grouped([0.0, 1.0], [1.0, 0.0]))
    decision = Decision("d", "small", 2, 1.0, 0.0, 0.0, 0.1, 0.5, 0.1, "default", 0.0)
    assert own_record(router._learner, Record(decision, 0, "actual")).decision.context == NO_CONTEXT
    moved = Record(decision._replace(context=1), 0, "actual", contexts_version=1)  # of contexts that have grown
    assert own_record(router._learner, moved).decision.context == NO_CONTEXT


def test_an_early_record_of_an_observed_call_names_the_model_of_its_index():
    router = worker(MemoryStore(), "small", "large")
    scope = observed_scope("default")
    decision = Decision("d", "small", 0, 1.0, 0.0, 0.0, 0.1, 0.5, 0.1, scope, 0.0)
    found = own_record(router._learner, Record(decision, 1, "actual"))
    assert (found.model, found.name, found.decision.context) == (1, "large", 0)
    assert own_record(router._learner, Record(decision, 2, "actual")).name == "small"
    router._store.reserve(Record(decision._replace(scope="default"), 0, "actual"))
    assert router.explain("d").model == "small"


@pytest.mark.parametrize(
    ("scope", "index", "name"),
    [("default", 0, "small"), ("default", 1, "model 1"), (observed_scope("default"), 1, "large")],
)
def test_an_early_record_may_have_the_index_of_the_model_that_answered(scope, index, name):
    router = worker(MemoryStore(), "small", "large")
    decision = Decision("d", "small", 0, 1.0, 0.0, 0.0, 0.1, 0.5, 0.1, scope, 0.0)
    record = Record(decision, index, "actual", "charged")
    record.answered = answered_of_text(str(index), record)
    found = own_record(router._learner, record)
    assert found.name == name
    assert found.decision.context == (NO_CONTEXT if name == "model 1" else 0)


def test_deviations_of_models_in_another_order_are_left_out():
    router = worker(MemoryStore(), "small", "large")
    decision = Decision("d", "large", 0, 1.0, 0.0, 0.0, 0.1, 0.5, 0.1, "default", 0.0)
    predicted = Deviations([0.25, 0.5])
    mine, theirs = (Record(decision, model, "actual", deviations=predicted, contexts="1") for model in (1, 0))
    assert own_record(router._learner, mine) is mine
    found = own_record(router._learner, theirs)
    assert (found.model, found.deviations, found.decision.context) == (1, None, 0)
    assert (theirs.model, theirs.deviations) == (0, predicted)
    unknown = own_record(router._learner, Record(decision._replace(model="other"), 1, "actual"))
    assert (unknown.model, unknown.decision.context, unknown.name) == (-1, NO_CONTEXT, "other")


def test_a_record_names_its_contexts_and_the_incumbent_in_a_store():
    decision = Decision("d", "m", 0, 1.0, 0.0, 0.0, 0.1, 0.5, 0.1, "default", 0.0)
    record = Record(decision, 1, "actual", contexts_version=2, contexts="ab", incumbent="large")
    found = record_of_text(text_of_record(record), "store")
    assert found == record
    assert (found.taken_by, found.name) == ("large", "large")


@pytest.mark.parametrize("name", ["large", "1", "007", 'with "quotes"', "größer"])
def test_the_model_that_answered_is_named_in_a_store_and_an_index_of_a_former_one_is_not_taken_for_a_name(name):
    record = Record(Decision("d", "m", 0, 1.0, 0.0, 0.0, 0.1, 0.5, 0.1, "default", 0.0), 1, "actual", contexts="1")
    assert answered_of_text(text_of_name(name), record) == name
    assert (answered_of_text("1", record), answered_of_text("2", record)) == ("", "model 2")
