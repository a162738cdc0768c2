"""The ledger of one budget, verb by verb: each figure against a sum that can be checked by hand."""

from dataclasses import replace

import pytest

from wiserouter import Budget
from wiserouter.budgets.funds import Funds
from wiserouter.budgets.increases import Increase
from wiserouter.budgets.ledger import INFINITE, Ledger
from wiserouter.budgets.nested import NestedLedger, check_same_shape, open_account, own_ledgers
from wiserouter.budgets.run_caps import CapLedger, CappedAccount, OpenCaps, RunCap, capped_snapshot, check_caps
from wiserouter.errors import BudgetExhausted, HorizonExhausted, InvalidInput, RunBudgetExhausted

HOUR = 3_600.0
PLAIN, HARD = Budget(10.0, 20), Budget(10.0, 20, "hard")


def opened(budget=PLAIN, **figures):
    return replace(Ledger.opened(budget, 0.0), **figures)


USED = {
    "spent_usd": 2.0,
    "debited_usd": 1.5,
    "reserved_usd": 3.0,
    "expected_usd": 1.0,
    "leased_usd": 0.5,
    "committed_usd": 0.25,
    "carried_usd": 0.75,
    "decided": 5,
    "in_flight": 2,
}


# Amounts


def test_what_is_left_planned_with_and_admitted_follow_from_the_amounts():
    plain, hard = opened(**USED), opened(HARD, **USED)
    assert (plain.left_usd, plain.plannable_usd) == (5.25, 8.0)
    assert (plain.horizon, plain.horizon_left, plain.horizon_interval, plain.renews_at) == (20, 15, None, None)
    assert plain.epoch_s == 0.0
    assert plain.rate_usd == 8.0 / 15
    assert plain.funds() == Funds(8.0, 15, (), 0.0, 0.75)
    assert (plain.room_usd(), plain.reachable_usd()) == (INFINITE, INFINITE)
    assert hard.room_usd() == 5.25 + 1e-11
    assert hard.reachable_usd() == 5.25 + 1e-11 + 3.0
    assert hard.margin_usd() == plain.margin_usd() == 2.0
    leased = replace(hard, lease_usd=0.125)
    assert leased.room_usd() == leased.reachable_usd() == 0.125 + 1e-11
    assert replace(plain, lease_usd=0.125).room_usd() == 0.125 + 1e-11
    assert (plain.bearable_usd(), hard.bearable_usd()) == (8.0 + 1e-11, INFINITE)
    assert plain.tightest is plain
    assert plain.each == (plain,)


def test_a_snapshot_holds_what_a_decision_reads():
    plain, hard = opened(**USED), opened(HARD, **USED)
    assert plain.snapshot() == (plain.funds(), 8.0 / 15, False, INFINITE, 0.0, 8.0 + 1e-11, plain, 0.25)
    assert hard.snapshot() == (hard.funds(), 8.0 / 15, True, 5.25 + 1e-11, 2.0, INFINITE, hard, 0.25)
    leased = replace(plain, lease_usd=0.5)
    assert leased.snapshot().room_usd == 0.5 + 1e-11
    for gone in ({"decided": 20}, {"debited_usd": 20.0}):
        ledger = opened(**(USED | gone))
        assert ledger.snapshot().rate_usd == ledger.rate_usd == 0.0
    assert opened(Budget(1.0, 1)).snapshot().rate_usd == 1.0


def test_the_share_of_the_requests_that_are_left():
    shares = [opened(decided=n).funds()[4] for n in (0, 10, 19, 20)]
    assert shares == [1.0, 0.5, 0.05, 0.0]
    assert opened(Budget(1.0, 1)).funds()[4] == 1.0
    assert opened(Budget(1.0, 1), decided=1).funds()[4] == 0.0


# Calls


def test_a_call_that_continues_a_run_uses_no_request():
    ledger = opened()
    ledger.hold(2.0, 1.0)
    ledger.hold(3.0, 1.5, False)
    assert (ledger.reserved_usd, ledger.expected_usd, ledger.in_flight) == (5.0, 2.5, 2)
    assert (ledger.decided, ledger.continuing) == (1, 1)
    ledger.settle(3.0, 1.5, 1.25, 1.0, False)
    assert (ledger.spent_usd, ledger.debited_usd, ledger.charged, ledger.continuing) == (1.25, 1.0, 1, 0)
    assert (ledger.reserved_usd, ledger.expected_usd, ledger.in_flight, ledger.decided) == (2.0, 1.0, 1, 1)
    ledger.release(2.0, 1.0)
    assert (ledger.decided, ledger.released, ledger.in_flight, ledger.reserved_usd) == (0, 1, 0, 0.0)


def test_a_presumed_call_counts_until_its_cost_is_known():
    ledger = opened()
    for _ in range(3):
        ledger.hold(2.0, 1.0)
    ledger.presume(2.0, 1.0, 1.5, 1.25)
    assert (ledger.presumed, ledger.presumed_usd, ledger.spent_usd, ledger.debited_usd) == (1, 1.5, 1.5, 1.25)
    assert (ledger.in_flight, ledger.decided, ledger.reserved_usd, ledger.expected_usd) == (2, 3, 4.0, 2.0)
    ledger.charge_presumed(1.5, 1.25, cost_usd=2.0, debit_usd=1.75)
    assert (ledger.presumed, ledger.presumed_usd, ledger.spent_usd, ledger.debited_usd) == (0, 0.0, 2.0, 1.75)
    ledger.presume(2.0, 1.0, 1.0, 0.5)
    ledger.release_presumed(1.0, 0.5)
    assert (ledger.presumed, ledger.released, ledger.charged, ledger.decided) == (0, 1, 1, 2)
    assert (ledger.spent_usd, ledger.debited_usd, ledger.presumed_usd) == (2.0, 1.75, 0.0)
    ledger.charge_released(0.5, 0.25)
    assert (ledger.released, ledger.charged, ledger.decided) == (0, 2, 3)
    assert (ledger.spent_usd, ledger.debited_usd) == (2.5, 2.0)


def test_the_last_call_in_flight_leaves_no_rounding_error():
    ledger = opened()
    for amount in (0.1, 0.2, 0.3):
        ledger.hold(amount, amount)
    for amount in (0.3, 0.1, 0.2):
        ledger.settle(amount, amount, 0.0, 0.0)
    assert (ledger.reserved_usd, ledger.expected_usd) == (0.0, 0.0)


def test_a_reservation_fits_to_the_last_rounding_error_or_is_refused_with_all_figures():
    ledger = opened(HARD, **USED)
    with pytest.raises(BudgetExhausted) as refused:
        ledger.reserve(5.3, 1.0)
    error = refused.value
    assert (error.amount_usd, error.carried_usd, error.spent_usd, error.reserved_usd) == (10.0, 0.75, 2.0, 3.0)
    assert (error.needed_usd, error.decided, error.horizon, error.left_usd) == (5.3, 5, 20, 5.25)
    assert ledger.in_flight == 2
    ledger.reserve(5.25 + 5e-12, 1.0)
    assert ledger.in_flight == 3
    ledger.reserve(0.0, 0.0, False)
    assert (ledger.continuing, ledger.decided) == (1, 6)


def test_what_is_used_up_is_refused_unless_the_cheapest_model_goes_on():
    over = opened(decided=20, **{k: v for k, v in USED.items() if k != "decided"})
    error = over.refusal(1.0)
    assert isinstance(error, HorizonExhausted)
    assert str(error) == str(HorizonExhausted(20, 5.25))
    short = opened(**USED)
    error = short.refusal(9.0)
    assert type(error) is BudgetExhausted
    assert (error.needed_usd, error.reserved_usd) == (9.0, 3.0)
    assert str(error) == str(short.exhausted(9.0, 0.25))
    assert str(error) != str(short.exhausted(9.0))
    assert opened(replace(PLAIN, on_exhausted="cheapest"), decided=20).refusal(1.0) is None


def test_the_error_says_what_calls_in_flight_and_leases_hold():
    plain, hard = (
        opened(budget, spent_usd=1.0, reserved_usd=8.0, expected_usd=4.0, leased_usd=1.0, in_flight=1)
        for budget in (PLAIN, HARD)
    )
    for ledger, held, leased in ((plain, 4.0, 0.0), (hard, 8.0, 1.0)):
        same = BudgetExhausted(
            amount_usd=10.0,
            spent_usd=1.0,
            reserved_usd=8.0,
            held_usd=held,
            leased_usd=leased,
            committed_usd=0.5,
            needed_usd=9.0,
            decided=0,
            horizon=20,
            hard=ledger.hard,
        )
        error = ledger.exhausted(9.0, 0.5)
        assert (str(error), vars(error)) == (str(same), vars(same))


# Windows


def test_an_account_with_windows_opens_renews_and_forgets():
    budget = Budget(10.0, 60, every="1h")
    ledger = Ledger.opened(budget, 1_800.0)
    assert (ledger.opened_at, ledger.now_s, ledger.expected_requests) == (1_800.0, 1_800.0, 60)
    assert (ledger.epoch_s, ledger.renews_at) == (0.0, HOUR)
    assert ledger.horizon_left == 30
    assert ledger.at(2_000.0) is ledger
    assert ledger.now_s == 2_000.0
    ledger.hold(1.0, 1.0)
    ledger.committed_usd = 0.25
    later = ledger.at(HOUR)
    assert later is not ledger
    assert (later.epoch_s, later.opened_at, later.now_s, later.decided) == (HOUR, HOUR, HOUR, 0)
    assert (later.committed_usd, later.arrivals, ledger.now_s) == (0.25, ledger.arrivals, HOUR)
    assert later.next_window is ledger.next_window is None
    low, high = later.horizon_interval
    assert low <= later.horizon <= high


def test_without_a_record_of_arrivals_the_rate_of_requests_is_extrapolated():
    ledger = replace(Ledger.opened(Budget(10.0, 100, every="1h"), 0.0), arrivals=None, decided=50)
    ledger.at(1_800.0)
    assert ledger.horizon_interval is None
    assert ledger.horizon_left == 50
    assert replace(ledger, expected_requests=None, decided=10, opened_at=900.0).horizon_left > 10
    later = ledger.at(HOUR)
    assert later.expected_requests == pytest.approx(50.0, abs=10.0)
    assert later.at(3 * HOUR).expected_requests == later.expected_requests  # without traffic


def test_increases_end_with_their_windows():
    ledger = Ledger.opened(Budget(10.0, every="1h"), 0.0)
    increases = (Increase(5.0, 2 * HOUR), Increase(1.0, 3 * HOUR))
    ledger.take_terms(Budget(10.0, every="1h", limit="hard"), 16.0, increases)
    assert (ledger.budget.amount_usd, ledger.hard, ledger.regular_usd, ledger.increases) == (
        16.0,
        True,
        10.0,
        increases,
    )
    amounts, running = [], ledger
    for hour in (1, 2, 3):
        running = running.at(hour * HOUR)
        amounts.append((running.budget.amount_usd, running.regular_usd, running.increases))
    assert amounts == [(16.0, 10.0, increases), (11.0, 10.0, increases[1:]), (10.0, None, ())]
    ledger.take_terms(Budget(10.0, every="1h", within=Budget(99.0, 5)), 10.0, ())
    assert (ledger.hard, ledger.regular_usd, ledger.budget.within) == (False, None, None)


def test_an_amended_budget_keeps_what_is_not_named():
    ledger = Ledger.opened(Budget(10.0, 60, every="1h"), 0.0)
    ledger.regular_usd, ledger.increases = 8.0, (Increase(2.0, HOUR),)
    ledger.amend(horizon=120)
    assert (ledger.budget.amount_usd, ledger.budget.horizon, ledger.expected_requests) == (10.0, 120, 120)
    assert ledger.horizon_left == 120
    assert (ledger.regular_usd, len(ledger.increases)) == (8.0, 1)
    ledger.amend(amount_usd=20.0, every="60m")
    assert (ledger.budget.amount_usd, ledger.budget.horizon) == (20.0, 120)
    assert (ledger.regular_usd, ledger.increases) == (None, ())
    for budget, every, known in ((ledger.budget, "day", "'1h'"), (PLAIN, "1h", "'never'")):
        with pytest.raises(InvalidInput) as refused:
            Ledger.opened(budget, 0.0).amend(amount_usd=1.0, every=every)
        assert str(refused.value) == f"every must be {known} or left out, got {every!r}"
        assert refused.value.value == every


# Nested budgets


def nested(**figures):
    account = open_account(Budget(30.0, 10, within=Budget(500.0, every="1h", limit="hard", horizon=100)), 0.0)
    for name, value in figures.items():
        setattr(account.each[0], name, value)
    return account


def test_every_budget_bears_a_call_and_the_tightest_one_rules():
    account = nested(expected_usd=20.0, reserved_usd=25.0, in_flight=1, committed_usd=0.5)
    inner, outer = account.each
    assert account.tightest is inner
    assert account.hard
    assert account.bearable_usd() == pytest.approx(9.5)
    assert account.reachable_usd() == outer.reachable_usd() == 500.0 + 5e-10
    assert account.room_usd() == 500.0 + 5e-10
    assert account.margin_usd() == 0.0
    snapshot = account.snapshot()
    assert (snapshot.rate_usd, snapshot.hard, snapshot.bearable_usd) == (0.95, True, account.bearable_usd())
    assert (snapshot.account, snapshot.committed_usd) == (account, 0.5)
    assert snapshot.funds.each == (inner.funds(), outer.funds())
    account.each[0].lease_usd = 0.25
    assert account.room_usd() == 0.25 + 3e-11
    outer.spent_usd = 499.9
    assert account.room_usd() == 0.25 + 3e-11  # a lease was admitted by all of them
    assert account.budget == Budget(30.0, 10, within=Budget(500.0, every="1h", limit="hard", horizon=100))


def test_the_budget_that_is_used_up_is_the_one_that_refuses():
    account = nested()
    inner, outer = account.each
    assert account.refusal(1.0) is None
    assert account.refusal(31.0).amount_usd == 30.0
    outer.spend(600.0, 600.0)
    assert account.refusal(1.0).amount_usd == 500.0
    assert account.exhausted(1.0).amount_usd == 500.0
    with pytest.raises(BudgetExhausted) as refused:
        account.reserve(1.0, 1.0)
    assert (refused.value.amount_usd, refused.value.needed_usd) == (500.0, 1.0)
    assert inner.in_flight == outer.in_flight == 0
    fresh = nested()
    fresh.reserve(2.0, 1.0, False)
    assert [(one.continuing, one.reserved_usd, one.expected_usd) for one in fresh.each] == [(1, 2.0, 1.0)] * 2


def test_the_budget_to_amend_is_named_by_its_period():
    account = nested()
    account.amend(amount_usd=600.0, every="60m")
    account.amend(horizon=20, every="never")
    assert account.budget == Budget(30.0, 20, within=Budget(600.0, every="1h", limit="hard", horizon=100))
    for every in (None, "day"):
        with pytest.raises(InvalidInput) as refused:
            account.amend(amount_usd=1.0, every=every)
        assert str(refused.value) == f"every must name the budget to change, one of 'never', '1h', got {every!r}"
        assert refused.value.value == every


def test_a_budget_of_another_shape_is_refused_by_name():
    running = Budget(30.0, every="day")
    check_same_shape("team", running, Budget(99.0, 5, every="day"), "all", "all")
    for budget, parent in (
        (Budget(30.0, every="1h"), "all"),
        (running, None),
        (Budget(30.0, every="day", limit="hard"), "all"),
    ):
        with pytest.raises(InvalidInput) as refused:
            check_same_shape("team", running, budget, "all", parent)
        assert str(refused.value) == (
            f"the budget that runs for scope 'team' is {running} within 'all', got {budget} within {parent!r}: "
            f"end it with `wiserouter budget --end` or router.start(budget, restart=True), or name another scope"
        )
        assert refused.value.value is (budget if parent == "all" else None)


def test_each_ledger_belongs_to_the_scope_with_the_fewest():
    all_of_them = Ledger.opened(Budget(100.0, 10), 0.0)
    team = Ledger.opened(Budget(10.0, 10), 0.0)
    user = Ledger.opened(Budget(1.0, 10), 0.0)
    accounts = [
        ("a user", NestedLedger((user, team, all_of_them))),
        ("the whole", all_of_them),
        ("its team", NestedLedger((team, all_of_them))),
    ]
    assert own_ledgers(accounts) == {"a user": [user], "the whole": [all_of_them], "its team": [team]}


# Caps of runs


def cap(hard=True, key="run", amount_usd=2.0, ttl_s=60.0):
    return RunCap(key, amount_usd, hard, ttl_s)


def test_a_hard_cap_admits_worst_cases_and_another_one_expected_costs():
    hard, plain = (CapLedger.of_cap(cap(kind), 5.0) for kind in (True, False))
    assert (hard.hard, plain.hard, hard.ttl_s, hard.opened_at, hard.now_s) == (True, False, 60.0, 5.0, 5.0)
    assert hard.budget.horizon == 1
    for ledger in (hard, plain):
        ledger.hold(1.0, 0.5)
        ledger.spend(0.5, 0.25)
    assert (hard.admits(0.5, 9.0), hard.admits(0.51, 0.1)) == (True, False)
    assert (plain.admits(9.0, 1.0), plain.admits(0.1, 1.01)) == (True, False)
    assert (plain.plannable_usd, plain.bearable_usd()) == (1.0, 1.0 + 2e-12)
    check_caps([hard, plain], 0.5, 0.5)
    for ledgers, needed, held in (([plain, hard], 0.75, 1.0), ([plain], 1.25, 0.5)):
        with pytest.raises(RunBudgetExhausted) as refused:
            check_caps(ledgers, 0.75, 1.25 if ledgers == [plain] else 0.5)
        same = RunBudgetExhausted(
            amount_usd=2.0,
            spent_usd=0.5,
            reserved_usd=1.0,
            held_usd=held,
            needed_usd=needed,
            decided=1,
            hard=hard in ledgers,
        )
        assert (str(refused.value), vars(refused.value)) == (str(same), vars(same))


def test_the_account_with_caps_names_the_one_that_refuses():
    account = Ledger.opened(Budget(10.0, every="1h", limit="hard"), HOUR)
    small, large = CapLedger.of_cap(cap(hard=False), 0.0), CapLedger.of_cap(cap(amount_usd=50.0), 0.0)
    capped = CappedAccount(account, (large, small))
    assert capped.epoch_s == HOUR
    assert capped.refusal(3.0).amount_usd == 2.0
    assert capped.refusal(1.0).amount_usd == 10.0
    assert capped.reachable_usd() == account.reachable_usd()
    assert capped.exhausted(20.0).amount_usd == 10.0
    assert capped.exhausted(60.0).amount_usd == 10.0
    assert capped.exhausted(5.0).amount_usd == 10.0
    large.spend(49.0, 49.0)
    assert capped.reachable_usd() == large.reachable_usd() == 1.0 + 5e-11
    assert capped.exhausted(5.0).amount_usd == 50.0
    assert capped.exhausted(0.5).amount_usd == 50.0


def test_a_snapshot_with_caps_has_the_least_room_of_all():
    account = Ledger.opened(PLAIN, 0.0)
    soft, hard = CapLedger.of_cap(cap(hard=False, amount_usd=3.0), 0.0), CapLedger.of_cap(cap(amount_usd=2.0), 0.0)
    found = capped_snapshot(account, (soft, hard))
    assert (found.hard, found.room_usd, found.bearable_usd) == (True, 2.0 + 2e-12, 3.0 + 3e-12)
    assert found.account == CappedAccount(account, (soft, hard))
    found = capped_snapshot(account, (soft,))
    assert (found.hard, found.room_usd, found.bearable_usd) == (False, INFINITE, 3.0 + 3e-12)
    assert capped_snapshot(Ledger.opened(HARD, 0.0), (soft,)).hard
    assert (
        capped_snapshot(account, (CapLedger.of_cap(cap(amount_usd=99.0, hard=False), 0.0),)).bearable_usd
        == 10.0 + 1e-11
    )


def test_caps_are_kept_while_used_and_dropped_when_over_or_too_many():
    caps = OpenCaps(max_caps=2)
    one, two, three = (cap(key=key) for key in ("one", "two", "three"))
    (first,) = caps.ledgers([one], 0.0)
    assert caps.ledgers([one], 0.0) != (first,)  # not open before it is kept
    caps.keep([one], [first], 0.0)
    assert caps.ledgers([one], 59.0) == (first,)
    assert caps.ledgers([one], 60.0) != (first,)
    (second,) = caps.ledgers([two], 10.0)
    caps.keep([two], [second], 10.0)
    caps.keep([one], [first], 20.0)
    assert first.now_s == 20.0
    (third,) = caps.ledgers([three], 30.0)
    caps.keep([three], [third], 30.0)  # the one used longest ago makes room
    assert caps.ledgers([one, three], 31.0) == (first, third)
    assert caps.ledgers([two], 31.0) != (second,)
    third.hold(1.0, 1.0)
    caps.end("three")
    caps.end("unknown")
    assert caps.ledgers([three], 1e6) == (third,)
    third.settle(1.0, 1.0, 0.5, 0.5)
    assert caps.in_use([first, third, Ledger.opened(PLAIN, 0.0)], 85.0) == [third]
    caps.end("three")
    assert caps.ledgers([three], 31.0) != (third,)


def test_a_cap_with_a_call_in_flight_is_not_dropped():
    caps = OpenCaps(max_caps=1)
    one, two = cap(key="one"), cap(key="two")
    (first,) = caps.ledgers([one], 0.0)
    first.hold(1.0, 1.0)
    caps.keep([one], [first], 0.0)
    (second,) = caps.ledgers([two], 1e6)
    caps.keep([two], [second], 1e6)
    assert caps.ledgers([one], 1e6) == (first,)
    longer = cap(key="one", ttl_s=90.0)
    caps.keep([longer], [first], 1e6)
    assert first.ttl_s == 90.0
