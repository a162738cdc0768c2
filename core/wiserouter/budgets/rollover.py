"""Rollover: the expected traffic and the money that one window of a renewing budget passes on to the next."""

from __future__ import annotations

from wiserouter.budgets.periods import TRUST, Window


def requests_per_window(window: Window, seen_s: float, decided: int) -> float:
    """Return the requests expected in a whole window, after `decided` of them in `seen_s` seconds of this one.

    A stretch shorter than a tenth of the window is taken as a tenth of it.

    Examples
    --------
    >>> requests_per_window(Window(0.0, 100.0), seen_s=50.0, decided=30)
    60.0
    """
    length_s = window.end_s - window.start_s
    return decided * length_s / max(seen_s, TRUST * length_s)


def carried_usd(left_usd: float, skipped: int, amount_usd: float) -> float:
    """Return the amount that a window receives from the one before it, which ended with `left_usd`.

    The `skipped` windows between the two, which had no request, pass on their whole amount. At most one amount is
    carried over; an overspend is carried over in full.

    Examples
    --------
    >>> carried_usd(-3.0, skipped=0, amount_usd=10.0), carried_usd(4.0, skipped=1, amount_usd=10.0)
    (-3.0, 10.0)
    """
    return min(left_usd + skipped * amount_usd, amount_usd)
