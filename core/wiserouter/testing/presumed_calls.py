"""Checks of the contract of stores: calls whose outcome is unknown, and scores of several sources."""

from __future__ import annotations

from wiserouter.budgets.budget import Budget
from wiserouter.errors import AlreadySettled
from wiserouter.learning.source_scores import SourceScore
from wiserouter.testing.shelf import (
    Shelf,
    figures,
    new_name,
    new_record,
    opened,
    other_store,
    presumed,
    raises,
    refresh,
)


def presumes_a_call_of_unknown_outcome(shelf: Shelf) -> None:
    """Count it as spent at its worst case where a limit is hard, else at its expected cost; correct it later."""
    hard = Budget(10.0, 100, limit="hard")
    for budget, cost_usd in ((Budget(10.0, 100), 0.5), (Budget(20.0, every="week", within=hard), 1.0)):
        store, scope = opened(shelf, budget)
        records = [new_record(store, scope) for _ in range(3)]
        for record in records:
            store.reserve(record)
            assert store.presume(record.decision.id).cost_usd == cost_usd
        for seen in (store, other_store(shelf, store)):
            assert figures(seen, scope) == (3 * cost_usd, 0.0, 3, 0, 0)
            assert presumed(seen, scope) == (3, 3 * cost_usd)
            found = seen.find(records[0].decision.id)
            assert (found.state, found.cost_usd) == ("presumed", cost_usd)
            assert seen.reward(records[0].decision.id, 1.0)[0].decision == records[0].decision
        other = shelf.open()
        store.settle(records[0].decision.id, 0.25, model="large")
        refresh(store)
        other.release(records[1].decision.id)
        refresh(other, store)
        assert figures(store, scope) == (0.25 + cost_usd, 0.0, 2, 0, 1)
        assert presumed(store, scope) == (1, cost_usd)
        assert store.find(records[0].decision.id).name == "large"


def presumes_only_what_is_in_flight(shelf: Shelf) -> None:
    """Refuse to presume a call that was charged, released or presumed before; nothing changes."""
    store, scope = opened(shelf)
    charged, released, other = (new_record(store, scope) for _ in range(3))
    for record in (charged, released, other):
        store.reserve(record)
    store.settle(charged.decision.id, 0.25)
    store.release(released.decision.id)
    store.presume(other.decision.id)
    for record in (charged, released, other):
        with raises(AlreadySettled):
            store.presume(record.decision.id)
    store.refresh()
    assert figures(store, scope) == (0.75, 0.0, 2, 0, 1)
    assert presumed(store, scope) == (1, 0.5)
    store.release(other.decision.id)
    for again in (store.presume, store.release):
        with raises(AlreadySettled):
            again(other.decision.id)
    store.settle(other.decision.id, 1.0)
    store.refresh()
    assert figures(store, scope) == (1.25, 0.0, 2, 0, 2)


def presumes_a_call_that_is_not_settled_in_time(shelf: Shelf) -> None:
    """Count it as spent, and replace the presumed cost by a bill that comes later."""
    store = shelf.open(reservation_ttl_s=1.0)
    for budget, cost_usd in ((Budget(10.0, 100), 0.5), (Budget(10.0, 100, limit="hard"), 1.0)):
        scope = new_name("scope")
        store.open(scope, budget)
        record = new_record(store, scope)
        store.reserve(record)
        store.refresh()
        shelf.advance(1.1)
        store.refresh()
        assert figures(store, scope) == (cost_usd, 0.0, 1, 0, 0)
        assert presumed(store, scope) == (1, cost_usd)
        store.settle(record.decision.id, 0.75)
        store.refresh()
        assert figures(store, scope) == (0.75, 0.0, 1, 0, 1)
        assert presumed(store, scope) == (0, 0.0)


def keeps_the_scores_of_each_source(shelf: Shelf) -> None:
    """Keep the latest score of each source, exactly, and learn from a person's before a judge's."""
    store, scope = opened(shelf)
    record = new_record(store, scope)
    name = record.decision.id
    store.reserve(record)
    other = other_store(shelf, store)
    judged, rated = SourceScore(0.1, 0.3, 1 / 3), SourceScore(1.0, 1.0, 1.0)
    assert store.reward(name, judged, "judge:mini/2")[1] == {}
    assert other.reward(name, rated)[1] == {"judge:mini/2": judged}
    found, before = store.reward(name, 0.2, "judge:mini/2")
    assert (found.reward, before) == (1.0, {"judge:mini/2": judged, "human": rated})
    for seen in (store, other_store(shelf, store)):
        assert seen.find(name).scores == {"judge:mini/2": SourceScore(0.2, 1.0, 0.2), "human": rated}
        assert seen.find(name).reward == 1.0


def takes_a_score_of_a_call_that_was_billed_after_its_release(shelf: Shelf) -> None:
    """Refuse the score of a released call, until another worker charges it."""
    store, scope = opened(shelf)
    record = new_record(store, scope)
    name = record.decision.id
    store.reserve(record)
    store.release(name)
    with raises(AlreadySettled):
        store.reward(name, 1.0)
    other = other_store(shelf, store)
    other.settle(name, 0.25)
    refresh(other)
    assert store.reward(name, 1.0)[1] == {}
