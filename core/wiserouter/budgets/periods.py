"""Periods and calendar windows of budgets that renew.

Windows depend on the clock alone, so that all processes and machines agree on them and a restart is not a renewal.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, tzinfo
from typing import NamedTuple

from wiserouter.errors import InvalidInput

_SECONDS = {"s": 1, "m": 60, "h": 3_600}
_DAYS = {"d": 1, "w": 7}
_MONDAY = date(1970, 1, 5)
_PERIOD = re.compile(r"([1-9]\d{0,4})(s|m|h|d|w|mo)")
_MOST_MONTHS = 12 * 1969  # from the year 0 on, from which months count, one of these has ended before 1970
_NAMED = {"day": "1d", "week": "1w", "month": "1mo"}

TRUST = 0.1
"""Weight of the expected traffic, as a share of a window of observed traffic."""

UNKNOWN_TRUST = 0.01
"""The same where there is no expectation: the first request is taken as the traffic of 1 % of the window."""


class Period(NamedTuple):
    """The period in which a budget renews: `n` units of "s", "m", "h", "d", "w" or "mo", in the time of `timezone`."""

    n: int
    unit: str
    timezone: str

    @property
    def length(self) -> tuple[int, str]:
        """The period in seconds, days or months, which identifies it."""
        factors, unit = (_SECONDS, "s") if self.unit in _SECONDS else (_DAYS, "d")
        return (self.n, "mo") if self.unit == "mo" else (self.n * factors[self.unit], unit)


EARLY_S = 60.0
"""How long before its start a window stays open where the clock is set back: clocks that differ by less agree on it."""


class Window(NamedTuple):
    """The time from `start_s` on, until `end_s`; seconds since 1970."""

    start_s: float
    end_s: float

    def is_open(self, now_s: float) -> bool:
        """Return True if a window that was opened has not ended, and the clock was not set back to before it since."""
        return self.start_s - EARLY_S <= now_s < self.end_s


def parse_period(every: str, timezone: str = "UTC") -> Period:
    """Return the period that `every` names.

    Parameters
    ----------
    every : str
        A number and a unit, "30s", "15m", "6h", "1d", "2w", "1mo"; or "day", "week", "month" for one of them.
    timezone : str, default "UTC"
        A name of the IANA database, such as "Europe/Berlin".

    Raises
    ------
    InvalidInput
        If either cannot be read, or there are so many months that no window of them begins in the calendar.

    Examples
    --------
    >>> parse_period("30d")
    Period(n=30, unit='d', timezone='UTC')
    >>> parse_period("month") == parse_period("1mo")
    True
    """
    found = _PERIOD.fullmatch(_NAMED.get(every, every)) if isinstance(every, str) else None
    if found is None:
        raise InvalidInput(
            f"every must be a number and s, m, h, d, w or mo, such as '30d', or day, week or month, got {every!r}",
            value=every,
        )
    if found[2] == "mo" and int(found[1]) > _MOST_MONTHS:
        raise InvalidInput(f"every must be at most {_MOST_MONTHS}mo, got {every!r}", value=every)
    check_timezone(timezone)
    return Period(int(found[1]), found[2], timezone)


def check_timezone(timezone: str) -> None:
    """Raise `InvalidInput` if a name is not in the IANA database."""
    try:
        zone(timezone)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise InvalidInput(
            f"timezone must be an IANA name such as 'Europe/Berlin', got {timezone!r}", value=timezone
        ) from error


def window_at(period: Period, now_s: float) -> Window:
    """Return the window that contains the instant `now_s`.

    Seconds, minutes and hours count from 1970 on. Days begin at midnight and weeks on Monday, in the time zone; months
    are calendar months.

    Examples
    --------
    >>> window_at(parse_period("1h"), 7_300.0)
    Window(start_s=7200.0, end_s=10800.0)
    >>> window_at(parse_period("1mo"), 0.0).end_s / 86_400
    31.0
    """
    if period.unit in _SECONDS:
        length = period.n * _SECONDS[period.unit]
        start = now_s // length * length
        return Window(float(start), float(start + length))
    where = zone(period.timezone)
    first, after = _days(period, datetime.fromtimestamp(now_s, where).date())
    return Window(_midnight_s(first, where), _midnight_s(after, where))


def windows_between(period: Period, end_s: float, start_s: float) -> int:
    """Return the number of windows between one that ends at `end_s` and a later one that starts at `start_s`.

    Examples
    --------
    >>> windows_between(parse_period("1mo"), 0.0, 59 * 86_400.0)
    2
    """
    if period.unit in _SECONDS:
        return round((start_s - end_s) / (period.n * _SECONDS[period.unit]))
    first, last = (datetime.fromtimestamp(at_s, zone(period.timezone)).date() for at_s in (end_s, start_s))
    if period.unit == "mo":
        return (12 * (last.year - first.year) + last.month - first.month) // period.n
    return (last - first).days // (period.n * _DAYS[period.unit])


def requests_left(decided: int, elapsed_s: float, left_s: float, length_s: float, expected: float | None) -> int:
    """Return the requests expected in the rest of a window at a constant rate, where no record of arrivals is kept.

    Parameters
    ----------
    decided : int
        Requests so far.
    elapsed_s, left_s, length_s : float, seconds
        Time of those requests, remaining time of the window, and its length.
    expected : float or None
        Requests expected in a whole window, from an earlier one.

    Returns
    -------
    int
        At least 1. The observed rate, with the expected one as a prior of the weight of a tenth of a window.

    Examples
    --------
    >>> requests_left(500, elapsed_s=50.0, left_s=50.0, length_s=100.0, expected=1_000.0)
    500
    >>> requests_left(0, elapsed_s=0.0, left_s=100.0, length_s=100.0, expected=None)
    100
    """
    trust, prior = (UNKNOWN_TRUST, 1.0) if expected is None else (TRUST, TRUST * expected)
    rate = (decided + prior) / (elapsed_s + trust * length_s)
    return max(1, round(rate * left_s))


def _days(period: Period, today: date) -> tuple[date, date]:
    """Return the first day of the window and the first after it."""
    if period.unit == "mo":
        first = (today.year * 12 + today.month - 1) // period.n * period.n
        return _month(first), _month(first + period.n)
    days = period.n * _DAYS[period.unit]
    start = _MONDAY + timedelta(days=(today - _MONDAY).days // days * days)
    return start, start + timedelta(days=days)


def _month(months: int) -> date:
    return date(months // 12, months % 12 + 1, 1)


def zone(name: str) -> tzinfo:
    """Return the time zone of an IANA name."""
    from zoneinfo import ZoneInfo  # only budgets that renew by the calendar need it

    return ZoneInfo(name)


def _midnight_s(day: date, where: tzinfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=where).timestamp()
