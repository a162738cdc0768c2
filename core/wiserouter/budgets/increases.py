"""Increases of the amount of a budget for a number of windows; afterwards the amount is what it was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Increase(NamedTuple):
    """An amount that is added to each window that begins before `until_s`, in seconds since 1970."""

    usd: float
    until_s: float


def still_running(increases: Iterable[Increase], at_s: float) -> tuple[Increase, ...]:
    """Return the increases that last beyond a time."""
    return tuple([one for one in increases if at_s < one.until_s])


def amount_usd_at(regular_usd: float, increases: Iterable[Increase], at_s: float) -> float:
    """Return the amount of the window that begins at a time.

    Examples
    --------
    >>> increases = (Increase(5.0, until_s=100.0), Increase(2.0, until_s=200.0))
    >>> [amount_usd_at(10.0, increases, at_s) for at_s in (0.0, 100.0, 200.0)]
    [17.0, 12.0, 10.0]
    """
    return regular_usd + sum([one.usd for one in still_running(increases, at_s)])
