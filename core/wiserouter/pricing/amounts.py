"""Amounts of money as people read them: dollars without exponents, and small ones for a thousand calls."""

from __future__ import annotations

import math


def usd(amount: float) -> str:
    """Return an amount of money, a small one with four significant digits.

    Examples
    --------
    >>> usd(0.00012345), usd(0.000058), usd(0.9), usd(-12.5)
    ('$0.0001234', '$0.000058', '$0.900', '-$12.50')
    """
    if not math.isfinite(amount):
        return f"${amount}"
    if amount < 0:
        return f"-{usd(-amount)}"
    if amount >= 1 or amount == 0:
        return f"${amount:,.2f}"
    if amount >= 0.1:
        return f"${amount:.3f}"
    digits = 3 - math.floor(math.log10(amount))
    return f"${amount:.{digits}f}".rstrip("0") if digits <= 15 else f"${amount:.4g}"


def usd_per_1000(amount: float) -> str:
    """Return the cost of a thousand calls, or queries, of this amount each.

    Examples
    --------
    >>> usd_per_1000(0.000058)
    '$0.058 per 1,000'
    """
    return f"{usd(1_000 * amount)} per 1,000"
