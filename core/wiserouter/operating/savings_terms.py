"""The terms of a report on savings as people write them: the period, and the traffic of before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.operating.since import age_s, start_s
from wiserouter.stores.day_buckets import DAY_S

MOST_DAYS = 400
"""Most days that one report is about."""

_EPOCH = date(1970, 1, 1)


def days_of(since: str, now_s: float) -> range:
    """Return the days of a period, counted from 1970; see `savings`.

    Examples
    --------
    >>> days_of("2d", 86_400.0 * 10 + 5)
    range(9, 11)
    """
    today, age = int(now_s // DAY_S), age_s(since)
    begins_s = start_s(since, now_s)
    if (begins_s if age is None else age) % DAY_S:
        raise InvalidInput(f"since must begin with a day of UTC, such as 30d or 2026-11-01, got {since!r}", value=since)
    first = int(begins_s // DAY_S) if age is None else today + 1 - int(age // DAY_S)
    if not today - MOST_DAYS < first <= today:
        raise InvalidInput(f"since must lie within the last {MOST_DAYS} days, got {since!r}", value=since)
    return range(first, today + 1)


def read_shares(before: str | Mapping[str, float]) -> dict[str, float]:
    """Return the shares of models that a text or a mapping names, which sum to 1.

    Examples
    --------
    >>> read_shares("large=3,small=1")
    {'large': 0.75, 'small': 0.25}
    """
    given: Mapping[str, Any] = before if isinstance(before, Mapping) else _shares_of_text(before)
    try:
        shares = {name: float(share) for name, share in given.items()}
    except (TypeError, ValueError):
        shares = {}
    total = sum(shares.values())
    if not shares or not math.isfinite(total) or total <= 0.0 or min(shares.values()) < 0.0:
        raise InvalidInput(f"before must be a model, or shares such as large=0.7,small=0.3, got {before!r}")
    return {name: share / total for name, share in shares.items()}


def _shares_of_text(text: str) -> dict[str, Any]:
    """Return the shares that a text names; a single name has all."""
    if "=" not in text:
        return {text: 1.0} if text else {}
    parts = [part.rpartition("=") for part in text.split(",")]
    return {name.strip(): share for name, _, share in parts}


def iso_date(day: int) -> str:
    """Return a day since 1970 as YYYY-MM-DD."""
    return (_EPOCH + timedelta(days=day)).isoformat()
