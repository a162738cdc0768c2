"""Calls of unknown outcome: what they cost, what they teach, and what status, explanations and journal say of them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, Model, Offline, Watch, WiseRouter, open_store
from wiserouter.errors import AlreadySettled, BudgetExhausted, UnknownDecision
from wiserouter.evaluation.off_policy import read_decisions
from wiserouter.routing.journal_reader import JournalReader, find_explanation
from wiserouter.stores import MemoryStore
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore
from wiserouter.testing import FakeClock

EXPECTED, HARD = Budget(20.0, 100), Budget(20.0, 100, limit="hard")


def make(budget=HARD, **options):
    """Return a router with one model: a call costs 1 USD in the mean and 3 USD at most."""
    estimates = Estimates(1, 1)
    estimates.add_table(np.zeros(1, dtype=np.int64), [[0.5]], [[1.0]])
    models = [Model("only", max_cost_usd=3.0)]
    router = WiseRouter(models, Contexts.single(), estimates=estimates, policy=Offline(), seed=0, **options)
    router.start(budget)
    return router


def figures(router):
    status = router.status()
    return status.spent_usd, status.presumed_usd, status.reserved_usd, status.presumed, status.charged


def knowledge(router):
    sums = router.estimates
    return [sums.calls.tolist(), sums.cost.tolist(), sums.labels.tolist(), sums.reward.tolist()]


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'budget.db'}"


@pytest.mark.parametrize(("budget", "cost_usd"), [(EXPECTED, 1.0), (HARD, 3.0)])
def test_it_costs_its_worst_case_under_a_hard_limit_and_its_expected_cost_otherwise(store, budget, cost_usd):
    router = make(budget, store=store)
    late, failed, kept = (router.decide("q") for _ in range(3))
    for decision in (late, failed.id, kept):
        router.presume(decision)
    assert figures(router) == (3 * cost_usd, 3 * cost_usd, 0.0, 3, 0)
    assert router.status().horizon_left == 97
    router.charge(late, 1.25)
    router.release(failed)
    assert figures(router) == (1.25 + cost_usd, cost_usd, 0.0, 1, 1)
    assert (router.status().horizon_left, router.status().left_usd) == (98, 18.75 - cost_usd)
    router.close()


def test_any_hard_limit_of_an_account_makes_it_the_worst_case():
    router = make(Budget(20.0, every="day", within=HARD))
    router.presume(router.decide("q"))
    assert [window.presumed_usd for window in router.status().windows] == [3.0, 3.0]
    team = make(HARD)
    team.start(Budget(5.0, 10), scope="team", parent="default")
    team.presume(team.decide("q", scope="team"))
    assert [team.status(scope).spent_usd for scope in ("team", "default")] == [3.0, 3.0]


def test_nothing_is_presumed_twice_or_after_a_settlement(store):
    router = make(store=store)
    charged, released, presumed = (router.decide("q") for _ in range(3))
    router.charge(charged, 1.0)
    router.release(released)
    router.presume(presumed)
    before = figures(router)
    for decision, state in ((charged, "charged"), (released, "released"), (presumed, "presumed")):
        with pytest.raises(AlreadySettled, match=f"was {state} before"):
            router.presume(decision)
    with pytest.raises(UnknownDecision):
        router.presume("nothing")
    assert figures(router) == before
    router.charge(presumed, 2.0)
    with pytest.raises(AlreadySettled):
        router.charge(presumed, 2.0)
    assert figures(router) == (3.0, 0.0, 0.0, 0, 2)
    router.close()


def test_a_presumed_cost_teaches_nothing_and_the_true_one_does():
    router = make(watch=Watch())
    before = knowledge(router)
    decision, failed = router.decide("q"), router.decide("q")
    invoked = router.estimates.invoked.tolist()
    router.presume(decision)
    router.presume(failed)
    assert knowledge(router) == before
    router.reward(decision, 1.0)
    assert router.estimates.labels[0, 0] == before[2][0][0] + 1.0
    assert router.estimates.calls.tolist() == before[0]
    router.charge(decision, 2.0)
    assert router.estimates.calls[0, 0] == before[0][0][0] + 1.0
    assert router.estimates.cost[0, 0] == before[1][0][0] + 2.0
    router.release(failed)
    assert router.estimates.invoked[0, 0] == invoked[0][0] - 1.0


def test_presumed_money_is_not_spent_again():
    router = make(Budget(6.0, 100, limit="hard"))
    first, second = router.decide("q"), router.decide("q")
    router.presume(first)
    router.charge(second, 3.0)
    with pytest.raises(BudgetExhausted, match="6 spent"):
        router.decide("q")
    router.charge(first, 0.0)
    router.decide("q")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_call_that_is_never_settled_is_presumed_by_the_clock(kind, tmp_path):
    clock = FakeClock(1_000.0)
    if kind == "memory":
        store = MemoryStore(clock, reservation_ttl_s=60.0)
    else:
        engine = SQLiteEngine(tmp_path / "budget.db", clock, reservation_ttl_s=60.0)
        store = SharedStore(engine, clock=clock, reservation_ttl_s=60.0)
    router = make(store=store)
    decision, late = router.decide("q"), router.decide("q")
    clock.advance(61.0)
    store.refresh()
    assert figures(router) == (6.0, 6.0, 0.0, 2, 0)
    assert (router.explain(decision).state, router.explain(decision).cost_usd) == ("presumed", 3.0)
    with pytest.raises(AlreadySettled):
        router.presume(decision)
    router.release(decision)
    router.charge(late, 1.0)
    assert (router.explain(decision).state, router.explain(decision).cost_usd) == ("released", None)
    store.refresh()
    assert figures(router) == (1.0, 0.0, 0.0, 0, 1)
    router.close()


async def test_apresume_does_the_same(store):
    router = make(store=store)
    decision = router.decide("q")
    await router.apresume(decision)
    assert figures(router) == (3.0, 3.0, 0.0, 1, 0)
    with pytest.raises(AlreadySettled):
        await router.apresume(decision.id)
    router.close()


def test_another_worker_presumes_too(tmp_path):
    url = f"sqlite:///{tmp_path / 'budget.db'}"
    router, other = make(store=url), make(store=open_store(url))
    decision = router.decide("q")
    unseen = WiseRouter([Model("only", max_cost_usd=3.0)], store=url)  # has not read the account yet
    unseen.presume(decision.id)
    with pytest.raises(AlreadySettled):
        other.presume(decision.id)
    with pytest.raises(AlreadySettled):
        router.presume(decision)
    assert unseen.explain(decision.id).cost_usd == 3.0
    other._store.refresh()
    assert figures(other) == (3.0, 3.0, 0.0, 1, 0)
    for one in (router, other, unseen):
        one.close()


def test_the_journal_says_so_and_off_policy_evaluation_does_not_count_it(tmp_path):
    router = make()
    journal = router.journal_to(tmp_path / "decisions.jsonl")
    presumed, charged, released = (router.decide("q") for _ in range(3))
    for decision in (presumed, charged, released):
        router.presume(decision)
    router.reward(presumed, 0.25)
    router.charge(charged, 1.5)
    router.release(released)
    assert journal.flush()
    events = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert [event["event"] for event in events[3:6]] == ["presume"] * 3
    assert {name: events[3][name] for name in ("id", "cost_usd")} == {"id": presumed.id, "cost_usd": 3.0}
    for decision in (presumed, charged, released):
        told, known = find_explanation(JournalReader(journal.path), decision.id), router.explain(decision)
        assert (told["state"], told["cost_usd"], told["reward"]) == (known.state, known.cost_usd, known.reward)
    logged = read_decisions(JournalReader(journal.path))
    assert [math.isnan(cost) for cost in logged.cost_usd] == [True, False, True]
    assert (logged.cost_usd[1], logged.reward[0]) == (1.5, 0.25)
    journal.close()


def test_a_line_without_its_cost_is_skipped(tmp_path):
    path = tmp_path / "decisions.jsonl"
    path.write_text('{"event": "presume", "id": "a"}\n{"event": "presume", "id": "a", "cost_usd": 1.0}\n')
    reader = JournalReader(path)
    assert [event["cost_usd"] for event in reader] == [1.0]
    assert reader.skipped == 1
