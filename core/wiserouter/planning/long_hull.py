"""The upper concave envelope of many models, by whole arrays: a loop only where the slope between two models rises.

The models and slopes are those of the monotone chain in `wiserouter.planning.envelope`, bit for bit: each slope is
computed from the same two points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.types import FloatArray

SKIP = -1
"""Index of the null action."""

_INFINITE = float("inf")

_LEAST_QUOTIENT = 1e-300
"""A step that costs less than this part of its gain has an infinite slope: the quotient would overflow."""


class Rising(NamedTuple):
    """The models that yield more than all of no higher cost, cheapest first, with their costs and rewards."""

    models: NDArray[np.signedinteger]
    usd: FloatArray
    gain: FloatArray


def rising(cost_usd: FloatArray, reward: FloatArray, *, allow_skip: bool) -> Rising:
    """Return the models that come into question for the envelope, with the null action where that is allowed.

    Examples
    --------
    >>> rising(np.array([1, 2, 3, 3]), np.array([0.1, 0.2, 0.9, 0.5]), allow_skip=False).models.tolist()
    [0, 1, 2]
    """
    models = cost_usd.argsort(kind="stable")
    usd, gain = cost_usd[models], reward[models]
    if allow_skip:
        models, usd, gain = (np.concatenate(([first], row)) for first, row in ((SKIP, models), (0.0, usd), (0.0, gain)))
    most = np.maximum.accumulate(gain)
    better = np.ones(len(models), dtype=bool)
    np.greater(most[1:], most[:-1], out=better[1:])
    models, usd, gain = models[better], usd[better], gain[better]
    costs_more = usd[1:] > usd[:-1]
    if costs_more.all():
        return Rising(models, usd, gain)
    last = np.append(costs_more, True)  # of one cost the last yields most
    return Rising(models[last], usd[last], gain[last])


def long_hull(usd: FloatArray, gain: FloatArray) -> tuple[NDArray[np.signedinteger], FloatArray]:
    """Return the places of the points on the envelope, and the slopes from each to the next, negated.

    Costs and rewards rise.

    Examples
    --------
    >>> places, falling = long_hull(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.2, 0.9]))
    >>> places.tolist(), falling.tolist()
    ([0, 2], [-0.4])
    """
    falling = _slopes(usd, gain)
    bends = ((falling[1:] <= falling[:-1]).nonzero()[0] + 1).tolist()
    if not bends:
        return np.arange(len(usd)), falling
    places, slopes = _without_bends(usd.tolist(), gain.tolist(), falling.tolist(), bends)
    return np.array(places), np.array(slopes)


def _slopes(usd: FloatArray, gain: FloatArray) -> FloatArray:
    """Return the slopes from each point to the next, negated."""
    rise, spend = gain[1:] - gain[:-1], usd[1:] - usd[:-1]
    falling = np.full(len(spend), -_INFINITE)
    np.divide(-rise, spend, out=falling, where=spend > rise * _LEAST_QUOTIENT)
    return falling


def _without_bends(
    usd: list[float], gain: list[float], falling: list[float], bends: list[int]
) -> tuple[list[int], list[float]]:
    """Return the places and slopes of `long_hull`; points between two `bends`, where it does not fall, need no look."""
    at, last = bends[0], len(usd) - 1
    places, slopes = [*range(at + 1)], falling[:at]
    ends = iter([*bends[1:], last])
    end = next(ends)
    while at < last:
        if not slopes or slopes[-1] < falling[at]:
            while end <= at:
                end = next(ends)
            places += range(at + 1, end + 1)
            slopes += falling[at:end]
            at = end
            continue
        at += 1
        x, y = usd[at], gain[at]
        while True:
            places.pop()
            slopes.pop()
            spend, rise = x - usd[places[-1]], y - gain[places[-1]]
            slope = -rise / spend if spend > rise * _LEAST_QUOTIENT else -_INFINITE
            if not slopes or slopes[-1] < slope:
                break
        places.append(at)
        slopes.append(slope)
    return places, slopes
