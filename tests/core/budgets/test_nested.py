"""Nested budgets and rollover, against a brute-force sum over all events."""

import threading
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter import Budget, Contexts, Decision, Model, Price, WiseRouter
from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.nested import NestedLedger, open_account
from wiserouter.errors import BudgetExhausted, InvalidInput
from wiserouter.stores import MemoryStore, Record
from wiserouter.testing import FakeClock

HOUR, DAY = 3_600.0, 86_400.0
ZONE = "Europe/Berlin"


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def make(clock: FakeClock, worst_usd: float = 1.0) -> WiseRouter:
    models = [Model("small", Price(1e-6, 1e-6), max_cost_usd=worst_usd)]
    store = MemoryStore(clock, reservation_ttl_s=365 * DAY, decision_ttl_s=365 * DAY)
    return WiseRouter(models, Contexts.single(), store=store, seed=0)


def spend_usd(router: WiseRouter, cost_usd: float) -> None:
    router.charge(router.decide("q"), cost_usd)


# What rolls over


def test_what_a_day_leaves_goes_to_the_next_and_at_most_as_much_again():
    clock = FakeClock(at("2026-11-20T12:00:00"))
    router = make(clock)
    router.start(Budget(10.0, every="day", rollover=True))
    spend_usd(router, 4.0)
    clock.advance(DAY)
    status = router.status()
    assert (status.amount_usd, status.carried_usd, status.left_usd, status.spent_usd) == (10.0, 6.0, 16.0, 0.0)
    clock.advance(DAY)
    assert (router.status().carried_usd, router.status().left_usd) == (10.0, 20.0)


def test_overspending_is_deducted_and_made_up_by_days_without_traffic():
    clock = FakeClock(at("2026-11-20T12:00:00"))
    router = make(clock)
    router.start(Budget(10.0, every="day", rollover=True))
    spend_usd(router, 35.0)
    for carried in (-25.0, -15.0, -5.0, 5.0, 10.0):
        clock.advance(DAY)
        assert router.status().carried_usd == carried
    clock = FakeClock(at("2026-11-20T12:00:00"))
    router = make(clock)
    router.start(Budget(10.0, every="day", rollover=True))
    spend_usd(router, 35.0)
    clock.advance(4 * DAY)  # three days pass unseen
    assert router.status().carried_usd == 5.0


def test_a_hard_limit_holds_for_the_amount_and_what_was_carried():
    clock = FakeClock(at("2026-11-20T00:00:00"))
    router = make(clock)
    router.start(Budget(3.0, every="day", rollover=True, limit="hard"))
    spend_usd(router, 1.0)
    clock.advance(DAY)
    for _ in range(5):
        spend_usd(router, 1.0)
    with pytest.raises(BudgetExhausted, match="3 USD every day and 2 carried over") as refused:
        router.decide("q")
    assert (refused.value.carried_usd, refused.value.left_usd) == (2.0, 0.0)


def test_calls_in_flight_at_the_renewal_are_handed_down_once_they_are_billed():
    clock = FakeClock(at("2026-11-20T23:55:00"))
    router = make(clock)
    router.start(Budget(3.0, every="day", rollover=True, limit="hard"))
    late = router.decide("q")
    clock.advance(6 * 60)
    assert router.status().carried_usd == 2.0  # its worst case may still be needed
    router.charge(late, 0.25)
    assert (router.status().carried_usd, router.status().spent_usd) == (2.75, 0.0)


def test_a_bill_that_is_two_windows_late_passes_through_both():
    ledger = Ledger.opened(Budget(10.0, every="1h", rollover=True), 0.0)
    ledger.reserve(9.0, 9.0)
    second = ledger.at(HOUR)
    second.spend(4.0, 4.0)
    third = second.at(2 * HOUR)
    assert (second.carried_usd, third.carried_usd) == (1.0, 7.0)
    ledger.settle(9.0, 9.0, cost_usd=5.0, debit_usd=5.0)
    assert (second.carried_usd, third.carried_usd) == (5.0, 10.0)


def test_only_a_budget_that_renews_rolls_over():
    with pytest.raises(InvalidInput, match="rollover needs every"):
        Budget(1.0, 10, rollover=True)


@pytest.mark.parametrize("every", ["1h", "day", "week", "month", "2mo"])
@given(steps=st.lists(st.tuples(st.floats(0, 90 * DAY), st.floats(0, 30)), max_size=20))
def test_nothing_is_lost_or_made_by_rolling_over(every, steps):
    """Oracle: walk through every window there is, seen or not."""
    budget, now = Budget(10.0, every=every, timezone=ZONE, rollover=True), at("2026-03-28T12:00:00", ZONE)
    ledger = Ledger.opened(budget, now)
    window, carried, spent, given_up, total_spent, amounts = budget.window(now), 0.0, 0.0, 0.0, 0.0, 10.0
    for gap_s, cost in steps:
        now += gap_s if every != "1h" else gap_s / 500
        while now >= window.end_s:
            left = 10.0 + carried - spent
            given_up += max(0.0, left - 10.0)
            carried, spent, window = min(left, 10.0), 0.0, budget.window(window.end_s)
            amounts += 10.0
        ledger = ledger.at(now)
        ledger.spend(cost, cost)
        spent, total_spent = spent + cost, total_spent + cost
        assert ledger.window == window
        assert ledger.carried_usd == pytest.approx(carried, abs=1e-6)
    assert amounts == pytest.approx(total_spent + ledger.left_usd + given_up, abs=1e-6)


# Several at once

MONTH_AND_DAY = Budget(30.0, every="day", within=Budget(500.0, every="month"))


def test_budgets_are_named_by_how_often_they_renew():
    assert [one.every for one in MONTH_AND_DAY.each] == ["day", "month"]
    assert Budget(1.0, every="week").renews("7d")
    assert not Budget(1.0, every="week").renews("never")
    assert Budget(1.0, 10).renews("never")
    with pytest.raises(InvalidInput, match="must renew differently, got every='1mo' twice"):
        Budget(1.0, every="1mo", within=Budget(2.0, every="month"))
    with pytest.raises(InvalidInput, match="must renew differently"):
        Budget(1.0, 10, within=Budget(2.0, 20))
    with pytest.raises(InvalidInput, match="within must be a Budget"):
        Budget(1.0, 10, within=[Budget(2.0, every="day")])


def test_hardness_is_that_of_any():
    assert not MONTH_AND_DAY.hard
    assert Budget(1.0, every="day", within=Budget(2.0, 20, limit="hard")).hard
    router = WiseRouter([Model("unbounded")], store=MemoryStore(FakeClock()))
    with pytest.raises(Exception, match="unbounded"):
        router.start(Budget(1.0, every="day", within=Budget(2.0, 20, limit="hard")))


def test_the_lowest_rate_rules_and_the_status_tells_all():
    clock = FakeClock(at("2026-11-10T00:00:00"))
    router = make(clock)
    router.start(Budget(30.0, 100, every="day", within=Budget(500.0, 3_000, every="month")))
    status = router.status()
    assert [(one.every, one.rules) for one in status.windows] == [("day", False), ("month", True)]
    assert status.rate_usd == status.windows[1].rate_usd < status.windows[0].rate_usd
    assert status.renews_at == at("2026-12-01T00:00:00")
    spend_usd(router, 29.0)
    day, month = router.status().windows
    assert (day.rules, month.rules) == (True, False)
    assert (day.spent_usd, day.left_usd, month.spent_usd, month.left_usd) == (29.0, 1.0, 29.0, 471.0)
    assert day.horizon_low <= day.horizon <= day.horizon_high
    clock.advance(DAY)
    day, month = router.status().windows
    assert (day.spent_usd, month.spent_usd) == (0.0, 29.0)


def test_the_refusal_names_the_budget_and_when_it_renews():
    clock = FakeClock(at("2026-11-10T00:00:00"))
    router = make(clock)
    router.start(Budget(2.0, every="day", limit="hard", within=Budget(3.0, every="month", limit="hard")))
    for _ in range(2):
        spend_usd(router, 1.0)
    with pytest.raises(BudgetExhausted, match="2 USD every day is used up") as refused:
        router.decide("q")
    assert (refused.value.every, refused.value.renews_at) == ("day", at("2026-11-11T00:00:00"))
    clock.advance(DAY)
    spend_usd(router, 1.0)
    with pytest.raises(BudgetExhausted, match="3 USD every month is used up") as refused:
        router.decide("q")
    assert (refused.value.every, refused.value.renews_at) == ("month", at("2026-12-01T00:00:00"))


def test_an_expected_budget_within_another_stops_or_goes_on_as_it_says():
    clock = FakeClock(at("2026-11-10T00:00:00"))
    router = make(clock)
    router.start(Budget(1.0, every="day", on_exhausted="cheapest", within=Budget(2.5, every="month")))
    for _ in range(3):  # the day's is used up after one, and goes on with the cheapest
        spend_usd(router, 1.0)
    with pytest.raises(BudgetExhausted, match=r"2\.5 USD every month"):
        router.decide("q")


def test_a_change_says_which_budget():
    clock = FakeClock(at("2026-11-10T00:00:00"))
    router = make(clock)
    router.start(Budget(30.0, every="day", within=Budget(900.0, 10_000)))
    router.set_budget(amount_usd=40.0, every="1d")
    router.set_budget(horizon=20_000, every="never")
    assert [(one.amount_usd, one.horizon) for one in router.budget().each] == [(40.0, None), (900.0, 20_000)]
    for every in (None, "month"):
        with pytest.raises(InvalidInput, match="must name the budget to change, one of 'day', 'never'"):
            router.set_budget(amount_usd=1.0, every=every)
    router.start(Budget(30.0, every="day"))
    router.set_budget(amount_usd=50.0, every="day")
    with pytest.raises(InvalidInput, match="every must be 'day' or left out, got 'month'"):
        router.set_budget(amount_usd=60.0, every="month")
    assert router.status().amount_usd == 50.0


def test_funds_tell_how_much_of_the_horizon_is_to_come():
    account = open_account(Budget(10.0, 4), 0.0)
    shares = []
    for _ in range(5):
        shares.append(account.funds().share)
        account.hold(1.0, 1.0)
    assert shares == [1.0, 0.75, 0.5, 0.25, 0.0]
    both = open_account(Budget(1.0, every="day", within=Budget(1_000.0, 10)), 0.0)
    for _ in range(5):
        both.hold(0.01, 0.01)
    day, total = (ledger.funds() for ledger in both.each)
    assert both.funds().share == day.share == day.requests / (5 + day.requests)
    assert total.share == 0.5


def test_a_cost_without_a_call_counts_in_all_budgets():
    account = open_account(Budget(1.0, every="day", limit="hard", within=Budget(10.0, every="month")), 0.0)
    assert isinstance(account, NestedLedger)
    assert account.room_usd() < 1.1
    account.spend(0.5, 0.5)
    assert [ledger.left_usd for ledger in account.each] == [0.5, 9.5]


@dataclass
class Event:
    """A decision as brute force remembers it."""

    decided_at: float
    held: float
    state: str = "in flight"
    cost: float = 0.0


def brute_force(events: list[Event], budget: Budget, now: float) -> tuple[float, float]:
    """Return the amounts spent and reserved in the current window of one budget."""
    window = budget.window(now)
    mine = [event for event in events if window is None or window.start_s <= event.decided_at < window.end_s]
    held = sum(event.held for event in mine if event.state == "in flight")
    return sum(event.cost for event in mine if event.state == "charged"), held


actions = st.lists(
    st.tuples(st.sampled_from(["decide", "decide", "charge", "release", "wait"]), st.integers(0, 50), st.floats(0, 1)),
    max_size=40,
)


@given(actions)
def test_any_run_agrees_with_brute_force_over_its_events(steps):
    clock = FakeClock(at("2026-03-28T20:00:00", ZONE))  # a day before the clocks change
    total = Budget(20.0, 1_000, limit="hard")
    budget = Budget(
        3.0, every="6h", limit="hard", within=Budget(5.0, every="day", timezone=ZONE, limit="hard", within=total)
    )
    store = MemoryStore(clock, reservation_ttl_s=1e9, decision_ttl_s=1e9)
    store.open("default", budget)
    events: list[Event] = []
    for action, number, share in steps:
        open_ones = [i for i, event in enumerate(events) if event.state == "in flight"]
        if action == "wait":
            clock.advance(share * 20 * HOUR)
        elif action == "decide":
            spent = [brute_force(events, one, clock()) for one in budget.each]
            fits = all(sum(of) + share <= one.amount_usd + 1e-9 for of, one in zip(spent, budget.each, strict=True))
            decision = Decision(str(len(events)), "m", 0, 1.0, 0.0, 0.0, share / 2, 0.5, share, "default", clock())
            if fits:
                store.reserve(Record(decision, 0, "actual"))
                events.append(Event(clock(), share))
            else:
                with pytest.raises(BudgetExhausted):
                    store.reserve(Record(decision, 0, "actual"))
        elif open_ones:
            event = events[which := open_ones[number % len(open_ones)]]
            event.state, event.cost = ("charged", event.held * share) if action == "charge" else ("released", 0.0)
            store.settle(str(which), event.cost) if action == "charge" else store.release(str(which))
        for ledger, one in zip(store.ledger("default").each, budget.each, strict=True):
            spent, held = brute_force(events, one, clock())
            assert (ledger.spent_usd, ledger.reserved_usd) == (pytest.approx(spent), pytest.approx(held, abs=1e-9))
            assert spent + held <= one.amount_usd + 1e-9


def test_no_window_is_overspent_by_threads_across_its_border():
    clock = FakeClock(at("2026-11-20T23:00:00"))
    router = make(clock)
    store = router._store
    router.start(Budget(50.0, every="1h", limit="hard", rollover=True, within=Budget(300.0, every="day", limit="hard")))
    charged, accounts, lock = [], {}, threading.Lock()

    def work(seed: int) -> None:
        for i in range(200):
            try:
                decision = router.decide("q")
            except BudgetExhausted:
                clock.advance(60.0)
                continue
            if i % 7 == 0:
                clock.advance(90.0)
            with lock:
                accounts.update({id(one): one for one in store._records[decision.id][1].each})
            cost = (i * 7 + seed) % 10 / 10
            router.charge(decision, cost)
            with lock:
                charged.append(cost)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_accounts(list(accounts.values()), sum(charged))


def check_accounts(ledgers: list[Ledger], charged_usd: float) -> None:
    """Assert that no window was overspent, nothing is held back, and every charge is in one window of each budget."""
    assert Counter(ledger.budget.every for ledger in ledgers)["1h"] > 3
    for ledger in ledgers:
        assert ledger.spent_usd <= ledger.budget.amount_usd + ledger.carried_usd + 1e-9
        assert (ledger.in_flight, ledger.reserved_usd) == (0, 0.0)
    for every in ("1h", "day"):
        assert sum(one.spent_usd for one in ledgers if one.budget.every == every) == pytest.approx(charged_usd)


def test_demand_is_not_forgotten_while_a_budget_is_used_up():
    """A day that is used up at noon had as many requests as one that was not."""
    clock = FakeClock(at("2026-11-10T00:00:00"))
    router = make(clock)
    router.start(Budget(6.0, every="day", limit="hard"))
    for _ in range(4):
        for _ in range(24 * 12):
            clock.advance(300.0)
            try:
                router.charge(router.decide("q"), 0.1)
            except BudgetExhausted:
                continue
    assert router.status().horizon == pytest.approx(288, rel=0.15)


def test_the_terms_of_a_scope_within_one_that_renews_as_often_are_shown():
    router = make(FakeClock(at("2026-03-01")))
    router.start(Budget(9.0, every="day"), scope="org")
    router.start(Budget(3.0, every="day"), scope="team", parent="org")
    terms = router.budget("team")
    assert [(one.amount_usd, one.every) for one in terms.each] == [(3.0, "day"), (9.0, "day")]
    assert (router.budget("org").amount_usd, router.budget("org").within) == (9.0, None)
