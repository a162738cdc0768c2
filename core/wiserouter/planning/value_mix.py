"""The distribution of the values that requests of a budget have stated: tiers of similar values, and their shares.

A request states in `decide(value=...)` how much a point of its reward is worth, 1 by default. Values within a factor
of `TIER_RATIO` form one tier, which stands for its mean. Recent requests weigh more: the shares follow the traffic.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.learning.memory import MEMORY

LEAST_VALUE, MOST_VALUE = 1e-3, 1e3
"""The values that a request may state."""

TIER_RATIO = 1.25
"""Ratio of the bounds of a tier: at most 63 tiers lie between the least and the most value."""

REFRESH_GROWTH = 1.02
"""The shares are computed again once there are 2 % more requests."""

_LOG_RATIO = math.log(TIER_RATIO)
_OUTERMOST = round(math.log(MOST_VALUE) / _LOG_RATIO)  # the number of the highest tier; tier 0 holds the value 1


class Tier(NamedTuple):
    """The mean value of a tier, and its share of the requests."""

    value: float
    share: float


class ValueMix:
    """The values that the requests of one budget have stated.

    Parameters
    ----------
    n_plain : float, default 0
        Number of earlier requests, all of value 1.

    Attributes
    ----------
    is_plain : bool
        Whether every request so far had the value 1.

    Examples
    --------
    >>> mix = ValueMix(n_plain=3)
    >>> mix.add(4.0)
    >>> [(value, round(share, 3)) for value, share in mix.tiers()]
    [(1.0, 0.75), (4.0, 0.25)]
    """

    def __init__(self, n_plain: float = 0.0) -> None:
        plain = min(n_plain, 1.0 / (1.0 - MEMORY))
        self._sums = np.zeros((2, 2 * _OUTERMOST + 1))  # the number of requests of each tier, and their values
        self._sums[:, _OUTERMOST] = plain
        self._seen, self._refresh_at = plain, 0.0
        self._tiers: tuple[Tier, ...] = ()
        self.is_plain = True

    def add(self, value: float) -> None:
        """Count a request."""
        tier = _OUTERMOST + round(math.log(value) / _LOG_RATIO)
        self._sums *= MEMORY
        self._sums[0, tier] += 1.0
        self._sums[1, tier] += value
        self.is_plain = self.is_plain and value == 1.0
        self._seen += 1.0

    def tiers(self) -> tuple[Tier, ...]:
        """Return the tiers by rising value; the same tuple until there are enough new requests."""
        if self._seen >= self._refresh_at:
            counts, sums = self._sums.tolist()
            total = sum(counts)
            tiers = zip(counts, sums, strict=True)
            self._tiers = tuple(  # a tier that has faded entirely adds nothing
                [Tier(worth / count, count / total) for count, worth in tiers if total + count > total]
            )
            lasting = min(self._seen, 1.0 / (1.0 - MEMORY))
            self._refresh_at = self._seen + max(1.0, (REFRESH_GROWTH - 1.0) * lasting)
        return self._tiers


def check_value(value: float) -> float:
    """Return the value of a request as a float; raise `InvalidInput` if it is none.

    Examples
    --------
    >>> check_value(3)
    3.0
    """
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and LEAST_VALUE <= value <= MOST_VALUE):
        raise InvalidInput(
            f"value must be a number from {LEAST_VALUE:g} to {MOST_VALUE:g}, got {value!r}: "
            "state values relative to 1, the value of a request without one",
            value=value,
        )
    return float(value)
