"""The arithmetic of changes of a running budget: new terms, refusals under a hard limit, and answers."""

import json
from dataclasses import replace

import pytest

from wiserouter import Budget
from wiserouter.budgets.changes import (
    AccountTerms,
    BudgetChange,
    ChangeAnswer,
    Changed,
    ChangeRefused,
    answer_to,
    changed,
    figures_of,
    first_answer,
    nested,
    refusal,
    used_figures,
)
from wiserouter.budgets.increases import Increase
from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.pauses import BudgetPaused, Pause, check_runs
from wiserouter.errors import InvalidInput

HOUR = 3_600.0
DAILY = Budget(30.0, every="1h", within=Budget(500.0, 10_000))


def ledger(budget=DAILY, **figures):
    return replace(Ledger.opened(replace(budget, within=None), 0.0), **figures)


def apply(change, terms, ledgers=None, now_s=10.0):
    return changed(change, terms, ledgers or [ledger(one) for one in terms.budget.each], now_s)


# What a change may ask for


@pytest.mark.parametrize(
    ("terms", "message", "value"),
    [
        ({}, "a change needs amount_usd, add_usd, horizon, limit, paused or end, got none of them", None),
        ({"reason": "?"}, "a change needs amount_usd, add_usd, horizon, limit, paused or end, got none of them", None),
        ({"ended": True, "horizon": 3}, "end must stand alone: an ended budget has no other terms", None),
        ({"ended": True, "paused": True}, "end must stand alone: an ended budget has no other terms", None),
        (
            {"amount_usd": 1.0, "add_usd": 1.0},
            "amount_usd and add_usd exclude each other: give one of them",
            None,
        ),
        ({"limit": "soft"}, "limit must be 'expected' or 'hard', got 'soft'", "soft"),
        ({"amount_usd": -1.0}, "amount_usd must be a finite number of at least 0, got -1.0", -1.0),
        ({"add_usd": -2.0}, "add_usd must be a finite number of at least 0, got -2.0", -2.0),
        ({"paused": True, "pause_s": -3.0}, "pause_s must be a finite number of at least 0, got -3.0", -3.0),
        ({"horizon": 0}, "horizon must be a whole number of at least 1, got 0", 0),
        ({"add_usd": 1.0, "windows": 0}, "windows must be 1 to 366, with add_usd, got 0", None),
        ({"add_usd": 1.0, "windows": 367}, "windows must be 1 to 366, with add_usd, got 367", None),
        ({"amount_usd": 1.0, "windows": 1}, "windows must be 1 to 366, with add_usd, got 1", None),
        ({"horizon": 1, "reason": "x"}, "reason and pause_s are for a pause: add paused", None),
        ({"paused": False, "pause_s": 1.0}, "reason and pause_s are for a pause: add paused", None),
        ({"paused": True, "reason": "x" * 201}, "reason must have at most 200 characters, got 201", None),
    ],
)
def test_a_change_that_cannot_be_is_refused_with_its_rule(terms, message, value):
    with pytest.raises(InvalidInput) as refused:
        BudgetChange(**terms)
    assert str(refused.value) == message
    assert refused.value.value == value


@pytest.mark.parametrize(
    "terms",
    [
        {"amount_usd": 0.0},
        {"add_usd": 0.0},
        {"add_usd": 1.0, "windows": 1},
        {"add_usd": 1.0, "windows": 366},
        {"horizon": 1},
        {"limit": "expected"},
        {"limit": "hard"},
        {"paused": False},
        {"paused": True, "reason": "x" * 200, "pause_s": 0.0},
        {"ended": True, "reason": "over"},
    ],
)
def test_a_change_at_the_edge_of_its_rule_is_taken(terms):
    change = BudgetChange(**terms)
    assert {name: getattr(change, name) for name in terms} == terms


def test_a_change_of_a_share_scales_amounts_and_requests():
    change = BudgetChange(add_usd=10.0, horizon=9, windows=2)
    assert change.part(1.0) is change
    assert change.part(0.5) == BudgetChange(add_usd=5.0, horizon=4, windows=2)
    assert change.part(0.01) == BudgetChange(add_usd=0.1, horizon=1, windows=2)
    assert BudgetChange(amount_usd=8.0).part(0.25) == BudgetChange(amount_usd=2.0)
    assert BudgetChange(paused=True, reason="r").part(0.25) == BudgetChange(paused=True, reason="r")


# What it makes of the terms


def test_an_amount_replaces_that_of_this_and_later_windows_and_ends_increases():
    terms = AccountTerms(DAILY, "above", ((Increase(5.0, 2 * HOUR),), ()), None, "text")
    found = apply(BudgetChange(amount_usd=40.0, every="1h"), terms)
    assert found == Changed(AccountTerms(replace(DAILY, amount_usd=40.0), "above", (), None, "text"), 0, 40.0)


def test_the_budget_that_is_named_is_changed_and_the_others_stay():
    terms = AccountTerms(DAILY, increases=((Increase(5.0, 2 * HOUR),), ()))
    found = apply(BudgetChange(add_usd=100.0, horizon=7, limit="hard", every="never"), terms)
    outer = Budget(600.0, 7, "hard")
    assert found == Changed(AccountTerms(replace(DAILY, within=outer), increases=terms.increases), 1, 600.0)


def test_an_increase_lasts_for_some_windows_beside_those_that_still_run():
    old = (Increase(1.0, HOUR), Increase(2.0, 3 * HOUR))
    terms = AccountTerms(Budget(30.0, every="1h"), increases=(old,))
    late = ledger(terms.budget, window=terms.budget.window(HOUR + 1))
    late = replace(late, budget=replace(terms.budget, amount_usd=32.0))
    for windows, until_s in ((None, 2 * HOUR), (1, 2 * HOUR), (3, 4 * HOUR)):
        found = apply(BudgetChange(add_usd=4.0, windows=windows), terms, [late], now_s=HOUR + 1)
        assert found.amount_usd == 36.0
        assert found.terms.budget.amount_usd == 30.0
        assert found.terms.increases == ((old[1], Increase(4.0, until_s)),)
    assert apply(BudgetChange(horizon=9), terms, [late], HOUR + 1).amount_usd == 32.0


def test_there_are_at_most_sixteen_increases_at_a_time():
    budget = Budget(30.0, every="1h")
    for n in (15, 16):
        terms = AccountTerms(budget, increases=(tuple(Increase(1.0, HOUR) for _ in range(n)),))
        if n == 15:
            assert len(apply(BudgetChange(add_usd=1.0), terms).terms.increases[0]) == 16
            continue
        with pytest.raises(InvalidInput) as refused:
            apply(BudgetChange(add_usd=1.0), terms)
        message = "a budget has at most 16 increases at a time: give amount_usd to end them"
        assert str(refused.value) == message
        assert apply(BudgetChange(add_usd=1.0), terms, now_s=HOUR).terms.increases[0] == (Increase(1.0, HOUR),)


def test_a_change_of_one_of_several_budgets_names_it():
    terms = AccountTerms(DAILY)
    for every in (None, "day"):
        with pytest.raises(InvalidInput) as refused:
            apply(BudgetChange(horizon=5, every=every), terms)
        message = f"every must name the budget to change, one of '1h', 'never', got {every!r}"
        assert str(refused.value) == message
    with pytest.raises(InvalidInput, match="one of '1h', 'never', got 'day'"):
        apply(BudgetChange(paused=True, every="day"), terms)
    assert apply(BudgetChange(paused=True), terms).level == 0
    assert apply(BudgetChange(paused=True, every="never"), terms).level == 1
    for terms_of_one in ({"amount_usd": 1.0}, {"add_usd": 1.0}, {"limit": "hard"}):
        with pytest.raises(InvalidInput, match="every must name"):
            apply(BudgetChange(**terms_of_one), terms)
        alone = AccountTerms(Budget(30.0, every="1h"))
        assert apply(BudgetChange(**terms_of_one), alone).level == 0


def test_a_pause_begins_now_ends_by_itself_or_is_ended():
    terms = AccountTerms(Budget(30.0, 100))
    pause = apply(BudgetChange(paused=True, reason="why", pause_s=60.0), terms).terms.pause
    assert pause == Pause("why", 10.0, 70.0, ended=False)
    paused = replace_pause(terms, pause)
    assert apply(BudgetChange(horizon=5), paused).terms.pause == pause
    assert apply(BudgetChange(paused=False), paused).terms.pause is None
    assert apply(BudgetChange(paused=True), terms).terms.pause == Pause("", 10.0, None, ended=False)
    ended = apply(BudgetChange(ended=True, reason="over"), paused).terms
    assert ended.pause == Pause("over", 10.0, None, ended=True)
    with pytest.raises(ChangeRefused) as refused:
        apply(BudgetChange(paused=False), ended)
    assert str(refused.value) == "the budget was ended: start another one, with other terms"
    assert refused.value.figures == {}


def replace_pause(terms, pause):
    return terms._replace(pause=pause)


def test_nested_budgets_are_put_into_one_another():
    inner, outer = Budget(1.0, every="1h"), Budget(9.0, 5)
    assert nested([inner, outer]) == replace(inner, within=outer)
    with pytest.raises(InvalidInput) as refused:
        nested([])
    assert str(refused.value) == "an account has at least one budget, got none"


# What a hard limit forbids

USED = {"spent_usd": 4.0, "reserved_usd": 2.0, "leased_usd": 1.0, "carried_usd": -0.5, "in_flight": 3}


def hard_change(amount_usd, limit="hard"):
    return Changed(AccountTerms(Budget(amount_usd, 100, limit)), 0, amount_usd)


def test_a_hard_budget_cannot_be_lowered_below_what_is_used():
    running = ledger(Budget(10.0, 100, "hard"), **USED)
    assert refusal(hard_change(7.5), running, None, 0.0) is None
    assert refusal(hard_change(7.5 - 1e-12), running, None, 0.0) is None
    refused = refusal(hard_change(7.25), running, None, 0.0)
    assert str(refused) == (
        "a hard limit must cover what is used: 7.25 USD with -0.5 carried over is less than 4 spent, 2 reserved by "
        "calls in flight and 1 leased to workers: give at least 7.5, or pause the budget"
    )
    assert refused.figures == {"amount_usd": 10.0, **USED} == used_figures(running)


def test_a_hard_budget_that_is_used_beyond_its_amount_may_be_raised_or_stay():
    running = ledger(Budget(5.0, 100, "hard"), **USED)
    assert refusal(hard_change(5.0), running, None, 0.0) is None
    assert refusal(hard_change(6.0), running, None, 0.0) is None
    assert refusal(hard_change(4.5), running, None, 0.0) is not None


def test_an_expected_limit_forbids_nothing():
    running = ledger(Budget(10.0, 100, "hard"), **USED)
    assert refusal(hard_change(0.1, "expected"), running, None, 0.0) is None


def test_a_budget_becomes_hard_once_its_pause_has_held_without_calls_in_flight():
    used = {**USED, "in_flight": 0, "reserved_usd": 0.0}
    running = ledger(Budget(10.0, 100), **used)
    pause = Pause("", 100.0)
    assert refusal(hard_change(10.0), running, pause, 105.0, quiet_s=5.0) is None
    assert refusal(hard_change(10.0), running, pause, 100.0) is None
    assert "what is used" in str(refusal(hard_change(5.25), running, pause, 105.0, quiet_s=5.0))
    busy = replace(running, in_flight=2)
    for account, held, now_s in ((running, pause, 104.0), (running, None, 105.0), (busy, pause, 105.0)):
        refused = refusal(hard_change(10.0), account, held, now_s, quiet_s=5.0)
        assert str(refused) == (
            f"limit 'hard' needs a budget that is paused, without calls in flight, which hold only their expected "
            f"cost: pause it, and try again in 5 s, once {account.in_flight} calls in flight are settled"
        )
        assert refused.figures == used_figures(account)


# Answers


def test_the_answer_shows_the_terms_before_and_after_and_what_is_used():
    terms = AccountTerms(DAILY)
    running = ledger(DAILY, spent_usd=3.0)
    found = apply(BudgetChange(add_usd=4.0, horizon=50, limit="hard", every="1h"), terms)
    answer = answer_to("team", terms, found, running)
    before = {
        "every": "1h",
        "amount_usd": 30.0,
        "later_amount_usd": 30.0,
        "increases": [],
        "horizon": None,
        "limit": "expected",
        "paused": False,
        "reason": "",
        "paused_until": None,
        "ended": False,
    }
    after = {**before, "amount_usd": 34.0, "increases": [[4.0, HOUR]], "horizon": 50, "limit": "hard"}
    account = {**used_figures(running), "amount_usd": 34.0}
    assert answer == ChangeAnswer("team", before, after, account, False)
    assert account["spent_usd"] == 3.0
    again = first_answer(answer.text("request 1"), "request 1")
    assert again == answer._replace(replayed=True)
    assert json.loads(answer.text("request 1"))["request"] == "request 1"
    with pytest.raises(InvalidInput) as refused:
        first_answer(answer.text("request 1"), "request 2")
    message = "the idempotency key was used for another change: give each change a key of its own"
    assert str(refused.value) == message


def test_the_figures_of_a_pause_and_of_an_end():
    terms = AccountTerms(DAILY, pause=Pause("why", 1.0, 9.0))
    figures = figures_of(terms, 1, 500.0)
    assert [figures[name] for name in ("every", "paused", "reason", "paused_until", "ended")] == [
        "never",
        True,
        "why",
        9.0,
        False,
    ]
    figures = figures_of(terms._replace(pause=Pause("over", 1.0, None, ended=True)), 0, 30.0)
    assert (figures["paused"], figures["ended"], figures["reason"]) == (False, True, "over")


# Pauses


def test_a_pause_holds_until_its_end_and_says_what_to_do():
    assert [Pause("", 0.0, 60.0).holds(now_s) for now_s in (0.0, 59.9, 60.0)] == [True, True, False]
    assert Pause("", 0.0).holds(1e12)
    runs = Pause("", 0.0, 60.0)
    check_runs([("over", runs)], 60.0)
    with pytest.raises(BudgetPaused) as refused:
        check_runs([("over", runs), ("second", Pause("audit", 0.0))], 60.0)
    error = refused.value
    assert (error.scope, error.pause, error.renews_at) == ("second", Pause("audit", 0.0), None)
    assert str(error) == "the budget of scope 'second' is paused by an administrator (audit): wait until it is resumed"
    assert str(BudgetPaused("s", runs)) == (
        "the budget of scope 's' is paused by an administrator: it goes on at 1970-01-01T00:01:00+00:00"
    )
    assert BudgetPaused("s", runs).renews_at == 60.0
    ended = BudgetPaused("s", Pause("", 0.0, ended=True))
    assert (
        str(ended) == "the budget of scope 's' was ended by an administrator: ask an administrator to start another one"
    )
