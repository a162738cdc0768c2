"""Checks of the contract of stores: conversations, the amounts that open runs commit, and the budgets of runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf, isclose

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.run_caps import RunCap
from wiserouter.conversations.conversation import Conversation
from wiserouter.errors import BudgetExhausted, RunBudgetExhausted
from wiserouter.stores.base import Record, Store
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


def keeps_conversations(shelf: Shelf) -> None:
    """Keep a state on all workers, in place of the version that it was made from, until it ends."""
    store, scope = opened(shelf)
    other = other_store(shelf, store)
    chat = Conversation(new_name("chat"), scope, "conversation", model="m").warmed("m", 100, at_s=5.0)
    for seen in (store, other):
        assert seen.conversation(chat.key) is None
        assert not seen.keep_conversation(chat._replace(version=1), 60.0)
    assert store.keep_conversation(chat, 60.0)
    for seen in (store, other):
        assert seen.conversation(chat.key) == chat._replace(version=1)
        assert not seen.keep_conversation(chat, 60.0)
        assert not seen.keep_conversation(chat._replace(version=2), 60.0)
    assert other.keep_conversation(chat._replace(version=1, calls=2), 60.0)
    assert not store.keep_conversation(chat._replace(version=1, calls=3), 60.0)
    assert store.conversation(chat.key) == chat._replace(version=2, calls=2)
    store.end_conversation(chat.key)
    store.end_conversation(chat.key)
    refresh(store)
    for seen in (store, other):
        assert seen.conversation(chat.key) is None
        assert not seen.keep_conversation(chat._replace(version=2), 60.0)
    assert other.keep_conversation(chat, 60.0)


def keeps_a_version_once(shelf: Shelf) -> None:
    """Keep one of several states that workers make from the same version."""
    store, scope = opened(shelf)
    stores = (store, other_store(shelf, store))
    chat = Conversation(new_name("chat"), scope, "conversation")

    def keep(at: int) -> int:
        return sum(
            stores[at % 2].keep_conversation(chat._replace(calls=10 * at + version, version=version), 60.0)
            for version in range(10)
        )

    with ThreadPoolExecutor(8) as crowd:
        kept = sum(crowd.map(keep, range(8)))
    final = store.conversation(chat.key)
    assert final is not None
    assert kept == final.version <= 10


def forgets_conversations_in_time(shelf: Shelf) -> None:
    """Forget a conversation that was not kept again within its time to live."""
    store, scope = opened(shelf)
    long, short = (Conversation(new_name("chat"), scope, "conversation") for _ in range(2))
    assert store.keep_conversation(long, 60.0)
    assert store.keep_conversation(short, 60.0)
    assert store.keep_conversation(short._replace(version=1), 0.5)
    other = other_store(shelf, store)
    shelf.advance(0.7)
    for seen in (store, other):
        assert seen.conversation(short.key) is None
        assert seen.conversation(long.key) == long._replace(version=1)
    assert not other.keep_conversation(short._replace(version=2), 60.0)
    assert other.keep_conversation(short, 60.0)
    assert store.conversation(short.key) == short._replace(version=1)


def commits_the_rest_of_runs(shelf: Shelf) -> None:
    """Leave the expected rest of open runs out of the funds, in all budgets of their scopes, until they end."""
    month = Budget(40.0, 100, every="week")
    store, organisation = opened(shelf, Budget(20.0, 100, limit="hard"))
    team, other_team = new_name("team"), new_name("team")
    store.open(team, Budget(10.0, 50, within=month), parent=organisation)
    store.open(other_team, Budget(10.0, 50), parent=organisation)
    run = Conversation(new_name("run"), team, "run", rest_usd=2.0)
    one = Conversation(new_name("run"), other_team, "run", rest_usd=0.5)
    chat = Conversation(new_name("chat"), team, "conversation", rest_usd=4.0)
    for conversation in (run, one, chat):
        assert store.keep_conversation(conversation, 60.0)
    other = other_store(shelf, store)
    _check_committed(store, other, {team: 2.0, other_team: 0.5, organisation: 2.5})
    snapshot = store.snapshot(team)
    assert [isclose(one.left_usd, left) for one, left in zip(snapshot.funds.each, (8.0, 38.0, 17.5), strict=True)]
    assert isclose(snapshot.room_usd, 20.0)
    assert isclose(snapshot.bearable_usd, 8.0)
    assert other.keep_conversation(run._replace(version=1, rest_usd=1.5), 60.0)
    _check_committed(store, other, {team: 1.5, other_team: 0.5, organisation: 2.0})
    store.open(team, Budget(5.0, 50), parent=organisation, restart=True)
    _check_committed(store, other, {team: 1.5, organisation: 2.0})
    other.end_conversation(run.key)
    _check_committed(store, other, {team: 0.0, other_team: 0.5, organisation: 0.5})
    assert store.keep_conversation(one._replace(version=1, rest_usd=0.0), 60.0)
    _check_committed(store, other, {other_team: 0.0, organisation: 0.0})


def takes_back_the_rest_of_expired_runs(shelf: Shelf) -> None:
    """Take back the amount that a run commits when its time is up, also where a longer one goes on."""
    store, scope = opened(shelf)
    long, short = (Conversation(new_name("run"), scope, "run", rest_usd=usd) for usd in (1.0, 0.25))
    assert store.keep_conversation(long, 60.0)
    assert store.keep_conversation(short, 60.0)
    other = other_store(shelf, store)
    _check_committed(store, other, {scope: 1.25})
    assert other.keep_conversation(short._replace(version=1), 0.5)
    shelf.advance(1.2)
    _check_committed(store, other, {scope: 1.0})
    other.end_conversation(short.key)
    _check_committed(store, other, {scope: 1.0})


def says_that_open_runs_hold_the_budget(shelf: Shelf) -> None:
    """Name the committed amount in the error of a budget that open runs have used up."""
    store, scope = opened(shelf)
    assert store.keep_conversation(Conversation(new_name("run"), scope, "run", rest_usd=10.0), 60.0)
    refresh(store)
    error = store.snapshot(scope).account.refusal(0.5)
    assert isinstance(error, BudgetExhausted)
    assert (error.committed_usd, error.left_usd) == (10.0, 0.0)
    assert "10 committed to open runs" in str(error)


def continues_a_run_without_using_the_horizon(shelf: Shelf) -> None:
    """Count the money of calls that continue a run, and none of them as a request."""
    store, scope = opened(shelf, Budget(20.0, 100))
    first = new_record(store, scope)
    store.reserve(first)
    calls = [replace(new_record(store, scope), counts=False) for _ in range(6)]
    for record in calls:
        store.reserve(record)
    other = other_store(shelf, store)
    assert figures(other, scope) == (0.0, 7.0, 1, 7, 0)
    assert other.ledger(scope).each[0].continuing == 6
    charged, released, billed, given_back, paid, _ = [record.decision.id for record in calls]
    store.settle(charged, 0.25)
    store.release(released)
    store.release(billed)
    store.settle(billed, 0.5)
    refresh(store)
    for name in (given_back, paid):
        other.presume(name)
    other.release(given_back)
    other.settle(paid, 0.125)
    refresh(other, store)
    for seen in (store, other):
        assert figures(seen, scope) == (0.875, 2.0, 1, 2, 3)
        assert presumed(seen, scope) == (0, 0.0)
        ledger = seen.ledger(scope).each[0]
        assert (ledger.released, ledger.continuing, seen.snapshot(scope).funds.requests) == (2, 1, 99)
    store.release(first.decision.id)
    refresh(store)
    assert figures(store, scope) == (0.875, 1.0, 0, 1, 3)
    assert [replace(other.find(record.decision.id), trace=None).counts for record in (first, *calls[:2])] == [
        True,
        False,
        False,
    ]


def keeps_the_hard_budget_of_a_run(shelf: Shelf) -> None:
    """Refuse a call whose worst case does not fit into the budget of its run, on all workers, without a change."""
    store, scope = opened(shelf)
    cap = RunCap(new_name("run"), 2.0, hard=True, ttl_s=60.0)
    first, second, third = (_in_run(store, scope, cap) for _ in range(3))
    store.reserve(first)
    other = other_store(shelf, store)
    other.reserve(second)
    refresh(other)
    for seen in (store, other):
        with raises(RunBudgetExhausted):
            seen.reserve(third)
        assert figures(seen, scope) == (0.0, 2.0, 2, 2, 0)
        snapshot = seen.snapshot(scope, (cap,))
        assert snapshot.hard
        assert isclose(snapshot.room_usd, 0.0, abs_tol=1e-9)
        assert isclose(snapshot.bearable_usd, 9.0)
        assert snapshot.funds == seen.snapshot(scope).funds
        error = snapshot.account.exhausted(1.0)
        assert isinstance(error, RunBudgetExhausted)
        assert (error.amount_usd, error.spent_usd, error.reserved_usd, error.needed_usd) == (2.0, 0.0, 2.0, 1.0)
        assert error.is_only_held
    store.reserve(new_record(store, scope))  # a call of no run
    store.settle(first.decision.id, 0.25)
    refresh(store)
    with raises(RunBudgetExhausted):
        other.reserve(third)
    other.settle(second.decision.id, 0.25)
    refresh(other)
    store.reserve(third)
    other.reserve(_in_run(store, scope, cap, held_usd=0.5))
    with raises(RunBudgetExhausted):
        store.reserve(_in_run(store, scope, cap, held_usd=0.01))


def keeps_the_expected_budget_of_a_run(shelf: Shelf) -> None:
    """Refuse a call whose expected cost does not fit, whatever its worst case is; under a hard limit as well."""
    for budget in (Budget(10.0, 100), Budget(10.0, 100, limit="hard")):
        store, scope = opened(shelf, budget)
        cap = RunCap(new_name("run"), 1.0, hard=False, ttl_s=60.0)
        first, second, third = (_in_run(store, scope, cap) for _ in range(3))
        store.reserve(first)
        store.reserve(second)
        with raises(RunBudgetExhausted):
            store.reserve(third)
        snapshot = store.snapshot(scope, (cap,))
        assert snapshot.hard is budget.hard
        assert isclose(snapshot.bearable_usd, 0.0, abs_tol=1e-9)
        assert isinstance(snapshot.account.refusal(0.5), RunBudgetExhausted)
        assert snapshot.room_usd == inf or isclose(snapshot.room_usd, 8.0)
        store.settle(first.decision.id, 0.25)
        store.settle(second.decision.id, 0.25)
        store.reserve(third)
        refresh(store)
        assert isclose(other_store(shelf, store).snapshot(scope, (cap,)).bearable_usd, 0.0, abs_tol=1e-9)


def bears_a_call_by_all_runs(shelf: Shelf) -> None:
    """Reserve a call of a sub-agent in the budgets of its run and of the run that it is a part of, or in none."""
    store, scope = opened(shelf)
    parent = RunCap(new_name("run"), 2.5, hard=True, ttl_s=60.0)
    children = [RunCap(new_name("run"), 2.0, hard=True, ttl_s=60.0) for _ in range(2)]
    calls = [_in_run(store, scope, child, parent) for child in (*children, children[0])]
    for record in calls[:2]:
        store.reserve(record)
    with raises(RunBudgetExhausted):
        store.reserve(calls[2])
    assert isclose(store.snapshot(scope, (children[0],)).room_usd, 1.0)
    assert isclose(store.snapshot(scope, (children[0], parent)).room_usd, 0.5)
    store.release(calls[0].decision.id)
    refresh(store)
    other = other_store(shelf, store)
    assert isclose(other.snapshot(scope, (children[0], parent)).room_usd, 1.5)
    other.settle(calls[1].decision.id, 0.5)
    refresh(other)
    store.reserve(calls[2])
    with raises(RunBudgetExhausted):
        store.reserve(_in_run(store, scope, parent, held_usd=1.1))


def refuses_nothing_halfway(shelf: Shelf) -> None:
    """Change no budget of a run where the budget of the scope refuses a call."""
    store, scope = opened(shelf, Budget(1.5, 100, limit="hard"))
    cap = RunCap(new_name("run"), 2.0, hard=True, ttl_s=60.0)
    store.reserve(_in_run(store, scope, cap))
    assert not isinstance(store.snapshot(scope, (cap,)).account.exhausted(1.0), RunBudgetExhausted)
    with raises(BudgetExhausted):
        store.reserve(_in_run(store, scope, cap))
    assert isclose(store.snapshot(scope, (cap,)).room_usd, 0.5)
    store.spend(scope, 0.5)
    account = other_store(shelf, store).snapshot(scope, (cap,)).account
    assert isinstance(account.exhausted(1.0), BudgetExhausted)


def grants_no_more_than_a_run_has_to_a_crowd(shelf: Shelf) -> None:
    """Keep the hard budget of a run where eight threads on two workers ask for more."""
    store, scope = opened(shelf, Budget(1_000.0, 1_000))
    stores = (store, other_store(shelf, store))
    cap = RunCap(new_name("run"), 20.0, hard=True, ttl_s=60.0)

    def take(at: int) -> int:
        mine, granted = stores[at % 2], 0
        for _ in range(5):
            record = _in_run(mine, scope, cap)
            try:
                mine.reserve(record)
            except RunBudgetExhausted:
                continue
            mine.settle(record.decision.id, 1.0)
            granted += 1
        return granted

    with ThreadPoolExecutor(8) as crowd:
        granted = sum(crowd.map(take, range(8)))
    refresh(*stores)
    assert granted == 20
    assert figures(store, scope) == (20.0, 0.0, 20, 0, 20)


def presumes_the_worst_case_under_the_hard_budget_of_a_run(shelf: Shelf) -> None:
    """Count a call of unknown outcome at its worst case in all budgets, also where that of the scope is expected."""
    store = shelf.open(reservation_ttl_s=1.0)
    scope = new_name("scope")
    store.open(scope, Budget(10.0, 100))
    cap = RunCap(new_name("run"), 2.0, hard=True, ttl_s=60.0)
    first, second = (_in_run(store, scope, cap) for _ in range(2))
    store.reserve(first)
    assert store.presume(first.decision.id).cost_usd == 1.0
    store.reserve(second)
    store.refresh()
    shelf.advance(1.2)
    store.refresh()
    assert presumed(store, scope) == (2, 2.0)
    with raises(RunBudgetExhausted):
        store.reserve(_in_run(store, scope, cap, held_usd=0.5))
    store.settle(second.decision.id, 0.25)
    store.refresh()
    store.reserve(_in_run(store, scope, cap, held_usd=0.5))


def forgets_the_budget_of_a_run_in_time(shelf: Shelf) -> None:
    """Open the budget of a run again its time to live after its last use, but not while a call is in flight."""
    store, scope = opened(shelf)
    cap = RunCap(new_name("run"), 1.0, hard=True, ttl_s=0.5)
    first = _in_run(store, scope, cap)
    store.reserve(first)
    other = other_store(shelf, store)
    shelf.advance(0.7)
    for seen in (store, other):
        with raises(RunBudgetExhausted):
            seen.reserve(_in_run(seen, scope, cap))
    store.settle(first.decision.id, 1.0)
    refresh(store)
    shelf.advance(0.7)
    assert isclose(other.snapshot(scope, (cap,)).room_usd, 1.0) or other.durable
    other.reserve(_in_run(other, scope, cap))
    refresh(other, store)
    assert figures(store, scope) == (1.0, 1.0, 2, 1, 1)


def opens_the_budget_of_an_ended_run_again(shelf: Shelf) -> None:
    """Forget the budget of a run that is ended, unless a call of it is in flight."""
    store, scope = opened(shelf)
    cap = RunCap(new_name("run"), 1.0, hard=True, ttl_s=60.0)
    record = _in_run(store, scope, cap)
    store.reserve(record)
    store.end_conversation(cap.key)
    refresh(store)
    with raises(RunBudgetExhausted):
        store.reserve(_in_run(store, scope, cap))
    store.settle(record.decision.id, 1.0)
    refresh(store)
    store.end_conversation(cap.key)
    refresh(store)
    other = other_store(shelf, store)
    other.reserve(_in_run(store, scope, cap))


def finds_the_caps_of_a_call(shelf: Shelf) -> None:
    """Return the caps of a call with its record, and reserve it once."""
    store, scope = opened(shelf)
    cap = RunCap(new_name("run"), 1.0, hard=True, ttl_s=60.0)
    record = replace(_in_run(store, scope, cap), counts=False)
    for _ in range(3):
        store.reserve(record)
    other = other_store(shelf, store)
    found = other.find(record.decision.id)
    assert (found.decision, found.caps, found.counts) == (record.decision, (cap,), False)
    assert other.presume(record.decision.id).cost_usd == 1.0
    refresh(other, store)
    assert figures(store, scope) == (1.0, 0.0, 0, 0, 0)


def _in_run(store: Store, scope: str, *caps: RunCap, held_usd: float = 1.0) -> Record:
    """Return the record of a new call of a run."""
    return replace(new_record(store, scope, held_usd=held_usd), caps=caps)


def _check_committed(store: Store, other: Store, committed_usd: dict[str, float]) -> None:
    refresh(store, other, store)
    for seen in (store, other):
        for scope, usd in committed_usd.items():
            assert isclose(seen.snapshot(scope).committed_usd, usd, abs_tol=1e-9)


RUN_CHECKS: tuple[Callable[[Shelf], None], ...] = (
    keeps_conversations,
    keeps_a_version_once,
    forgets_conversations_in_time,
    commits_the_rest_of_runs,
    takes_back_the_rest_of_expired_runs,
    says_that_open_runs_hold_the_budget,
    continues_a_run_without_using_the_horizon,
    keeps_the_hard_budget_of_a_run,
    keeps_the_expected_budget_of_a_run,
    bears_a_call_by_all_runs,
    refuses_nothing_halfway,
    grants_no_more_than_a_run_has_to_a_crowd,
    presumes_the_worst_case_under_the_hard_budget_of_a_run,
    forgets_the_budget_of_a_run_in_time,
    opens_the_budget_of_an_ended_run_again,
    finds_the_caps_of_a_call,
)
"""The checks of conversations and runs that `check_store` runs."""
