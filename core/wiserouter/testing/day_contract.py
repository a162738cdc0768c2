"""Checks of the contract of stores: the sums of days that reports on savings are made from."""

from __future__ import annotations

from collections.abc import Callable

from wiserouter.budgets.budget import Budget
from wiserouter.learning.source_scores import SourceScore
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.contexts import Contexts
from wiserouter.stores.base import Store
from wiserouter.stores.day_buckets import DAY_S, DayBuckets
from wiserouter.testing.shelf import Shelf, new_record, opened, refresh


def adds_up_the_calls_of_a_day(shelf: Shelf) -> None:
    """Return the calls and scores of all workers, each once, for a day and for a scope of it."""
    store, scope = opened(shelf, Budget(10.0, 100))
    stores = [store, shelf.open()] if store.durable else [store]
    contexts, usage = Contexts.single(), Usage(100, 10, cache_read_tokens=40)
    peers = [_joined(one) for one in stores]
    record = new_record(store, scope)
    day = int(record.decision.decided_at // DAY_S)
    before = [peer.read(one, [day])[day] for peer, one in zip(peers, stores, strict=True)]
    for peer in peers:
        peer.charged(record, contexts, 0, 0.25, usage, True)
        peer.scored(record, SourceScore(0.5, 1.0, 0.5), None)
    for _ in range(2):
        refresh(*stores)
    n = len(stores)
    expected = {
        "calls": n,
        "cost_usd": 0.25 * n,
        "input_tokens": 100 * n,
        "cache_read_tokens": 40 * n,
        "score": 0.5 * n,
    }
    for peer, one, known in zip(peers, stores, before, strict=True):
        everything, of_scope = peer.read(one, [day])[day], peer.read(one, [day], scope)[day]
        for field, value in expected.items():
            cell = f"{field}|a"
            assert round(everything[cell] - known.get(cell, 0.0), 9) == value
            assert round(of_scope[cell], 9) == value
        assert peer.read(one, [day + 1], scope) == {day + 1: {}}


def _joined(store: Store) -> DayBuckets:
    peer = DayBuckets(lambda: ("a", "b"), keeps=not store.durable)
    if store.durable:
        store.join(peer)
    return peer


DAY_CHECKS: tuple[Callable[[Shelf], None], ...] = (adds_up_the_calls_of_a_day,)
