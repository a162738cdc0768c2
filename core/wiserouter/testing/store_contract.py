"""The contract of stores as a list of checks; `check_store` runs them on any store.

Each check uses new scopes and decisions, so that all checks can run on the same state. What one store does, a check
reads through another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf, isclose

from wiserouter.budgets.budget import Budget
from wiserouter.errors import (
    AlreadySettled,
    BudgetExhausted,
    InvalidInput,
    NotStarted,
    UnknownDecision,
)
from wiserouter.learning.source_scores import SourceScore
from wiserouter.prompts.contexts import Contexts
from wiserouter.stores.shared.estimate_sync import EstimateSync
from wiserouter.testing.change_contract import CHANGE_CHECKS
from wiserouter.testing.claim_contract import CLAIM_CHECKS
from wiserouter.testing.day_contract import DAY_CHECKS
from wiserouter.testing.presumed_calls import (
    keeps_the_scores_of_each_source,
    presumes_a_call_of_unknown_outcome,
    presumes_a_call_that_is_not_settled_in_time,
    presumes_only_what_is_in_flight,
    takes_a_score_of_a_call_that_was_billed_after_its_release,
)
from wiserouter.testing.run_contract import RUN_CHECKS
from wiserouter.testing.shelf import Shelf, figures, new_name, new_record, opened, other_store, raises, refresh


def check_store(shelf: Shelf) -> None:
    """Run all checks of the contract of stores.

    Parameters
    ----------
    shelf : Shelf
        Empty state.

    Raises
    ------
    AssertionError
        If the store breaks the contract; a note names the check.

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
    """Refuse a scope without a budget."""
    store, scope = shelf.open(), new_name("scope")
    record = new_record(store, scope)
    for verb in (
        lambda: store.ledger(scope),
        lambda: store.snapshot(scope),
        lambda: store.reserve(record),
        lambda: store.spend(scope, 1.0),
    ):
        with raises(NotStarted):
            verb()


def follows_a_call(shelf: Shelf) -> None:
    """Reserve, charge and release."""
    store, scope = opened(shelf)
    one, two = new_record(store, scope), new_record(store, scope)
    store.reserve(one)
    store.reserve(two)
    assert figures(store, scope) == (0.0, 2.0, 2, 2, 0)
    store.settle(one.decision.id, 0.25, model="large")
    store.release(two.decision.id)
    for seen in (store, shelf.open()):
        store.refresh()
        assert figures(seen, scope) == (0.25, 0.0, 1, 0, 1)
        found = seen.find(one.decision.id)
        assert (found.state, found.name, found.cost_usd) == ("charged", "large", 0.25)
        assert found.decision == one.decision


def takes_a_snapshot_of_the_budget(shelf: Shelf) -> None:
    """Return a snapshot that agrees with the ledger, under a hard and under an expected limit."""
    hard, expected = Budget(10.0, 100, limit="hard"), Budget(10.0, 100)
    for budget, room_usd, margin_usd, bearable_usd in ((hard, 9.0, 0.5, inf), (expected, inf, 0.0, 9.5)):
        store, scope = opened(shelf, budget)
        store.reserve(new_record(store, scope))
        for seen in (store, other_store(shelf, store)):
            snapshot, tightest = seen.snapshot(scope), seen.ledger(scope).tightest
            assert (snapshot.funds.left_usd, snapshot.funds.requests) == (9.5, tightest.horizon_left) == (9.5, 99)
            assert snapshot.hard is budget.hard
            assert isclose(snapshot.room_usd, room_usd)
            assert snapshot.margin_usd == margin_usd
            assert isclose(snapshot.bearable_usd, bearable_usd)


def counts_an_event_once(shelf: Shelf) -> None:
    """Count a reservation, a charge and a reward that are delivered three times as one."""
    store, scope = opened(shelf)
    record = new_record(store, scope)
    name = record.decision.id
    for _ in range(3):
        store.reserve(record)
    store.settle(name, 0.25)
    other = other_store(shelf, store)
    for again in (store, other):
        with raises(AlreadySettled):
            again.settle(name, 0.25)
        with raises(AlreadySettled):
            again.release(name)
    known = {"human": SourceScore(0.5, 1.0, 0.5)}
    assert [again.reward(name, 0.5)[1] for again in (store, other, store)] == [{}, known, known]
    refresh(store, other)
    assert figures(other, scope) == (0.25, 0.0, 1, 0, 1)


def settles_on_another_worker(shelf: Shelf) -> None:
    """Charge and reward a call on a worker that did not decide it; a reward may come before the charge."""
    store, scope = opened(shelf)
    record = new_record(store, scope)
    name = record.decision.id
    store.reserve(record)
    other = other_store(shelf, store)
    found, before = other.reward(name, 0.75)
    assert (found.decision, before) == (record.decision, {})
    other.settle(name, 0.5)
    refresh(other, store)
    assert figures(store, scope) == (0.5, 0.0, 1, 0, 1)
    assert other.reward(name, 1.0)[1] == {"human": SourceScore(0.75, 1.0, 0.75)}


def refuses_unknown_decisions(shelf: Shelf) -> None:
    """Raise an error for an unknown decision."""
    store = shelf.open()
    verbs = (
        store.find,
        store.release,
        store.presume,
        lambda name: store.settle(name, 1.0),
        lambda name: store.reward(name, 1.0),
    )
    for verb in verbs:
        with raises(UnknownDecision):
            verb(new_name("unknown"))


def takes_the_bill_of_a_released_call(shelf: Shelf) -> None:
    """Charge a call that was released; refuse a second release and a reward."""
    store, scope = opened(shelf)
    record = new_record(store, scope)
    name = record.decision.id
    store.reserve(record)
    store.release(name)
    with raises(AlreadySettled):
        store.release(name)
    with raises(AlreadySettled):
        store.reward(name, 1.0)
    assert figures(store, scope) == (0.0, 0.0, 0, 0, 0)
    store.settle(name, 0.5)
    store.refresh()
    assert figures(store, scope) == (0.5, 0.0, 1, 0, 1)


def keeps_a_hard_limit(shelf: Shelf) -> None:
    """Grant reservations that fit; refuse others without a change."""
    store, scope = opened(shelf, Budget(2.5, 100, limit="hard"))
    first = [new_record(store, scope) for _ in range(2)]
    for record in first:
        store.reserve(record)
    with raises(BudgetExhausted):
        store.reserve(new_record(store, scope))
    with raises(BudgetExhausted):
        store.spend(scope, 0.75)
    assert figures(store, scope) == (0.0, 2.0, 2, 2, 0)
    store.settle(first[0].decision.id, 0.25)
    store.reserve(new_record(store, scope))
    store.refresh()
    assert figures(store, scope) == (0.25, 2.0, 3, 2, 1)


def counts_what_was_billed_beyond_a_hard_limit(shelf: Shelf) -> None:
    """Count a cost that is billed already, though no hard limit admits it."""
    store, scope = opened(shelf, Budget(2.5, 100, limit="hard"))
    store.spend(scope, 3.0, billed=True)
    store.refresh()
    assert (figures(store, scope)[0], store.ledger(scope).tightest.left_usd) == (3.0, -0.5)
    with raises(BudgetExhausted):
        store.spend(scope, 0.25)


def grants_no_more_than_there_is_to_a_crowd(shelf: Shelf) -> None:
    """Keep a hard limit where eight threads on two workers ask for more than the budget."""
    store, scope = opened(shelf, Budget(20.0, 1_000, limit="hard"))
    stores = (store, other_store(shelf, store))

    def take(at: int) -> int:
        mine, granted = stores[at % 2], 0
        for _ in range(5):
            record = new_record(mine, scope)
            try:
                mine.reserve(record)
            except BudgetExhausted:
                continue
            mine.settle(record.decision.id, 1.0)
            granted += 1
        return granted

    with ThreadPoolExecutor(8) as crowd:
        granted = sum(crowd.map(take, range(8)))
    refresh(*stores)
    assert granted == 20
    assert figures(store, scope) == (20.0, 0.0, 20, 0, 20)


def forgets_old_decisions(shelf: Shelf) -> None:
    """Delete a settled decision when its time is up; its cost stays spent."""
    store = shelf.open(reservation_ttl_s=0.1, decision_ttl_s=1.0)
    scope = new_name("scope")
    store.open(scope, Budget(10.0, 100))
    record = new_record(store, scope)
    store.reserve(record)
    store.settle(record.decision.id, 0.5)
    other = other_store(shelf, store, reservation_ttl_s=0.1, decision_ttl_s=1.0)
    shelf.advance(1.3)
    store.reserve(new_record(store, scope))
    store.refresh()
    with raises(UnknownDecision):
        other.find(record.decision.id)
    assert store.ledger(scope).tightest.spent_usd == 0.5


def finds_by_another_name(shelf: Shelf) -> None:
    """Find, reward and charge a decision by an alias."""
    store, scope = opened(shelf)
    record, call = new_record(store, scope), new_name("call")
    store.reserve(record)
    store.alias((call,), record.decision.id)
    other = other_store(shelf, store)
    for seen in (store, other):
        assert seen.find(call).decision == record.decision
        assert seen.find(new_name("call"), call, new_name("call")).decision == record.decision
        with raises(UnknownDecision):
            seen.find(new_name("call"), new_name("call"))
    other.reward(call, 0.5)
    other.settle(call, 0.25)
    with raises(AlreadySettled):
        other.settle(record.decision.id, 0.25)


def keeps_scopes_apart_within_a_parent(shelf: Shelf) -> None:
    """Charge a team and its organisation, not the other team; the tightest budget refuses."""
    store, organisation = opened(shelf, Budget(2.5, 100, limit="hard"))
    teams = [new_name("team") for _ in range(2)]
    for team in teams:
        store.open(team, Budget(2.0, 100, limit="hard"), parent=organisation)
        assert tuple(store.payers(team)) == (team, organisation)
        assert tuple(other_store(shelf, store).payers(team)) == (team, organisation)
    for _ in range(2):
        record = new_record(store, teams[0])
        store.reserve(record)
        store.settle(record.decision.id, 1.0)
    with raises(BudgetExhausted):
        store.reserve(new_record(store, teams[0]))
    with raises(BudgetExhausted):
        store.reserve(new_record(store, teams[1]))
    store.reserve(new_record(store, teams[1], held_usd=0.5))
    refresh(store)
    spent = [store.ledger(scope).each[0].spent_usd for scope in (*teams, organisation)]
    held = [store.ledger(scope).each[0].reserved_usd for scope in (*teams, organisation)]
    assert (spent, held) == ([2.0, 0.0, 2.0], [0.0, 0.5, 0.5])
    with raises(NotStarted):
        store.open(new_name("team"), Budget(1.0, 10), parent=new_name("unknown"))


def refuses_a_scope_within_itself(shelf: Shelf) -> None:
    """Refuse a parent that the scope encloses, also by what another worker has opened; the budgets stay."""
    store, outer = opened(shelf)
    middle, inner = new_name("middle"), new_name("inner")
    store.open(middle, Budget(5.0, 100), parent=outer)
    other = other_store(shelf, store)
    other.open(inner, Budget(2.0, 100), parent=middle)
    for parent in (outer, middle, inner):
        with raises(InvalidInput):
            store.open(outer, Budget(9.0, 100), parent=parent, restart=True)
    refresh(store)
    assert tuple(store.payers(inner)) == (inner, middle, outer)
    assert store.ledger(outer).budget.amount_usd == 10.0
    aside = new_name("aside")
    other.open(aside, Budget(1.0, 10))
    other.open(middle, Budget(5.0, 100), parent=aside, restart=True)
    with raises(InvalidInput):
        store.open(aside, Budget(1.0, 10), parent=middle, restart=True)
    with raises(InvalidInput):
        store.open("unknown", Budget(1.0, 10), parent="unknown")


def takes_part_or_restarts(shelf: Shelf) -> None:
    """Join a running budget with the amount given now, or end it with `restart`."""
    store, scope = opened(shelf)
    record = new_record(store, scope)
    store.reserve(record)
    other = other_store(shelf, store)
    other.open(scope, Budget(20.0, 200))
    refresh(store)
    assert (store.ledger(scope).tightest.budget, figures(store, scope)[2]) == (Budget(20.0, 200), 1)
    with raises(InvalidInput):
        other.open(scope, Budget(20.0, 200, limit="hard"))
    other.open(scope, Budget(5.0, 50, limit="hard"), restart=True)
    store.settle(record.decision.id, 1.0)
    refresh(store, other)
    assert figures(store, scope) == (0.0, 0.0, 0, 0, 0)
    assert store.ledger(scope).tightest.left_usd == 5.0


def changes_a_running_budget(shelf: Shelf) -> None:
    """Change amount and horizon, counted from the start; refuse an unknown budget."""
    store, scope = opened(shelf)
    store.spend(scope, 4.0)
    store.amend(scope, amount_usd=5.0, horizon=50)
    other = other_store(shelf, store)
    for seen in (store, other):
        assert (seen.ledger(scope).tightest.left_usd, seen.ledger(scope).tightest.horizon) == (1.0, 50)
    with raises(InvalidInput):
        store.amend(scope, amount_usd=9.0, horizon=None, every="day")
    with raises(NotStarted):
        store.amend(new_name("unknown"), amount_usd=9.0, horizon=None)


def renews_by_the_clock(shelf: Shelf) -> None:
    """Begin each window with the whole amount, and where it rolls over, add the amount that the last one left."""
    store, other = shelf.open(), shelf.open()
    plain, rolling = new_name("scope"), new_name("scope")
    store.open(plain, Budget(2.0, every="2s", limit="hard"))
    store.open(rolling, Budget(2.0, every="2s", limit="hard", rollover=True))
    record = new_record(store, rolling)
    for scope in (plain, rolling):
        store.spend(scope, 0.5)
    store.reserve(record)
    store.refresh()
    renews_at = store.ledger(rolling).tightest.renews_at or 0.0
    while (left_s := renews_at - store.now()) > -0.05:  # a slow exchange may set the store's clock back meanwhile
        shelf.advance(left_s + 0.1)
    assert store.ledger(plain).tightest.left_usd == 2.0
    store.ledger(rolling)
    refresh(store, other)
    store.settle(record.decision.id, 0.25)  # a bill of the window before
    refresh(store, other)
    for seen in (store, other):
        if seen.ledger(rolling).tightest.renews_at == renews_at + 2.0:  # a slow machine may be in the next one already
            assert round(seen.ledger(rolling).tightest.carried_usd, 9) == 1.25
            assert seen.ledger(plain).tightest.left_usd == 2.0


def adds_up_what_workers_learn(shelf: Shelf) -> None:
    """Return to each worker the observations of the others, once."""
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
    peers[1].add_reward(0, 0, 1.0)
    for _ in range(2):
        refresh(store, other)
    rewards, costs = [peer.remote_observations() for peer in peers]
    assert [remote.sums.cost.tolist() for remote in costs] == [[[0.0, 0.5]]]
    assert [remote.sums.reward.tolist() for remote in rewards] == [[[1.0, 0.0]]]
    refresh(store, other)
    assert [peer.remote_observations() for peer in peers] == [[], []]


def serves_event_loops(shelf: Shelf) -> None:
    """Serve threads next to an event loop, as `adecide` and `acharge` do."""
    store, scope = opened(shelf, Budget(1_000.0, 1_000, limit="hard"))

    async def call() -> None:
        record = new_record(store, scope)
        await asyncio.to_thread(store.reserve, record)
        await asyncio.to_thread(store.settle, record.decision.id, 0.25)

    async def crowd() -> None:
        await asyncio.gather(*[call() for _ in range(20)])

    asyncio.run(crowd())
    store.refresh()
    assert figures(store, scope) == (5.0, 0.0, 20, 0, 20)


STORE_CHECKS: tuple[Callable[[Shelf], None], ...] = (
    needs_a_budget,
    follows_a_call,
    takes_a_snapshot_of_the_budget,
    counts_an_event_once,
    settles_on_another_worker,
    refuses_unknown_decisions,
    takes_the_bill_of_a_released_call,
    keeps_a_hard_limit,
    counts_what_was_billed_beyond_a_hard_limit,
    grants_no_more_than_there_is_to_a_crowd,
    presumes_a_call_of_unknown_outcome,
    presumes_only_what_is_in_flight,
    presumes_a_call_that_is_not_settled_in_time,
    forgets_old_decisions,
    finds_by_another_name,
    keeps_scopes_apart_within_a_parent,
    refuses_a_scope_within_itself,
    keeps_the_scores_of_each_source,
    takes_a_score_of_a_call_that_was_billed_after_its_release,
    takes_part_or_restarts,
    changes_a_running_budget,
    renews_by_the_clock,
    adds_up_what_workers_learn,
    serves_event_loops,
    *CHANGE_CHECKS,
    *DAY_CHECKS,
    *RUN_CHECKS,
    *CLAIM_CHECKS,
)
"""The checks that `check_store` runs."""
