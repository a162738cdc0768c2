"""The part of the contract of stores that is about changes by an administrator."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.changes import BudgetChange, ChangeRefused
from wiserouter.budgets.pauses import BudgetPaused
from wiserouter.errors import BudgetExhausted, InvalidInput, NotStarted
from wiserouter.testing.shelf import Shelf, new_name, new_record, opened, other_store, raises


def changes_an_amount_for_all_workers(shelf: Shelf) -> None:
    """Change amount and requests for this worker and the others; a start on the former terms does not undo it."""
    store, scope = opened(shelf)
    with raises(NotStarted):
        store.change(new_name("scope"), BudgetChange(amount_usd=1.0))
    answered = store.change(scope, BudgetChange(amount_usd=12.0, horizon=50))
    assert (answered.before["amount_usd"], answered.after["amount_usd"], answered.after["horizon"]) == (10.0, 12.0, 50)
    other = other_store(shelf, store)
    if other.durable:
        other.open(scope, Budget(10.0, 100))
    for seen in (store, other):
        seen.refresh()
        assert (seen.ledger(scope).budget.amount_usd, seen.ledger(scope).budget.horizon) == (12.0, 50)
    if other.durable:
        other.open(scope, Budget(11.0, 100))  # another configuration counts
        assert (other.ledger(scope).budget.amount_usd, other.ledger(scope).budget.horizon) == (11.0, 100)


def plans_for_other_requests_in_all_workers(shelf: Shelf) -> None:
    """Forecast the requests of a window by a changed number in this worker, in the others, and in those that start."""
    store, scope = opened(shelf, Budget(10.0, 100, every="30d"))
    other = other_store(shelf, store)
    before = other.ledger(scope).each[0].horizon
    store.change(scope, BudgetChange(horizon=10_000))
    seen = [store, other, other_store(shelf, store)]
    for one in seen:
        one.refresh()
    horizons = [one.ledger(scope).each[0].horizon for one in seen]
    assert min(horizons) > 10 * before, (before, horizons)
    assert max(horizons) < 1.01 * min(horizons), horizons


def raises_an_amount_for_a_while(shelf: Shelf) -> None:
    """Add to the amount of one window, and for good where the budget does not renew."""
    store, scope = opened(shelf, Budget(10.0, every="1s"))
    answered = store.change(scope, BudgetChange(add_usd=5.0, windows=1))
    assert (answered.after["amount_usd"], answered.after["later_amount_usd"]) == (15.0, 10.0)
    shelf.advance(1.1)
    assert other_store(shelf, store).ledger(scope).budget.amount_usd == 10.0
    store, scope = opened(shelf)
    store.change(scope, BudgetChange(add_usd=5.0))
    assert other_store(shelf, store).ledger(scope).budget.amount_usd == 15.0


def refuses_to_break_a_hard_limit(shelf: Shelf) -> None:
    """Refuse an amount below what is spent and reserved under a hard limit, and take the least that covers it."""
    store, scope = opened(shelf, Budget(10.0, 100, limit="hard"))
    store.spend(scope, 3.0)
    record = new_record(store, scope, held_usd=2.0)
    store.reserve(record)
    with raises(ChangeRefused):
        store.change(scope, BudgetChange(amount_usd=4.9))
    assert store.ledger(scope).budget.amount_usd == 10.0
    store.change(scope, BudgetChange(amount_usd=5.0))
    with raises(BudgetExhausted):
        store.reserve(new_record(store, scope, held_usd=0.1))
    store.settle(record.decision.id, 1.0)
    store.reserve(new_record(store, scope, held_usd=1.0))


def pauses_and_goes_on(shelf: Shelf) -> None:
    """Decide nothing while a budget or the one around it is paused; calls in flight are settled."""
    store, parent = opened(shelf)
    scope = new_name("scope")
    store.open(scope, Budget(5.0, 50), parent=parent)
    record = new_record(store, scope)
    store.reserve(record)
    store.change(parent, BudgetChange(paused=True, reason="an incident"))
    other = other_store(shelf, store)
    for seen in (store, other):
        seen.ledger(scope)
        seen.refresh()
        for paused in (scope, parent):
            with raises(BudgetPaused):
                seen.snapshot(paused)
    store.settle(record.decision.id, 0.25)
    store.change(parent, BudgetChange(paused=False))
    other.refresh()
    assert other.snapshot(scope).rate_usd > 0.0
    store.change(scope, BudgetChange(paused=True, pause_s=0.2))
    with raises(BudgetPaused):
        store.snapshot(scope)
    shelf.advance(0.3)
    assert store.snapshot(scope).rate_usd > 0.0


def ends_for_good(shelf: Shelf) -> None:
    """Decide nothing once a budget was ended, also after a start on the same terms."""
    store, scope = opened(shelf)
    store.change(scope, BudgetChange(ended=True))
    other = other_store(shelf, store)
    if other.durable:
        other.open(scope, Budget(10.0, 100))
    with raises(BudgetPaused):
        other.snapshot(scope)
    with raises(ChangeRefused):
        store.change(scope, BudgetChange(paused=False))
    store.open(scope, Budget(8.0, 100), restart=not store.durable)
    assert store.snapshot(scope).funds.left_usd == 8.0


def stays_ended_where_it_is_divided(shelf: Shelf) -> None:
    """Keep a budget ended that is started on any part of its terms, until a start on other terms."""
    store, scope = opened(shelf)
    store.amend(scope, amount_usd=20.0, horizon=None)
    store.change(scope, BudgetChange(ended=True))
    for part in (Budget(5.0, 50), Budget(2.0, 20), Budget(10.0, 100)):
        other = other_store(shelf, store)
        other.open(scope, part, whole=Budget(10.0, 100))
        with raises(BudgetPaused):
            other.snapshot(scope)
    store.open(scope, Budget(8.0, 100))
    assert store.snapshot(scope).funds.left_usd == 8.0


def becomes_hard_without_calls_in_flight(shelf: Shelf) -> None:
    """Let a budget become hard once it is paused and no call is in flight, and expected at any time."""
    store, scope = opened(shelf)
    record = new_record(store, scope)
    store.reserve(record)
    store.change(scope, BudgetChange(paused=True))
    with raises(ChangeRefused):
        store.change(scope, BudgetChange(limit="hard"))
    store.settle(record.decision.id, 0.25)
    shelf.advance(2.1)
    store.change(scope, BudgetChange(limit="hard", paused=False))
    assert other_store(shelf, store).snapshot(scope).hard
    store.change(scope, BudgetChange(limit="expected"))
    assert not store.snapshot(scope).hard


def starts_again_after_changes_of_both_kinds(shelf: Shelf) -> None:
    """Keep a limit that an administrator has changed where the amount was changed by its program since."""
    terms = Budget(10.0, 100, limit="hard")
    store, scope = opened(shelf, terms)
    store.change(scope, BudgetChange(limit="expected"))
    store.amend(scope, amount_usd=12.0, horizon=None)
    other = other_store(shelf, store)
    other.open(scope, terms)
    for seen in (store, other):
        seen.refresh()
        assert (seen.ledger(scope).budget.amount_usd, seen.ledger(scope).budget.limit) == (10.0, "expected")


def ends_additions_where_it_starts_on_other_terms(shelf: Shelf) -> None:
    """Take the amounts of a start on other terms, also where an administrator has added to one that stays the same."""
    month = Budget(50.0, 2_000, every="month", limit="hard")
    store, scope = opened(shelf, Budget(5.0, 100, every="day", limit="hard", within=month))
    store.change(scope, BudgetChange(add_usd=6.0, every="month"))
    other = other_store(shelf, store)
    other.open(scope, Budget(7.0, 100, every="day", limit="hard", within=month))
    for seen in (store, other):
        seen.refresh()
        assert [ledger.budget.amount_usd for ledger in seen.ledger(scope).each] == [7.0, 50.0]


def changes_once_for_each_token(shelf: Shelf) -> None:
    """Answer a second request with the same token as the first one, and change nothing; refuse another request."""
    store, scope = opened(shelf)
    token, more = new_name("token"), BudgetChange(add_usd=1.0)
    first = store.change(scope, more, token=token, request="r")
    again = other_store(shelf, store).change(scope, more, token=token, request="r")
    assert (first.replayed, again) == (False, first._replace(replayed=True))
    with raises(InvalidInput):
        store.change(scope, more, token=token, request="another")
    store.refresh()
    assert store.ledger(scope).budget.amount_usd == 11.0


def takes_every_change_of_a_crowd(shelf: Shelf) -> None:
    """Add up what several workers add at once, with calls in between; the hard limit holds."""
    store, scope = opened(shelf, Budget(1.0, 1_000, limit="hard"))

    def act(i: int) -> None:
        one = shelf.open() if i % 4 == 0 else store
        one.change(scope, BudgetChange(add_usd=0.5))
        record = new_record(one, scope, held_usd=0.5)
        one.reserve(record)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(act, range(16)))
    store.refresh()
    ledger = store.ledger(scope).each[0]
    assert (ledger.budget.amount_usd, ledger.reserved_usd) == (9.0, 8.0)


def keeps_the_latest_orders(shelf: Shelf) -> None:
    """Keep orders in place of those read last; a worker that has not read the latest ones must read them first."""
    store = shelf.open()
    other = other_store(shelf, store)
    before = store.read_orders()
    assert other.read_orders() == before
    assert store.keep_orders("first")
    if other is not store:
        assert not other.keep_orders("late")
    assert other.read_orders() == "first"
    heard: list[str] = []
    store.follow_orders(heard.append)
    assert other.keep_orders("second")
    for _ in range(2):  # the number, and the text behind it
        store.refresh()
    assert store.read_orders() == "second"
    assert heard == ([] if other is store else ["second"])
    assert other.keep_orders(before)


CHANGE_CHECKS: tuple[Callable[[Shelf], None], ...] = (
    changes_an_amount_for_all_workers,
    plans_for_other_requests_in_all_workers,
    raises_an_amount_for_a_while,
    refuses_to_break_a_hard_limit,
    pauses_and_goes_on,
    ends_for_good,
    stays_ended_where_it_is_divided,
    starts_again_after_changes_of_both_kinds,
    ends_additions_where_it_starts_on_other_terms,
    changes_once_for_each_token,
    takes_every_change_of_a_crowd,
    keeps_the_latest_orders,
)
"""The checks of changes by an administrator; `becomes_hard_without_calls_in_flight` takes two seconds."""
