"""Read-only inspection of the budgets in a store: nothing is started, leased or created."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from wiserouter.budgets.nested import Account
from wiserouter.budgets.pauses import Pause
from wiserouter.errors import InvalidInput
from wiserouter.stores.day_buckets import MODELS_NOTE, Cells, sums_name
from wiserouter.stores.engines.base import Engine, ReadRequest
from wiserouter.stores.open import OpenedEngine, open_engine
from wiserouter.stores.shared.replica import LocalReplica


class AccountSnapshot(NamedTuple):
    """The state of one account.

    Attributes
    ----------
    parent : str or None
        The scope whose budgets enclose it.
    account : Ledger or NestedLedger
        Its budgets, followed by those that enclose it.
    own : int
        Number of its own budgets among them.
    pauses : tuple of (str, Pause)
        The pauses that hold, of the scope and of those that enclose it.
    """

    parent: str | None
    account: Account
    own: int
    pauses: tuple[tuple[str, Pause], ...] = ()


class StoreSnapshot(NamedTuple):
    """The state of all accounts of a store.

    Attributes
    ----------
    store : str
        Its name, without a password.
    now_s : float, seconds since 1970
        The store's time.
    took_s : float, seconds
        Time that it took to answer.
    accounts : dict of str to AccountSnapshot
        By scope.
    """

    store: str
    now_s: float
    took_s: float
    accounts: dict[str, AccountSnapshot]


class DaySums(NamedTuple):
    """The sums of days, as `wiserouter.stores.day_buckets` describes them.

    Attributes
    ----------
    store : str
        Its name, without a password.
    cells : dict of int to Cells
        By day since 1970.
    models : str or None
        The note of its workers on their models.
    accounts : dict of str to AccountSnapshot
        By scope.
    """

    store: str
    cells: dict[int, Cells]
    models: str | None
    accounts: dict[str, AccountSnapshot]


def inspect_store(url: str) -> StoreSnapshot:
    """Return the state of all accounts of the store at `url`.

    Raises
    ------
    InvalidInput
        If there is no such kind of store, or it is in the memory of a process.
    StoreUnavailable
        If the server cannot be reached, or the file does not exist; it is not created.
    StoreDamaged
        If the stored data cannot be read.
    """
    opened = _opened(url)
    try:
        return _read_accounts(opened.engine, opened.name)
    finally:
        opened.engine.close()


def read_days(url: str, days: Callable[[float], Iterable[int]], scope: str | None = None) -> DaySums:
    """Return the sums of days of the store at `url`; raises as `inspect_store` does.

    Parameters
    ----------
    url : str
        The URL of the store.
    days : callable
        From the store's time to the days since 1970.
    scope : str, optional
        By default all scopes.
    """
    opened = _opened(url)
    try:
        found = _read_accounts(opened.engine, opened.name)
        names = {sums_name(day, scope): day for day in days(found.now_s)}
        reply = opened.engine.exchange([], ReadRequest((), list(names), [MODELS_NOTE]))
        cells = {day: reply.sums.get(name, {}) for name, day in names.items()}
        return DaySums(opened.name, cells, reply.notes.get(MODELS_NOTE), found.accounts)
    finally:
        opened.engine.close()


def _opened(url: str) -> OpenedEngine:
    """Return the engine of a store that several processes share."""
    if url.startswith("memory:"):
        raise InvalidInput(
            f"store must be one that several processes share, got {url!r}: a store in memory is visible to its own "
            f"process only, by router.status() or the status route of its proxy",
            value=url,
        )
    return open_engine(url, create=False)


def _read_accounts(engine: Engine, name: str) -> StoreSnapshot:
    replica = LocalReplica(name)
    scopes = engine.exchange([], ReadRequest(None)).accounts
    notes = [note for scope in scopes for note in replica.note_names(scope)]
    asked_s = time.perf_counter()
    reply = engine.exchange([], ReadRequest(None, (), notes))
    took_s = time.perf_counter() - asked_s
    for scope, state in reply.accounts.items():
        replica.take(scope, state, reply.now_s, reply.notes, [])
    accounts = {scope: _snapshot(replica, scope, reply.now_s) for scope in sorted(replica.views)}
    return StoreSnapshot(name, reply.now_s, took_s, accounts)


def _snapshot(replica: LocalReplica, scope: str, now_s: float) -> AccountSnapshot:
    chain, view = replica.present(scope, now_s)[0], replica.views[scope]
    pauses = tuple([(one, pause) for one, pause in chain.pauses if pause.holds(now_s)])
    return AccountSnapshot(view.parent, chain.account, len(view.windows), pauses)
