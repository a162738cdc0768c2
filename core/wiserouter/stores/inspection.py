"""How the budgets of a store stand, for who only looks: nothing is started, leased or made."""

from __future__ import annotations

import time
from typing import NamedTuple

from wiserouter.budgets.nested import Account
from wiserouter.errors import InvalidInput
from wiserouter.stores.engines.base import Engine, ReadRequest
from wiserouter.stores.open import open_engine
from wiserouter.stores.shared.replica import LocalReplica


class AccountSnapshot(NamedTuple):
    """How one account stands.

    Attributes
    ----------
    parent : str or None
        The scope whose budgets it is within.
    account : Ledger or NestedLedger
        Its budgets, and then those that it is within.
    own : int
        How many of them are its own.
    """

    parent: str | None
    account: Account
    own: int


class StoreSnapshot(NamedTuple):
    """How all accounts of a store stand.

    Attributes
    ----------
    store : str
        Its name, without a password.
    now_s : float, seconds since 1970
        The store's time.
    took_s : float, seconds
        How long it took to answer.
    standings : dict of str to AccountSnapshot
        By scope.
    """

    store: str
    now_s: float
    took_s: float
    standings: dict[str, AccountSnapshot]


def inspect_store(url: str) -> StoreSnapshot:
    """Return how all accounts of the store at `url` stand.

    Raises
    ------
    InvalidInput
        If there is no such kind of store, or it is in the memory of another process.
    StoreUnavailable
        If the server cannot be reached, or the file is not there; it is not made.
    StoreDamaged
        If what is kept there cannot be read.
    """
    if url.startswith("memory:"):
        raise InvalidInput(
            f"store must be one that several processes share, got {url!r}: what is in memory is known to its own "
            f"process alone, by router.status() or the status route of its proxy",
            value=url,
        )
    opened = open_engine(url, create=False)
    try:
        return _surveyed(opened.engine, opened.name)
    finally:
        opened.engine.close()


def _surveyed(engine: Engine, name: str) -> StoreSnapshot:
    views = LocalReplica(name)
    scopes = engine.exchange([], ReadRequest(None)).accounts
    asked_s = time.perf_counter()
    reply = engine.exchange([], ReadRequest(None, (), [note for scope in scopes for note in views.note_names(scope)]))
    took_s = time.perf_counter() - asked_s
    for scope, state in reply.accounts.items():
        views.take(scope, state, reply.now_s, reply.notes, [])
    standings = {}
    for scope in sorted(views.views):
        account, _ = views.account(scope, reply.now_s)
        view = views.views[scope]
        standings[scope] = AccountSnapshot(view.parent, account, len(view.windows))
    return StoreSnapshot(name, reply.now_s, took_s, standings)
