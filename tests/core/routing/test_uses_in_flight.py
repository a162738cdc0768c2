"""Calls in flight under limits: what they are expected to use counts until they report, fail or are too old."""

import numpy as np
import pytest

from support.groups import fitted
from wiserouter import Budget, Contexts, Conversations, Limit, Limits, Model, Offline, Price, WiseRouter
from wiserouter.budgets.limit_meter import LimitMeter
from wiserouter.budgets.limits import Measure
from wiserouter.budgets.uses_in_flight import LONGEST_S, UsesInFlight
from wiserouter.errors import BudgetExhausted
from wiserouter.learning.first_calls import FirstCalls
from wiserouter.learning.resource_estimates import ResourceEstimates
from wiserouter.types import NO_CONTEXT

LATENCY = Measure("latency_s")


def router(resource="latency_s", uses=(1.0, 3.0), **limit):
    price = Price(input=1e-6, output=1e-6)
    models = [
        Model(name, price=price, resources={resource: use}) for name, use in zip(("small", "large"), uses, strict=True)
    ]
    one = WiseRouter(models, Contexts.single(), estimates=fitted().estimates, policy=Offline(), seed=0)
    one.start(Budget(100.0, 10_000))
    one.set_limits(Limits({resource: Limit(**(limit or {"mean": 2.0}))}))
    return one


def in_flight(one):
    return one._decider.limits.of("default").in_flight.total(LATENCY)


def test_a_call_is_expected_to_use_the_mean_of_its_model_until_it_reports():
    one = router()
    decisions = [one.decide("hi") for _ in range(10)]
    expected = sum({"small": 1.0, "large": 3.0}[decision.model] for decision in decisions)
    assert in_flight(one) == (pytest.approx(expected), 10)
    one.charge(decisions[0], 0.01, resources={"latency_s": 7.0})
    one.charge(decisions[1], 0.01)  # its use comes later, or never
    one.release(decisions[2])
    one.presume(decisions[3])
    assert in_flight(one)[1] == 6
    one.record_use(decisions[1], {"latency_s": 1.0})
    one.record_use(decisions[4], {"latency_s": 1.0})
    assert in_flight(one)[1] == 5
    (limit,) = one.status().limits
    assert (limit.calls, limit.mean) == (3, 3.0)


def test_a_call_whose_reservation_is_refused_is_not_expected_to_use_anything(monkeypatch):
    one, worst = router(), {"small": 0.01, "large": 0.01}
    one.start(Budget(0.05, 1_000, limit="hard"))
    reserve, held = one._store.reserve, []

    def overtaken(record):  # other calls take the money between the decision and its reservation
        monkeypatch.setattr(one._store, "reserve", reserve)
        held.extend(one.decide("hi", worst_case_usd=worst) for _ in range(5))
        reserve(record)

    monkeypatch.setattr(one._store, "reserve", overtaken)
    with pytest.raises(BudgetExhausted):
        one.decide("hi", worst_case_usd=worst)
    assert in_flight(one)[1] == one.account().in_flight == 5
    assert sum(one._decider.limits._first._begun.values()) == 5
    for decision in held:
        one.release(decision)
    assert in_flight(one) == (0.0, 0)


def test_a_decision_of_a_run_that_another_call_overtakes_is_not_expected_to_use_anything(monkeypatch):
    one = router()
    one.keep_conversations(Conversations("run"))
    decided = one._calls.decided

    def overtaken(state, record):
        monkeypatch.setattr(one._calls, "decided", decided)
        one.decide("hi", conversation="run")
        return decided(state, record)

    monkeypatch.setattr(one._calls, "decided", overtaken)
    one.decide("hi", conversation="run")
    assert in_flight(one)[1] == one.account().in_flight == 2


def test_models_without_a_known_use_are_not_expected_to_use_anything():
    models = [Model("small", resources={"latency_s": 1.0}), Model("large")]
    one = WiseRouter(models, Contexts.single(), estimates=fitted().estimates, policy=Offline(), seed=0)
    one.start(Budget(100.0, 10_000))
    one.set_limits(Limits({"latency_s": Limit(mean=2.0)}))
    decision = one.decide("hi")
    assert (decision.model, in_flight(one)) == ("large", (0.0, 0))


def test_the_next_calls_may_use_what_those_in_flight_leave():
    meter = LimitMeter(mean=2.0)
    assert meter.rate(10_000) == 2.0
    assert meter.rate(10_000, 60.0, 15) == pytest.approx(2.0 - 30.0 / 300)  # 30 more than 15 calls may use
    assert LimitMeter(total=100.0).rate(10, 20.0, 2) == 8.0


def test_calls_that_never_end_are_not_waited_for():
    flying = UsesInFlight()
    for at in range(5):
        flying.begin(str(at), {LATENCY: 1.0}, at * LONGEST_S / 2)
    assert flying.total(LATENCY) == (2.0, 2)
    flying.end("4")
    flying.end("4")
    flying.end("never begun")
    assert flying.total(LATENCY) == (1.0, 1)


def test_a_model_that_is_not_called_keeps_what_is_known_of_it():
    uses = ResourceEstimates(1, [None, None])
    for _ in range(50):
        uses.add(0, 0, 4.0)
    before = uses.means()[0, 0]
    for _ in range(50_000):
        uses.add(0, 1, 1.0)
    assert uses.means()[0, 0] == pytest.approx(before)
    for _ in range(20_000):
        uses.add(0, 1, 2.0)
    assert uses.means()[0, 1] == pytest.approx(2.0, abs=0.05)  # the older ones have faded


def test_bounds_widen_for_rare_models_where_asked():
    rng, uses = np.random.default_rng(0), ResourceEstimates(1, [1.0, 1.0])
    for k, n in ((0, 5), (1, 2_000)):
        for use in rng.exponential(3.0, n):
            uses.add(0, k, use)
    plain, wide = uses.optimistic_means()[0], uses.optimistic_means(wide=True)[0]
    assert wide[0] < plain[0]
    assert wide[1] == plain[1]


def test_known_means_leave_out_models_without_any():
    uses = ResourceEstimates(2, [1.0, None])
    assert uses.known_means(np.array([0.5, 0.5])) == {0: {0: 1.0}, 1: {0: 1.0}, NO_CONTEXT: {0: 1.0}}


def test_energy_is_limited_from_priors_to_the_status():
    one, spent = router("energy_wh", (0.5, 4.0), mean=1.5), []
    truth, rng = {"small": 0.4, "large": 5.0}, np.random.default_rng(0)
    for _ in range(2_000):
        decision = one.decide("hi")
        spent.append(truth[decision.model] * rng.exponential())
        one.charge(decision, 0.01, resources={"energy_wh": spent[-1]})
    (limit,) = one.status().limits
    assert (limit.name, limit.calls) == ("energy_wh", 2_000)
    assert limit.mean == pytest.approx(np.mean(spent)) == pytest.approx(1.5, rel=0.02)
    assert limit.price > 0.0
    assert one.explain(decision.id).prices["energy_wh"] > 0.0


def test_calls_that_began_before_the_first_one_ended_count_as_three():
    first, uses, thrice = FirstCalls(), ResourceEstimates(1, [None, None]), ResourceEstimates(1, [None, None])
    for _ in range(10):
        first.begin(0)
    for _ in range(10):
        uses.add(0, 0, 9.0, first.weight(0, begun_s=0.0, now_s=9.0))
    for _ in range(3):
        thrice.add(0, 0, 9.0)
    assert uses.means() == pytest.approx(thrice.means(), rel=0.01)
    first.begin(0)
    assert first.weight(0, begun_s=9.0, now_s=10.0) == 1.0
    assert first.weight(1, begun_s=0.0, now_s=10.0) == 1.0  # of a model whose beginning was not seen


def test_an_excess_is_never_forgiven():
    meter = LimitMeter(mean=1.0)
    for _ in range(10):
        meter.add(131.0)
    for _ in range(1_200):
        meter.add(0.0)
    assert meter.rate(10_000) == pytest.approx(1.0 - 100.0 / 300)
    for _ in range(10_000):
        meter.add(0.0)
    assert meter.rate(10_000) == 2.0  # savings are carried for 300 requests
