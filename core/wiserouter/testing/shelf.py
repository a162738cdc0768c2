"""Shared state for checks of stores, and the helper functions of these checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wiserouter.budgets.budget import Budget
from wiserouter.errors import WiseRouterError
from wiserouter.stores.base import Record, Store
from wiserouter.types import Decision


@dataclass(frozen=True)
class Shelf:
    """Shared state on which stores can be opened.

    Attributes
    ----------
    open : callable returning Store
        Opens a store on the state, as another worker would, with `reservation_ttl_s` and `decision_ttl_s`; returns the
        same store every time where nothing is shared.
    advance : callable
        Lets the given number of seconds pass.
    """

    open: Callable[..., Store]
    advance: Callable[[float], object]


def opened(shelf: Shelf, budget: Budget | None = None) -> tuple[Store, str]:
    """Return a store and a new scope with a budget, 10 USD by default."""
    store, scope = shelf.open(), new_name("scope")
    store.open(scope, budget or Budget(10.0, 100))
    return store, scope


def other_store(shelf: Shelf, store: Store, **ttl_s: float) -> Store:
    """Return another store on the same state, after this one has sent its events."""
    store.refresh()
    return shelf.open(**ttl_s)


def refresh(*stores: Store) -> None:
    """Refresh stores one after another."""
    for store in stores:
        store.refresh()


def new_name(kind: str) -> str:
    """Return a random name that begins with its kind."""
    return f"{kind} {os.urandom(6).hex()}"


def new_record(store: Store, scope: str, *, held_usd: float = 1.0) -> Record:
    """Return the record of a new decision with the worst case `held_usd` and half of it as the expected cost."""
    decision = Decision(new_name("decision"), "m", 0, 1.0, 0.0, 0.0, 0.5 * held_usd, 0.5, held_usd, scope, store.now())
    return Record(decision, model=0, debit="actual")


def figures(store: Store, scope: str) -> tuple[float, float, int, int, int]:
    """Return the amounts spent and reserved, and the numbers of calls decided, in flight and charged."""
    ledger = store.ledger(scope).each[0]
    spent_usd, reserved_usd = round(ledger.spent_usd, 9), round(ledger.reserved_usd, 9)
    return spent_usd, reserved_usd, ledger.decided, ledger.in_flight, ledger.charged


def presumed(store: Store, scope: str) -> tuple[int, float]:
    """Return the number of presumed calls, and the amount presumed."""
    ledger = store.ledger(scope).each[0]
    return ledger.presumed, round(ledger.presumed_usd, 9)


@contextmanager
def raises(kind: type[WiseRouterError]) -> Iterator[None]:
    """Raise `AssertionError` unless the block raises an error of this kind."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"the store must raise {kind.__name__}, and did not")
