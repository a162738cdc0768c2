"""What a window passes on to the next one, checked by hand."""

import pytest

from wiserouter.budgets.periods import Window
from wiserouter.budgets.rollover import carried_usd, requests_per_window


@pytest.mark.parametrize(
    ("start_s", "seen_s", "decided", "expected"),
    [
        (0.0, 50.0, 30, 60.0),
        (1_000.0, 50.0, 30, 60.0),  # the length counts, and not the date
        (1_000.0, 100.0, 30, 30.0),
        (1_000.0, 1.0, 3, 30.0),  # a hundredth of the window is taken as a tenth
        (1_000.0, 0.0, 3, 30.0),
        (1_000.0, 10.0, 0, 0.0),
    ],
)
def test_requests_of_a_whole_window(start_s, seen_s, decided, expected):
    assert requests_per_window(Window(start_s, start_s + 100.0), seen_s, decided) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("left_usd", "skipped", "expected"),
    [(4.0, 0, 4.0), (0.0, 0, 0.0), (-3.0, 0, -3.0), (4.0, 1, 10.0), (-13.0, 1, -3.0), (-13.0, 2, 7.0), (10.0, 3, 10.0)],
)
def test_at_most_one_amount_is_carried_over_and_an_overspend_in_full(left_usd, skipped, expected):
    assert carried_usd(left_usd, skipped, amount_usd=10.0) == expected
