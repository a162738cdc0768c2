"""Refusals speak to clients of HTTP: no Python in them, and a time after which it is worth asking again."""

import time

import pytest

from wiserouter.errors import BudgetExhausted, HorizonExhausted, NotStarted, RunBudgetExhausted
from wiserouter_litellm.errors import BudgetRefused, BudgetUncertain, ScopeRefused, UnknownCall, unbounded, uncountable

AMOUNT = {"amount_usd": 5.0, "decided": 1, "horizon": 10}
USED_UP = BudgetExhausted(**AMOUNT, spent_usd=5.0, reserved_usd=0.0, needed_usd=1.0)
HELD = BudgetExhausted(**AMOUNT, spent_usd=1.0, reserved_usd=4.0, needed_usd=1.0)
TOO_LARGE = BudgetExhausted(**AMOUNT, spent_usd=1.0, reserved_usd=0.0, needed_usd=6.0)

OF_A_RUN = RunBudgetExhausted(**AMOUNT, spent_usd=5.0, reserved_usd=0.0, needed_usd=1.0)


def daily(renews_in_s):
    renewal = {"every": "day", "renews_at": time.time() + renews_in_s}
    return BudgetExhausted(**AMOUNT, spent_usd=5.0, reserved_usd=0.0, needed_usd=1.0, **renewal)


@pytest.mark.parametrize(
    "error",
    [
        *(BudgetRefused("wise", one) for one in (USED_UP, HELD, TOO_LARGE, daily(60), HorizonExhausted(10, 0.5))),
        BudgetRefused("wise", NotStarted("team:a"), "team:a"),
        ScopeRefused("wise", "team", "a"),
        ScopeRefused("wise", "team", "", most=3),
        BudgetUncertain("wise"),
        UnknownCall("c"),
        unbounded("wise", ["openai/small"]),
        uncountable("wise"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_refusal_names_a_function(error):
    assert "()" not in str(error)
    assert "set_budget" not in str(error)
    assert "start(" not in str(error)
    assert "on_exhausted=" not in str(error)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (USED_UP, "group 'wise': the budget of 5 USD is used up: 5 spent.*: ask an administrator to raise the budget$"),
        (HELD, "1 spent, 4 reserved by calls in flight.*: wait until calls in flight are settled, or ask an admin"),
        (
            TOO_LARGE,
            "worst case of this call: 1 spent.*4 left, 6 needed.*: limit its output, or ask for a cheaper model",
        ),
        (daily(60), "the budget of 5 USD every day is used up.*: ask an administrator to raise.*; it renews at 2"),
        (HorizonExhausted(10, 0.5), "the 10 requests that the budget was planned for are used up"),
    ],
)
def test_a_refusal_gives_the_figures_and_what_helps(error, text):
    with pytest.raises(BudgetRefused, match=text):
        raise BudgetRefused("wise", error)


@pytest.mark.parametrize(
    ("error", "least", "most"),
    [(lambda: HELD, 1, 5), (lambda: daily(60), 58, 60), (lambda: daily(0.2), 1, 1), (lambda: daily(-5), 1, 1)],
)
def test_the_time_to_wait_is_told(error, least, most):
    assert least <= int(BudgetRefused("wise", error()).headers["retry-after"]) <= most


@pytest.mark.parametrize("error", [USED_UP, TOO_LARGE, OF_A_RUN, HorizonExhausted(10, 0.5)])
def test_where_waiting_does_not_help_clients_are_told_not_to_send_again(error):
    assert BudgetRefused("wise", error).headers == {"x-should-retry": "false"}
