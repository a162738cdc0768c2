"""What each step after a decision tells the journal, the listeners and the estimates, in every argument."""

import copy
import logging
import pickle

import numpy as np
import pytest

from wiserouter import (
    Budget,
    Contexts,
    Estimates,
    Limit,
    Limits,
    MemoryStore,
    Model,
    Offline,
    Price,
    Shadow,
    Usage,
    WiseRouter,
)
from wiserouter.errors import InvalidInput, QuerySkipped, UnknownDecision, UnknownPrice
from wiserouter.testing import FakeClock

MODELS = (
    Model("small", Price(1e-6, 2e-6), max_cost_usd=2.0),
    Model("large", Price(1e-5, 3e-5), max_cost_usd=5.0),
)
TOKENS = Usage(1_000, 100)


class Events(list):
    """A journal that keeps its events in memory."""

    def event(self, name, decision_id, at_s, **figures):
        self.append((name, decision_id, at_s, figures))

    def decision(self, decision, trace, **facts):
        pass

    def note(self, line):
        pass


class Waiting(MemoryStore):
    """A store whose steps have to be waited for."""

    def waits(self, scope, decision_id=None):
        return True


def make(models=MODELS, budget=None, store=MemoryStore, **options):
    estimates = Estimates(1, len(models))
    estimates.add_table(np.zeros(4, dtype=int), [[0.2, 0.9]] * 4, [[1.0, 3.0]] * 4)
    options.setdefault("policy", Offline())
    router = WiseRouter(models, Contexts.single(), estimates=estimates, seed=0, store=store(FakeClock(50.0)), **options)
    router.start(budget or Budget(300.0, 100))
    return router


def watched(router):
    """Return the events of a router and the calls of a listener, from now on."""
    events, heard = Events(), []
    router._observers = [*router._observers, events]
    router._listeners = [*router._listeners, lambda: heard.append(1)]
    return events, heard


# Charges


def test_a_charge_writes_its_figures_down_once():
    router = make()
    events, heard = watched(router)
    decision = router.decide("q")
    events.clear(), heard.clear()
    router.charge(decision, 2.5, usage=TOKENS, model="small", learn=False)
    figures = {"cost_usd": 2.5, "model": "small", "learn": False, "usage": TOKENS}
    assert events == [("charge", decision.id, 50.0, figures)]
    assert heard == [1]
    assert router.explain(decision.id).answered_by == "small"
    other = router.decide("q")
    events.clear()
    router.charge(other.id, usage={"prompt_tokens": 10, "completion_tokens": 5}, resources={"latency_s": 1.5})
    cost = 10 * 1e-5 + 5 * 3e-5
    (event,) = events
    assert event[:3] == ("charge", other.id, 50.0)
    assert event[3]["usage"] == Usage(10, 5)
    assert event[3] == {
        "cost_usd": pytest.approx(cost),
        "model": "large",
        "learn": True,
        "usage": Usage(10, 5),
        "resources": {"latency_s": 1.5},
    }


def test_what_is_learned_is_the_plain_price_and_nothing_where_it_says_nothing():
    router = make()
    sums = router.estimates.cost.copy()
    router.charge(router.decide("q"), 1.5, learned_usd=3.0)
    assert (router.estimates.cost - sums).tolist() == [[0.0, 3.0]]
    assert router.status().spent_usd == 1.5
    router.charge(router.decide("q"), 1.5, learn=False)
    assert (router.estimates.cost - sums).tolist() == [[0.0, 3.0]]
    with pytest.raises(InvalidInput, match=r"learned_usd must be a finite number of at least 0, got -1\.0"):
        router.charge(router.decide("q"), 1.5, learned_usd=-1.0)


async def test_a_charge_off_the_event_loop_hands_every_argument_on():
    for store in (MemoryStore, Waiting):
        plain, other = make(store=store), make(store=store)
        written = []
        for router in (plain, other):
            router.set_limits(Limits({"latency_s": Limit(mean=9.0)}))
            events, _ = watched(router)
            written.append(events)
        named = {
            "usage": TOKENS,
            "model": "small",
            "learn": True,
            "learned_usd": 0.5,
            "resources": {"latency_s": 2.0},
        }
        plain.charge(plain.decide("q"), 0.75, **named)
        await other.acharge(other.decide("q"), 0.75, **named)
        assert [event[3] for event in written[0]] == [event[3] for event in written[1]]
        assert np.array_equal(plain.estimates.cost, other.estimates.cost)
        assert plain.estimates.cost[0, 0] == 4.5
        assert [router.status().limits[0].used for router in (plain, other)] == [2.0, 2.0]
        await other.acharge(other.decide("q").id, 0.25, learn=False)
        assert written[1][-1][3] == {"cost_usd": 0.25, "model": "large", "learn": False, "usage": None}
        assert other.estimates.cost[0].tolist() == [4.5, 12.0]


def test_a_limit_meter_is_told_of_each_use():
    router = make()
    router.set_limits(Limits({"latency_s": Limit(mean=9.0)}))
    router.charge(router.decide("q"), 1.0, resources={"latency_s": 4.0}, learn=False)
    router.charge(router.decide("q"), 1.0, resources={"latency_s": 2.0})
    assert (router.status().limits[0].calls, router.status().limits[0].used) == (2, 6.0)


def test_the_cost_of_a_call_is_what_was_given_or_follows_from_its_tokens():
    router = make()
    decision = router.decide("q")
    with pytest.raises(InvalidInput) as refused:
        router.charge(decision)
    assert str(refused.value) == "charge needs cost_usd or usage, got neither"
    for wrong in (float("inf"), float("nan"), -1, "1"):
        with pytest.raises(InvalidInput, match="cost_usd must be a finite number of at least 0, got"):
            router.charge(decision, wrong)
    router.charge(decision, np.float64(0.0))
    assert router.status().charged == 1
    router.charge(router.decide("q").id, usage=TOKENS, model="small")
    assert router.status().spent_usd == pytest.approx(1_000 * 1e-6 + 100 * 2e-6)
    router.charge(router.decide("q").id, 2)
    assert router.status().spent_usd == pytest.approx(2.0012)


def test_tokens_without_a_price_are_refused_by_name():
    models = (MODELS[0], Model("large", max_cost_usd=5.0))
    router = make(models)
    decision = router.decide("q")
    assert decision.model == "large"
    with pytest.raises(UnknownPrice) as refused:
        router.charge(decision, usage=TOKENS)
    assert "large" in str(refused.value)
    assert "price: give Model(price=Price(input=..., output=...)), or cost_usd" in str(refused.value)
    assert router.status().charged == 0
    router.charge(decision, usage=TOKENS, model="small")
    assert router.status().spent_usd == pytest.approx(0.0012)


def test_a_call_beyond_its_worst_case_is_logged_under_a_hard_limit_only(caplog):
    for limit, lines in (("expected", 0), ("hard", 1)):
        caplog.clear()
        router = make(budget=Budget(300.0, 100, limit=limit))
        decision = router.decide("q")
        with caplog.at_level(logging.WARNING, logger="wiserouter"):
            router.charge(decision, 5.5)
        assert [record.getMessage() for record in caplog.records] == lines * [
            "a call of large cost 5.5 USD, more than its worst case of 5: the hard limit may not hold"
        ]
        caplog.clear()
        router.charge(router.decide("q"), 5.0 if limit == "hard" else 3.0)
        assert not caplog.records


# Other spending


async def test_other_spending_is_paid_from_the_scope_that_is_named():
    router = make()
    router.start(Budget(10.0, 10, limit="hard"), scope="team")
    _, heard = watched(router)
    router.spend(1.5)
    router.spend(2.0, scope="team")
    await router.aspend(0.5, scope="team")
    await router.aspend(0.25)
    await router.aspend(-0.25, scope="team")
    assert (router.status().spent_usd, router.status("team").spent_usd) == (1.75, 2.25)
    assert len(heard) == 5
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match=f"cost_usd must be a finite number, got {wrong}"):
            router.spend(wrong)


# Releases and presumptions


def test_a_release_and_a_presumption_are_written_down_and_heard():
    router = make()
    events, heard = watched(router)
    released, presumed = router.decide("q"), router.decide("q")
    events.clear(), heard.clear()
    router.release(released.id)
    router.presume(presumed)
    assert events == [
        ("release", released.id, 50.0, {}),
        ("presume", presumed.id, 50.0, {"cost_usd": presumed.expected_cost_usd}),
    ]
    assert heard == [1, 1]
    assert router.status().spent_usd == presumed.expected_cost_usd == 3.0


def test_what_a_released_call_had_counted_is_taken_back():
    router = make()
    invoked = router.estimates.invoked.copy()
    decision = router.decide("q")
    assert (router.estimates.invoked - invoked).tolist() == [[0.0, 1.0]]
    router.release(decision)
    assert np.array_equal(router.estimates.invoked, invoked)


def test_a_query_that_is_not_served_costs_nothing_and_says_where_it_was():
    router = make(policy=Offline(allow_skip=True), budget=Budget(1e-9, 100))
    events, _ = watched(router)
    with pytest.raises(QuerySkipped) as skipped:
        for _ in range(20):
            router.decide("q")
    assert (skipped.value.context, skipped.value.rate_usd) == (0, pytest.approx(1e-11))
    name, _, at_s, figures = events[-1]
    assert (name, at_s, figures) == ("charge", 50.0, {"cost_usd": 0.0, "model": "", "learn": False})
    assert (router.status().in_flight, router.status().spent_usd) == (0, 0.0)


# Scores


async def test_a_score_is_written_down_with_what_is_unusual_of_it():
    router = make()
    events, _ = watched(router)
    decision = router.decide("q")
    events.clear()
    assert router.reward(decision, 1) is False
    assert await router.areward(decision.id, 0.5, comment="fine") is True
    assert await router.areward(decision, 0.75, source="rule:length", weight=0.5) is False
    assert router.reward(decision, 0.25, source="rule:length") is True
    assert router.reward(decision, 0.25, weight=0.5) is True
    assert [event[3] for event in events] == [
        {"reward": 1.0},
        {"reward": 0.5, "comment": "fine"},
        {"reward": 0.75, "source": "rule:length", "weight": 0.5},
        {"reward": 0.25, "source": "rule:length", "weight": 1.0},
        {"reward": 0.25, "source": "human", "weight": 0.5},
    ]
    assert {event[:3] for event in events} == {("reward", decision.id, 50.0)}
    for wrong in ({"weight": 2.0}, {"source": "someone"}):
        with pytest.raises(InvalidInput):
            router.reward(decision, 0.5, **wrong)


def test_a_score_of_less_than_a_whole_observation_counts_as_that_much():
    router = make()
    labels, sums = router.estimates.labels.copy(), router.estimates.reward.copy()
    router.reward(router.decide("q"), 0.5, weight=0.5)
    assert (router.estimates.labels - labels).tolist() == [[0.0, 0.5]]
    assert (router.estimates.reward - sums).tolist() == [[0.0, 0.25]]


# Observed calls


def test_an_observed_call_is_written_down_with_what_the_choice_would_have_cost():
    router = make()
    router.shadow = Shadow()
    router.start(Budget(300.0, 100), restart=True)
    events, _ = watched(router)
    sums, invoked = router.estimates.cost.copy(), router.estimates.invoked.copy()
    first = router.observe("q", incumbent="small")
    events.clear()
    router.charge(first, 0.75)
    figures = {"cost_usd": 0.75, "model": "small", "learn": True, "would_cost_usd": first.expected_cost_usd}
    assert events == [("charge", first.id, 50.0, figures)]
    assert (router.estimates.cost - sums).tolist() == [[0.75, 0.0]]
    second = router.observe("q")
    events.clear()
    router.charge(second.id, usage=TOKENS, model="large", learn=False)
    (event,) = events
    would = second.expected_cost_usd
    cost = pytest.approx(0.013)
    assert event[3] == {"cost_usd": cost, "model": "large", "learn": False, "would_cost_usd": would}
    assert (router.estimates.cost - sums).tolist() == [[0.75, 0.0]]
    assert (router.estimates.invoked - invoked).tolist() == [[1.0, 1.0]]
    assert router.status().spent_usd == 0.0


# Names


def test_a_decision_has_further_names_until_they_are_withdrawn():
    router = make()
    one, two = router.decide("q"), router.decide("q")
    router.alias("call", one)
    router.alias(["batch", "line"], two.id)
    assert [router.decision(name).id for name in ("call", "batch", "line")] == [one.id, two.id, two.id]
    assert router.decision("unknown", "line").id == two.id
    router.alias("call", two)
    assert router.decision("call").id == two.id
    router.alias("call", "")
    with pytest.raises(UnknownDecision):
        router.decision("call")
    router.reward("line", 0.5)
    router.charge("batch", 0.5)
    assert router.status().charged == 1


async def test_a_step_says_which_call_and_scope_it_is_about():
    asked = []

    class Asking(MemoryStore):
        def waits(self, scope, decision_id=None):
            asked.append((scope, decision_id))
            return False

    router = make(store=Asking)
    router.start(Budget(10.0, 10), scope="team")
    one, two, three = (router.decide("q", scope="team") for _ in range(3))
    asked.clear()
    await router.acharge(one, 0.5)
    await router.apresume(two)
    await router.arelease(three)
    await router.acharge(two.id, 0.5)
    await router.areward(one, 0.5)
    await router.aspend(0.5, scope="team")
    of_calls = [("team", one.id), ("team", two.id), ("team", three.id), ("", two.id)]
    assert asked == [*of_calls, ("", None), ("team", None)]


def test_a_router_waits_for_its_store_only():
    class Durable(Waiting):
        durable = True

        def waits(self, scope, decision_id=None):
            return scope == ""

    assert not make().waits()
    assert not make(store=Waiting).waits("default")
    router = make(store=Durable)
    assert (router.waits(), router.waits("default"), router.waits("")) == (True, False, True)


# Scores before the charge


@pytest.mark.parametrize("store", ["memory://", "sqlite"])
def test_a_score_before_the_charge_counts_for_the_model_that_answered(store, tmp_path):
    url = store if store == "memory://" else f"sqlite:///{tmp_path / 'budget.db'}"
    router = WiseRouter(MODELS, store=url, seed=0, watch=None)
    router.start(Budget(10.0, horizon=100))
    decision = router.decide("q")
    chosen, other = (0, 1) if decision.model == "small" else (1, 0)
    router.reward(decision, 1.0)
    router.reward(decision, 0.0, source="judge:mini")
    router.charge(decision, 0.5, model=MODELS[other].name)
    assert router.estimates.labels[0].tolist() == [float(k == other) for k in (0, 1)]
    assert router.reward(decision, 0.25)
    figures = router.estimates
    assert (figures.labels[0, chosen], figures.reward[0, chosen], figures.scored[0, chosen]) == (0.0, 0.0, 0.0)
    assert (figures.labels[0, other], figures.reward[0, other], figures.reward_sq[0, other]) == (1.0, 0.25, 0.0625)
    (cells,) = router.sums_of_days([int(decision.decided_at // 86_400)])[0].values()
    assert cells[f"score|{MODELS[other].name}"] == 0.25
    assert not cells.get(f"score|{decision.model}")
    router.close()


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_router_that_is_copied_or_pickled_says_what_to_do(copied):
    with pytest.raises(TypeError, match=r"<WiseRouter: small, large.*give save\(path\) to the other process"):
        copied(make())
