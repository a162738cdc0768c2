"""The upper concave envelope of many models, by whole arrays: a loop only where the slope between two models rises.

The models and slopes are those of the monotone chain in `wiserouter.planning.envelope`, bit for bit: each slope is
computed from the same two points.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wiserouter.types import FloatArray

SKIP = -1
"""Index of the null action."""

_INFINITE = float("inf")

_LEAST_QUOTIENT = 1e-300
"""A step that costs less than this part of its gain has an infinite slope: the quotient would overflow."""


def long_hull(
    cost_usd: FloatArray, reward: FloatArray, *, allow_skip: bool
) -> tuple[NDArray[np.signedinteger], FloatArray]:
    """Return the models on the envelope, cheapest first, and the slopes from each to the next, negated.

    Parameters
    ----------
    cost_usd, reward : ndarray of shape (n_models + 1,)
        One number per model; the last, index -1, is the null action.
    allow_skip : bool
        Whether the null action takes part.

    Examples
    --------
    >>> models, falling = long_hull(np.array([1, 2, 3, 3, 0]), np.array([0.1, 0.2, 0.9, 0.5, 0.0]), allow_skip=False)
    >>> models.tolist(), falling.tolist()
    ([0, 2], [-0.4])
    """
    models = cost_usd[:-1].argsort(kind="stable")
    if allow_skip:
        models = np.concatenate(([SKIP], models))
    most = np.maximum.accumulate(reward[models])
    models = models[_and_first(most[1:] > most[:-1])]  # the others cost no less and yield no more
    usd = cost_usd[models]
    dearer = usd[1:] > usd[:-1]
    if not dearer.all():
        models = models[np.append(dearer, True)]  # of one cost the last yields most
        usd = cost_usd[models]
    gain = reward[models]
    falling = _slopes(usd, gain)
    bends = ((falling[1:] <= falling[:-1]).nonzero()[0] + 1).tolist()
    if not bends:
        return models, falling
    on_hull = _on_hull(usd, gain, falling, bends)
    return models[on_hull], _slopes(usd[on_hull], gain[on_hull])


def _and_first(later: NDArray[np.bool]) -> NDArray[np.bool]:
    kept = np.ones(len(later) + 1, dtype=bool)
    kept[1:] = later
    return kept


def _slopes(usd: FloatArray, gain: FloatArray) -> FloatArray:
    """Return the slopes from each point to the next, negated."""
    return _quotients(gain[1:] - gain[:-1], usd[1:] - usd[:-1])


def _quotients(rise: FloatArray, spend: FloatArray) -> FloatArray:
    falling = np.full(len(spend), -_INFINITE)
    np.divide(-rise, spend, out=falling, where=spend > rise * _LEAST_QUOTIENT)
    return falling


def _on_hull(usd: FloatArray, gain: FloatArray, falling: FloatArray, bends: list[int]) -> NDArray[np.bool]:
    """Return True for the points on the envelope.

    Parameters
    ----------
    usd, gain, falling : ndarray
        Points of rising cost and reward, and the slopes from each to the next.
    bends : list of int
        The points at which the slope does not fall: the points between two of them are appended without a look.
    """
    at, last = bends[0] + 1, len(usd) - 1  # all points before lie on the envelope so far: they are left out at once
    slope_to = _quotients(gain[at] - gain[:at], usd[at] - usd[:at])
    below = (falling[: at - 1] < slope_to[1:]).nonzero()[0]
    top = int(below[-1]) + 1 if len(below) else 0
    on_hull = np.ones(len(usd), dtype=bool)
    on_hull[top + 1 : at] = False
    # and of the points up to the next bend those before the first one from which the slope falls
    end = bends[1] if len(bends) > 1 else last
    slope_to = _quotients(gain[at : end + 1] - gain[top], usd[at : end + 1] - usd[top])
    falls = (slope_to[:-1] < falling[at:end]).nonzero()[0]
    further = int(falls[0]) if len(falls) else end - at
    if top and (slope_to[: further + 1] <= falling[top - 1]).any():  # unless `top` goes as well
        further = 0
    on_hull[at : at + further] = False
    at, slope = at + further, float(slope_to[further])
    if at < last and (len(bends) > 1 or slope >= falling[at]):
        before = [*range(top + 1), at], [*falling[:top].tolist(), slope]
        on_hull[_below(usd.tolist(), gain.tolist(), falling.tolist(), bends[1:], *before)] = False
    return on_hull


def _below(
    usd: list[float], gain: list[float], falling: list[float], bends: list[int], points: list[int], slopes: list[float]
) -> list[int]:
    """Return further points below the envelope, after its first points and the slopes between these."""
    at, last, removed = points[-1], len(usd) - 1, list[int]()
    ends = iter([*bends, last])
    end = next(ends)
    while at < last:
        if not slopes or slopes[-1] < falling[at]:
            while end <= at:
                end = next(ends)
            points += range(at + 1, end + 1)
            slopes += falling[at:end]
            at = end
            continue
        at += 1
        x, y = usd[at], gain[at]
        while True:
            removed.append(points.pop())
            slopes.pop()
            spend, rise = x - usd[points[-1]], y - gain[points[-1]]
            slope = -rise / spend if spend > rise * _LEAST_QUOTIENT else -_INFINITE
            if not slopes or slopes[-1] < slope:
                break
        points.append(at)
        slopes.append(slope)
    return removed
