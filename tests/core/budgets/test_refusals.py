"""The error of a budget that does not pay says why: nothing is left, calls hold it, or this call is too large."""

import pytest

from wiserouter.errors import BudgetExhausted

MIDNIGHT = 1_794_268_800.0  # 2026-11-10T00:00:00Z


def refused(spent_usd, reserved_usd, needed_usd, **terms):
    figures = {"spent_usd": spent_usd, "reserved_usd": reserved_usd, "needed_usd": needed_usd}
    return BudgetExhausted(amount_usd=100.0, decided=3, horizon=10, **figures, **terms)


WORST_CASE = "does not pay for the worst case of this call: "


@pytest.mark.parametrize(
    ("error", "state", "remedy"),
    [
        (refused(100.0, 0.0, 1.0), "is used up: 100 spent", "decided: raise it with set_budget(), or start a new one"),
        (refused(100.0 - 1e-12, 0.0, 1.0), "is used up", "decided: raise it"),
        (refused(0.0, 50.0, 60.0), f"{WORST_CASE}0 spent, 50 reserved", "decided: wait until calls in flight are"),
        (refused(0.0, 50.0, 195.0), f"{WORST_CASE}0 spent", "decided: limit its output, or ask for a cheaper model"),
        (refused(50.0, 0.0, 195.0), f"{WORST_CASE}50 spent", "50 left, 195 needed, 3 of 10"),
        (
            refused(100.0, 0.0, 1.0, every="day", renews_at=MIDNIGHT),
            "is used up",
            "wait: it renews at 2026-11-10T00:00",
        ),
    ],
)
def test_the_state_and_the_remedy_fit_the_figures(error, state, remedy):
    assert state in str(error)
    assert remedy in str(error)
    assert str(error).startswith(error.account)


def test_the_output_that_would_fit_is_named():
    error = refused(50.0, 0.0, 195.0)
    error.note_fitting_output(12)
    assert "limit its output to 12 tokens" in str(error)
    assert error.remedies == ["limit its output to 12 tokens", "ask for a cheaper model"]


def test_under_an_expected_limit_no_limit_of_the_output_is_said_to_help():
    error = refused(50.0, 0.0, 195.0, hard=False)
    assert "does not pay for the expected cost of this call: 50 spent" in str(error)
    assert error.remedies == ["ask for a cheaper model"]


def test_a_call_is_only_held_back_where_the_calls_in_flight_are_all_that_stands_in_its_way():
    held = [refused(*figures).is_only_held for figures in ((0, 50, 60), (40, 50, 60), (40, 50, 61), (0, 0, 160))]
    assert held == [True, True, False, False]
