"""The contract of stores, as checks that any of them passes: run `check_store` on one of your own.

A check uses scopes and decisions of its own names, so that all can run on the same state; it looks through one store at
what was done through another.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from wiserouter.budgets.budget import Budget
from wiserouter.errors import (
    AlreadySettled,
    BudgetExhausted,
    InvalidInput,
    NotStarted,
    UnknownDecision,
    WiseRouterError,
)
from wiserouter.prompts.contexts import Contexts
from wiserouter.stores.base import Record, Store
from wiserouter.stores.shared.estimate_sync import EstimateSync
from wiserouter.types import Decision


@dataclass(frozen=True)
class Shelf:
    """State for stores to stand on.

    Attributes
    ----------
    open : callable returning Store
        Opens a store on it, as another worker would, with `reservation_ttl_s` and `decision_ttl_s`; where nothing is
        shared, the same store again.
    advance : callable
        Lets so many seconds pass.
    """

    open: Callable[..., Store]
    advance: Callable[[float], object]


def check_store(shelf: Shelf) -> None:
    """Run all checks of the contract of stores.

    Parameters
    ----------
    shelf : Shelf
        Fresh state.

    Raises
    ------
    AssertionError
        If the store breaks the contract; the name of the check is noted.

    Examples
    --------
    >>> from wiserouter import MemoryStore
    >>> from wiserouter.testing import FakeClock
    >>> clock, stores = FakeClock(), {}
    >>> def opened(**ttl_s):
    ...     return stores.setdefault(str(ttl_s), MemoryStore(clock, **ttl_s))
    >>> check_store(Shelf(opened, clock.advance))
    """
    for check in STORE_CHECKS:
        try:
            check(shelf)
        except Exception as error:
            error.add_note(f"while {check.__name__}")
            raise


def needs_a_budget(shelf: Shelf) -> None:
    """Refuse a scope that has none."""
    store, scope = shelf.open(), _name("scope")
    record = _record(store, scope)
    for ask in (lambda: store.ledger(scope), lambda: store.reserve(record), lambda: store.spend(scope, 1.0)):
        with _raises(NotStarted):
            ask()


def follows_a_call(shelf: Shelf) -> None:
    """Hold back, charge and release."""
    store, scope = _opened(shelf)
    one, two = _record(store, scope), _record(store, scope)
    store.reserve(one)
    store.reserve(two)
    assert _figures(store, scope) == (0.0, 2.0, 2, 2, 0)
    store.settle(one.decision.id, 0.25, model=1)
    store.release(two.decision.id)
    for seen in (store, shelf.open()):
        store.refresh()
        assert _figures(seen, scope) == (0.25, 0.0, 1, 0, 1)
        found = seen.find(one.decision.id)
        assert (found.state, found.model, found.cost_usd) == ("charged", 1, 0.25)
        assert found.decision == one.decision


def counts_an_event_once(shelf: Shelf) -> None:
    """Count a reservation, a charge and a reward that are delivered three times as one."""
    store, scope = _opened(shelf)
    record = _record(store, scope)
    name = record.decision.id
    for _ in range(3):
        store.reserve(record)
    store.settle(name, 0.25)
    other = _beside(shelf, store)
    for again in (store, other):
        with _raises(AlreadySettled):
            again.settle(name, 0.25)
        with _raises(AlreadySettled):
            again.release(name)
    assert [again.reward(name, 0.5)[1] for again in (store, other, store)] == [None, 0.5, 0.5]
    _refresh(store, other)
    assert _figures(other, scope) == (0.25, 0.0, 1, 0, 1)


def settles_on_another_worker(shelf: Shelf) -> None:
    """Charge and reward a call elsewhere than it was decided; a reward may come before the charge."""
    store, scope = _opened(shelf)
    record = _record(store, scope)
    name = record.decision.id
    store.reserve(record)
    other = _beside(shelf, store)
    found, replaced = other.reward(name, 0.75)
    assert (found.decision, replaced) == (record.decision, None)
    other.settle(name, 0.5)
    _refresh(other, store)
    assert _figures(store, scope) == (0.5, 0.0, 1, 0, 1)
    assert other.reward(name, 1.0)[1] == 0.75


def refuses_unknown_decisions(shelf: Shelf) -> None:
    """Raise for a decision that there is none of."""
    store = shelf.open()
    asks = (store.find, store.release, lambda name: store.settle(name, 1.0), lambda name: store.reward(name, 1.0))
    for ask in asks:
        with _raises(UnknownDecision):
            ask(_name("nobody's"))


def takes_the_bill_of_a_released_call(shelf: Shelf) -> None:
    """Charge a call that was taken for failed; give nothing back twice, take no reward for it."""
    store, scope = _opened(shelf)
    record = _record(store, scope)
    name = record.decision.id
    store.reserve(record)
    store.release(name)
    with _raises(AlreadySettled):
        store.release(name)
    with _raises(AlreadySettled):
        store.reward(name, 1.0)
    assert _figures(store, scope) == (0.0, 0.0, 0, 0, 0)
    store.settle(name, 0.5)
    store.refresh()
    assert _figures(store, scope) == (0.5, 0.0, 1, 0, 1)


def keeps_a_hard_limit(shelf: Shelf) -> None:
    """Grant what fits, refuse the rest and change nothing then."""
    store, scope = _opened(shelf, Budget(2.5, 100, limit="hard"))
    first = [_record(store, scope) for _ in range(2)]
    for record in first:
        store.reserve(record)
    with _raises(BudgetExhausted):
        store.reserve(_record(store, scope))
    with _raises(BudgetExhausted):
        store.spend(scope, 0.75)
    assert _figures(store, scope) == (0.0, 2.0, 2, 2, 0)
    store.settle(first[0].decision.id, 0.25)
    store.reserve(_record(store, scope))
    store.refresh()
    assert _figures(store, scope) == (0.25, 2.0, 3, 2, 1)


def grants_no_more_than_there_is_to_a_crowd(shelf: Shelf) -> None:
    """Keep a hard limit where eight threads on two workers want more than there is."""
    store, scope = _opened(shelf, Budget(20.0, 1_000, limit="hard"))
    stores = (store, _beside(shelf, store))

    def take(at: int) -> int:
        mine, granted = stores[at % 2], 0
        for _ in range(5):
            record = _record(mine, scope)
            try:
                mine.reserve(record)
            except BudgetExhausted:
                continue
            mine.settle(record.decision.id, 1.0)
            granted += 1
        return granted

    with ThreadPoolExecutor(8) as crowd:
        granted = sum(crowd.map(take, range(8)))
    _refresh(*stores)
    assert granted == 20
    assert _figures(store, scope) == (20.0, 0.0, 20, 0, 20)


def gives_up_a_reservation_in_time(shelf: Shelf) -> None:
    """Give a reservation back when its time is up, and count a bill that comes even later."""
    store = shelf.open(reservation_ttl_s=1.0)
    scope = _name("scope")
    store.open(scope, Budget(10.0, 100))
    record = _record(store, scope)
    store.reserve(record)
    store.refresh()
    shelf.advance(1.1)
    store.refresh()
    ledger = store.ledger(scope)
    assert (ledger.tightest.reserved_usd, ledger.tightest.expired, ledger.tightest.decided) == (0.0, 1, 1)
    store.settle(record.decision.id, 0.5)
    store.refresh()
    assert _figures(store, scope) == (0.5, 0.0, 1, 0, 1)


def forgets_old_decisions(shelf: Shelf) -> None:
    """Know a settled decision no longer when its time is up; what it cost stays spent."""
    store = shelf.open(reservation_ttl_s=0.1, decision_ttl_s=1.0)
    scope = _name("scope")
    store.open(scope, Budget(10.0, 100))
    record = _record(store, scope)
    store.reserve(record)
    store.settle(record.decision.id, 0.5)
    other = _beside(shelf, store, reservation_ttl_s=0.1, decision_ttl_s=1.0)
    shelf.advance(1.3)
    store.reserve(_record(store, scope))
    store.refresh()
    with _raises(UnknownDecision):
        other.find(record.decision.id)
    assert store.ledger(scope).tightest.spent_usd == 0.5


def finds_by_another_name(shelf: Shelf) -> None:
    """Find, reward and charge a decision by an alias."""
    store, scope = _opened(shelf)
    record, call = _record(store, scope), _name("call")
    store.reserve(record)
    store.alias(call, record.decision.id)
    other = _beside(shelf, store)
    for seen in (store, other):
        assert seen.find(call).decision == record.decision
    other.reward(call, 0.5)
    other.settle(call, 0.25)
    with _raises(AlreadySettled):
        other.settle(record.decision.id, 0.25)


def keeps_scopes_apart_within_a_parent(shelf: Shelf) -> None:
    """Charge a team and its organisation, not the other team; the tightest of them refuses."""
    store, organisation = _opened(shelf, Budget(2.5, 100, limit="hard"))
    teams = [_name("team") for _ in range(2)]
    for team in teams:
        store.open(team, Budget(2.0, 100, limit="hard"), parent=organisation)
    for _ in range(2):
        record = _record(store, teams[0])
        store.reserve(record)
        store.settle(record.decision.id, 1.0)
    with _raises(BudgetExhausted):
        store.reserve(_record(store, teams[0]))
    with _raises(BudgetExhausted):
        store.reserve(_record(store, teams[1]))
    store.reserve(_record(store, teams[1], held_usd=0.5))
    _refresh(store)
    spent = [store.ledger(scope).each[0].spent_usd for scope in (*teams, organisation)]
    held = [store.ledger(scope).each[0].reserved_usd for scope in (*teams, organisation)]
    assert (spent, held) == ([2.0, 0.0, 2.0], [0.0, 0.5, 0.5])
    with _raises(NotStarted):
        store.open(_name("team"), Budget(1.0, 10), parent=_name("nobody"))


def takes_part_or_restarts(shelf: Shelf) -> None:
    """Go on with a running budget at the amount given now, or end it where that is said."""
    store, scope = _opened(shelf)
    record = _record(store, scope)
    store.reserve(record)
    other = _beside(shelf, store)
    other.open(scope, Budget(20.0, 200))
    _refresh(store)
    assert (store.ledger(scope).tightest.budget, _figures(store, scope)[2]) == (Budget(20.0, 200), 1)
    with _raises(InvalidInput):
        other.open(scope, Budget(20.0, 200, limit="hard"))
    other.open(scope, Budget(5.0, 50, limit="hard"), restart=True)
    store.settle(record.decision.id, 1.0)
    _refresh(store, other)
    assert _figures(store, scope) == (0.0, 0.0, 0, 0, 0)
    assert store.ledger(scope).tightest.left_usd == 5.0


def changes_a_running_budget(shelf: Shelf) -> None:
    """Change amount and horizon, counted from the start; refuse a budget that is not there."""
    store, scope = _opened(shelf)
    store.spend(scope, 4.0)
    store.amend(scope, amount_usd=5.0, horizon=50)
    other = _beside(shelf, store)
    for seen in (store, other):
        assert (seen.ledger(scope).tightest.left_usd, seen.ledger(scope).tightest.horizon) == (1.0, 50)
    with _raises(InvalidInput):
        store.amend(scope, amount_usd=9.0, horizon=None, every="day")
    with _raises(NotStarted):
        store.amend(_name("nobody's"), amount_usd=9.0, horizon=None)


def renews_by_the_clock(shelf: Shelf) -> None:
    """Begin each window with the whole amount, and hand on what the last one left where it rolls over."""
    store, other = shelf.open(), shelf.open()
    plain, rolling = _name("scope"), _name("scope")
    store.open(plain, Budget(2.0, every="2s", limit="hard"))
    store.open(rolling, Budget(2.0, every="2s", limit="hard", rollover=True))
    record = _record(store, rolling)
    for scope in (plain, rolling):
        store.spend(scope, 0.5)
    store.reserve(record)
    store.refresh()
    renews_at = store.ledger(rolling).tightest.renews_at or 0.0
    shelf.advance(renews_at - store.now() + 0.05)
    assert store.ledger(plain).tightest.left_usd == 2.0
    store.ledger(rolling)
    _refresh(store, other)
    store.settle(record.decision.id, 0.25)  # a bill of the window before
    _refresh(store, other)
    for seen in (store, other):
        if seen.ledger(rolling).tightest.renews_at == renews_at + 2.0:  # a slow machine may be in the next one already
            assert round(seen.ledger(rolling).tightest.carried_usd, 9) == 1.25
            assert seen.ledger(plain).tightest.left_usd == 2.0


def adds_up_what_workers_learn(shelf: Shelf) -> None:
    """Bring each worker what the others have observed, once."""
    store = shelf.open()
    if not store.durable:
        return
    other = shelf.open()
    contexts = Contexts.single()
    peers = [EstimateSync(contexts), EstimateSync(contexts)]
    for one, peer in zip((store, other), peers, strict=True):
        peer.set_models(["a", "b"])
        one.join(peer)
        one.refresh()
        peer.remote_observations()
    peers[0].add_cost(0, 1, 0.5)
    peers[1].add_reward(0, 0, 1.0, None)
    for _ in range(2):
        _refresh(store, other)
    heard = [peer.remote_observations() for peer in peers]
    assert [[news.sums.cost.tolist() for news in mine] for mine in heard[1:]] == [[[[0.0, 0.5]]]]
    assert [[news.sums.reward.tolist() for news in mine] for mine in heard[:1]] == [[[[1.0, 0.0]]]]
    _refresh(store, other)
    assert [peer.remote_observations() for peer in peers] == [[], []]


def serves_event_loops(shelf: Shelf) -> None:
    """Take steps from threads beside an event loop, as `adecide` and `acharge` do."""
    store, scope = _opened(shelf, Budget(1_000.0, 1_000, limit="hard"))

    async def call() -> None:
        record = _record(store, scope)
        await asyncio.to_thread(store.reserve, record)
        await asyncio.to_thread(store.settle, record.decision.id, 0.25)

    async def crowd() -> None:
        await asyncio.gather(*[call() for _ in range(20)])

    asyncio.run(crowd())
    store.refresh()
    assert _figures(store, scope) == (5.0, 0.0, 20, 0, 20)


STORE_CHECKS: tuple[Callable[[Shelf], None], ...] = (
    needs_a_budget,
    follows_a_call,
    counts_an_event_once,
    settles_on_another_worker,
    refuses_unknown_decisions,
    takes_the_bill_of_a_released_call,
    keeps_a_hard_limit,
    grants_no_more_than_there_is_to_a_crowd,
    gives_up_a_reservation_in_time,
    forgets_old_decisions,
    finds_by_another_name,
    keeps_scopes_apart_within_a_parent,
    takes_part_or_restarts,
    changes_a_running_budget,
    renews_by_the_clock,
    adds_up_what_workers_learn,
    serves_event_loops,
)
"""The checks that `check_store` runs."""


def _opened(shelf: Shelf, budget: Budget | None = None) -> tuple[Store, str]:
    """Return a store and a fresh scope with a budget, 10 USD by default."""
    store, scope = shelf.open(), _name("scope")
    store.open(scope, budget or Budget(10.0, 100))
    return store, scope


def _beside(shelf: Shelf, store: Store, **ttl_s: float) -> Store:
    """Return another store on the same state, which knows what this one has done."""
    store.refresh()
    return shelf.open(**ttl_s)


def _refresh(*stores: Store) -> None:
    for store in stores:
        store.refresh()


def _name(kind: str) -> str:
    return f"{kind} {os.urandom(6).hex()}"


def _record(store: Store, scope: str, *, held_usd: float = 1.0) -> Record:
    decision = Decision(_name("decision"), "m", 0, 1.0, 0.0, 0.0, 0.5 * held_usd, 0.5, held_usd, scope, store.now())
    return Record(decision, model=0, debit="actual")


def _figures(store: Store, scope: str) -> tuple[float, float, int, int, int]:
    """Return what is spent and reserved, and how many calls are decided, in flight and charged."""
    ledger = store.ledger(scope).each[0]
    spent_usd, reserved_usd = round(ledger.spent_usd, 9), round(ledger.reserved_usd, 9)
    return spent_usd, reserved_usd, ledger.decided, ledger.in_flight, ledger.charged


@contextmanager
def _raises(kind: type[WiseRouterError]) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"the store must raise {kind.__name__}, and did not")
