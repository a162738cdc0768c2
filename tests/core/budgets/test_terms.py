"""The terms of a budget and its periods: refusals word by word, windows and rollovers by a calendar."""

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from wiserouter import Budget
from wiserouter.budgets.periods import (
    Period,
    Window,
    parse_period,
    requests_left,
    window_at,
    windows_between,
)
from wiserouter.budgets.rollover import carried_usd, requests_per_window
from wiserouter.errors import InvalidInput

DAY = 86_400.0


@pytest.mark.parametrize(
    ("terms", "message", "value"),
    [
        ({}, "a budget needs horizon (how many requests it is for) or every (how often it renews)", None),
        (
            {"horizon": 5, "limit": "soft"},
            "limit must be one of 'expected', 'hard', got 'soft'",
            "soft",
        ),
        (
            {"horizon": 5, "on_exhausted": "panic"},
            "on_exhausted must be one of 'reject', 'cheapest', got 'panic'",
            "panic",
        ),
        (
            {"horizon": 5, "rollover": True},
            "rollover needs every: a budget that does not renew has nothing to roll over to",
            None,
        ),
        ({"horizon": 5, "within": 3.0}, "within must be a Budget, got 3.0: nest several", 3.0),
        (
            {"every": "day", "within": Budget(9.0, every="1w", within=Budget(9.0, every="24h", timezone="UTC"))},
            None,
            None,
        ),
        (
            {"every": "day", "within": Budget(9.0, every="1w", within=Budget(99.0, every="1d"))},
            "budgets within one another must renew differently, got every='day' twice",
            None,
        ),
        (
            {"horizon": 5, "within": Budget(9.0, 7)},
            "budgets within one another must renew differently, got every=None twice",
            None,
        ),
        (
            {"every": "fortnight"},
            "every must be a number and s, m, h, d, w or mo, such as '30d', or day, week or month, got 'fortnight'",
            "fortnight",
        ),
        (
            {"every": "day", "timezone": "Mars/Base"},
            "timezone must be an IANA name such as 'Europe/Berlin', got 'Mars/Base'",
            "Mars/Base",
        ),
        (
            {"horizon": 5, "timezone": "Mars/Base"},
            "timezone must be an IANA name such as 'Europe/Berlin', got 'Mars/Base'",
            "Mars/Base",
        ),
    ],
)
def test_terms_that_cannot_be_are_refused_with_their_rule(terms, message, value):
    if message is None:
        assert Budget(1.0, **terms).each[2].every == "24h"
        return
    with pytest.raises(InvalidInput) as refused:
        Budget(1.0, **terms)
    assert str(refused.value) == message
    assert refused.value.value == value


def test_what_follows_from_the_terms():
    inner = Budget(30.0, every="day", within=Budget(500.0, 10, "hard"))
    assert inner.each == (inner, Budget(500.0, 10, "hard"))
    assert (inner.hard, replace(inner, within=None).hard, Budget(1.0, 1, "hard").hard) == (True, False, True)
    assert (inner.rate_usd, inner.within.rate_usd) == (None, 50.0)
    assert inner.window(1.5 * DAY) == (DAY, 2 * DAY)
    assert inner.within.window(5.0) is None
    assert [inner.renews(every) for every in ("1d", "day", "24h", None, "never")] == [True, True, False, False, False]
    assert [inner.within.renews(every) for every in (None, "never", "day")] == [True, True, False]
    assert inner.windows_between(Window(0.0, DAY), Window(4 * DAY, 5 * DAY)) == 3


def at(text, zone="UTC"):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("every", "zone", "now", "start", "end"),
    [
        ("30s", "UTC", "2026-03-01T00:00:45", "2026-03-01T00:00:30", "2026-03-01T00:01:00"),
        ("15m", "UTC", "2026-03-01T10:44:59", "2026-03-01T10:30:00", "2026-03-01T10:45:00"),
        ("6h", "Europe/Berlin", "2026-03-01T13:30:00", "2026-03-01T13:00:00", "2026-03-01T19:00:00"),
        ("day", "Europe/Berlin", "2026-03-29T12:00:00", "2026-03-29T00:00:00", "2026-03-30T00:00:00"),
        ("2d", "UTC", "2026-03-03T12:00:00", "2026-03-02T00:00:00", "2026-03-04T00:00:00"),
        ("week", "UTC", "2026-03-01T12:00:00", "2026-02-23T00:00:00", "2026-03-02T00:00:00"),
        ("week", "UTC", "2026-03-02T00:00:00", "2026-03-02T00:00:00", "2026-03-09T00:00:00"),
        ("month", "America/New_York", "2026-12-31T23:59:59", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
        ("3mo", "UTC", "2026-12-31T12:00:00", "2026-10-01T00:00:00", "2027-01-01T00:00:00"),
        ("5mo", "UTC", "2026-03-05T12:00:00", "2025-11-01T00:00:00", "2026-04-01T00:00:00"),
    ],
)
def test_a_window_is_one_of_the_clock_or_of_the_calendar(every, zone, now, start, end):
    period = parse_period(every, zone)
    assert window_at(period, at(now, zone)) == (at(start, zone), at(end, zone))
    assert window_at(period, at(start, zone)).start_s == at(start, zone)
    assert window_at(period, at(end, zone)).start_s == at(end, zone)


@pytest.mark.parametrize("every", ["30s", "15m", "6h", "1d", "3d", "2w", "1mo", "5mo"])
def test_windows_between_are_counted_one_by_one(every):
    period = parse_period(every, "Europe/Berlin")
    first = window_at(period, at("2026-03-20T12:00:00"))
    later, n = first, -1
    for _ in range(30):
        later, n = window_at(period, later.end_s), n + 1
        assert windows_between(period, first.end_s, later.start_s) == n


def test_periods_are_read_and_identified():
    assert parse_period("week", "Europe/Berlin") == Period(1, "w", "Europe/Berlin")
    lengths = [parse_period(every).length for every in ("90s", "2m", "3h", "2d", "2w", "4mo")]
    assert lengths == [(90, "s"), (120, "s"), (10_800, "s"), (2, "d"), (14, "d"), (4, "mo")]
    for wrong in ("0d", "1y", "", "d", "100000s", " 1d", 5, None):
        with pytest.raises(InvalidInput) as refused:
            parse_period(wrong)
        assert refused.value.value == wrong
        assert repr(wrong) in str(refused.value)
    for zone in ("", "../etc", None, 3):
        with pytest.raises(InvalidInput) as refused:
            parse_period("day", zone)
        assert refused.value.value == zone


def test_a_pace_is_extrapolated_with_a_prior():
    assert requests_left(500, 50.0, 50.0, 100.0, 1_000.0) == 500
    assert requests_left(30, 40.0, 60.0, 100.0, 200.0) == round((30 + 20.0) / 50.0 * 60.0)
    assert requests_left(30, 40.0, 60.0, 100.0, None) == round(31.0 / 41.0 * 60.0)
    assert requests_left(0, 50.0, 1e-9, 100.0, 10.0) == 1
    assert requests_per_window(Window(100.0, 200.0), 50.0, 30) == 60.0
    assert requests_per_window(Window(100.0, 200.0), 1.0, 30) == 300.0


def test_at_most_one_amount_is_carried_over_and_an_overspend_in_full():
    assert [carried_usd(left, skipped, 10.0) for left, skipped in ((-3.0, 0), (4.0, 0), (4.0, 1), (-25.0, 2))] == [
        -3.0,
        4.0,
        10.0,
        -5.0,
    ]
