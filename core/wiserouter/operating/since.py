"""The start of a period as people write it: an age such as 30d, or a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from wiserouter.errors import InvalidInput

_AGE = re.compile(r"(\d{1,4})([hdwm])")
_UNIT_S = {"h": 3_600.0, "d": 86_400.0, "w": 7.0 * 86_400.0, "m": 30.0 * 86_400.0}


def age_s(since: str) -> float | None:
    """Return an age of hours, days, weeks or months of 30 days in seconds; None where the text is none.

    Examples
    --------
    >>> age_s("2d"), age_s("2026-11-01")
    (172800.0, None)
    """
    found = _AGE.fullmatch(since)
    return float(found[1]) * _UNIT_S[found[2]] if found else None


def start_s(since: str, now_s: float) -> float:
    """Return the start of a period in seconds since 1970: of an age, or a date or time of ISO 8601, by default of UTC.

    Raises
    ------
    InvalidInput
        If the text is neither; a number alone is none.

    Examples
    --------
    >>> start_s("2d", now_s=1_000_000.0), start_s("20261101", now_s=0.0)
    (827200.0, 1793491200.0)
    """
    age = age_s(since)
    if age is not None:
        return now_s - age
    try:
        at = datetime.fromisoformat(since)
    except ValueError:
        rule = "since must be a date or an age such as 30d"
        raise InvalidInput(f"{rule}, got {since!r}: write 30d for 30 days", value=since) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
