"""The upper concave envelope of one context: the models that some budget uses, and the steps from one to the next.

The reduction of the paper's Appendix "Solution Formulation": a model below the envelope of (cost, reward) is in no
optimum of the linear program.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wiserouter.learning.long_rows import LONG_ROW, rows_of_numbers
from wiserouter.planning.long_hull import SKIP, long_hull
from wiserouter.types import FloatArray

__all__ = ["SKIP", "ContextEnvelope", "EnvelopeStep", "context_envelope", "context_envelopes", "envelope"]

_INFINITE = float("inf")

_NOTHING = np.zeros(1)
"""Cost and reward of the null action."""


class EnvelopeStep(NamedTuple):
    """One step along the envelope of one context, from a model to the next more expensive one.

    Steps compare as a growing budget takes them: the one that buys most per USD first, at a tie the lower context's.

    Attributes
    ----------
    falling : float
        The slope, reward per USD, negated.
    context : int
        The context.
    spend_usd, gain : float
        Additional cost and reward per request of any context: both are weighted by how often the context occurs.
    to : int
        The more expensive model.
    """

    falling: float
    context: int
    spend_usd: float
    gain: float
    to: int


class ContextEnvelope(NamedTuple):
    """The envelope of one context, and the figures that it follows from, none of which is ever changed.

    Rows of more than `LONG_ROW` models are arrays of Python instead of lists.

    Attributes
    ----------
    context : int
        The context.
    hull : sequence of int
        The actions that some budget takes, from the cheapest to the best.
    falling : sequence of float
        The slopes of the steps from each of them to the next, negated: in rising order.
    spend_usd, gain : sequence of float
        Additional cost and reward of these steps, weighted by how often the context occurs.
    base_usd, base_value : float
        Spend and value of the cheapest action, weighted in the same way.
    cost_usd, reward : sequence of float
        Mean cost and mean reward of each model.
    """

    context: int
    hull: Sequence[int]
    falling: Sequence[float]
    spend_usd: Sequence[float]
    gain: Sequence[float]
    base_usd: float
    base_value: float
    cost_usd: Sequence[float]
    reward: Sequence[float]


def context_envelopes(
    freq: list[float], cost_usd: FloatArray, reward: FloatArray, *, allow_skip: bool
) -> list[ContextEnvelope]:
    """Return the envelope of each context; `freq` holds their shares of all requests."""
    rows = zip(freq, rows_of_numbers(cost_usd), rows_of_numbers(reward), strict=True)
    return [context_envelope(context, *row, allow_skip=allow_skip) for context, row in enumerate(rows)]


def context_envelope(
    context: int, weight: float, cost_usd: Sequence[float], reward: Sequence[float], *, allow_skip: bool
) -> ContextEnvelope:
    """Return the envelope of a context that makes up the share `weight` of all requests."""
    if len(cost_usd) > LONG_ROW:
        return _long_envelope(context, weight, cost_usd, reward, allow_skip=allow_skip)
    cost, gain = [*cost_usd, 0.0], [*reward, 0.0]  # index -1 is the null action
    hull, falling = _upper_hull(cost, gain, _by_cost(cost_usd, allow_skip=allow_skip))
    low = hull[0]
    spends, gains = [], []
    for a, b in pairwise(hull):
        spends.append(weight * (cost[b] - cost[a]))
        gains.append(weight * (gain[b] - gain[a]))
    return ContextEnvelope(
        context, hull, falling, spends, gains, weight * cost[low], weight * gain[low], cost_usd, reward
    )


def _long_envelope(
    context: int, weight: float, cost_usd: Sequence[float], reward: Sequence[float], *, allow_skip: bool
) -> ContextEnvelope:
    """Return the envelope of many models: the same numbers, by whole arrays."""
    cost_row, reward_row = (row if isinstance(row, array) else array("d", row) for row in (cost_usd, reward))
    cost, gain = (np.concatenate((row, _NOTHING)) for row in (cost_row, reward_row))  # index -1 is the null action
    hull, falling = long_hull(cost, gain, allow_skip=allow_skip)
    x, y = cost[hull], gain[hull]
    slopes, spends, gains = (
        array("d", one.tobytes()) for one in (falling, weight * (x[1:] - x[:-1]), weight * (y[1:] - y[:-1]))
    )
    base_usd, base_value = weight * float(x[0]), weight * float(y[0])
    models = array("q", hull.tobytes())
    return ContextEnvelope(context, models, slopes, spends, gains, base_usd, base_value, cost_row, reward_row)


def envelope(cost_usd: list[float], reward: list[float], *, allow_skip: bool = False) -> list[int]:
    """Return the models on the upper concave envelope of (cost, reward), cheapest first.

    Parameters
    ----------
    cost_usd, reward : list of float
        One number per model.
    allow_skip : bool, default False
        Whether the null action at the origin takes part.

    Returns
    -------
    list of int
        Indices with strictly rising cost and reward and falling slope; `SKIP` is the null action. Of equal models the
        first stays.

    Notes
    -----
    The monotone chain algorithm for convex hulls (Andrew 1979), on the upper left side.

    Examples
    --------
    >>> envelope([1, 2, 3, 3], [0.1, 0.2, 0.9, 0.5])
    [0, 2]
    >>> envelope([1, 2], [0.5, 0.6], allow_skip=True)
    [-1, 0, 1]
    """
    return _upper_hull([*cost_usd, 0.0], [*reward, 0.0], _by_cost(cost_usd, allow_skip=allow_skip))[0]


def _by_cost(cost_usd: Sequence[float], *, allow_skip: bool) -> list[int]:
    """Return the actions by rising cost."""
    order = sorted(range(len(cost_usd)), key=cost_usd.__getitem__)
    return [SKIP, *order] if allow_skip else order


def _upper_hull(cost_usd: list[float], reward: list[float], order: list[int]) -> tuple[list[int], list[float]]:
    """Return the models of `envelope`, and the slopes from each to the next, negated; index -1 is the null action."""
    hull: list[int] = []
    falling: list[float] = []
    last_usd, last_reward = 0.0, -_INFINITE
    for k in order:
        usd, gain = cost_usd[k], reward[k]
        if gain <= last_reward:  # costs no less and yields no more
            continue
        while hull:
            spend, rise = usd - last_usd, gain - last_reward
            slope = -rise / spend if spend > rise * 1e-300 else -_INFINITE  # where the quotient would overflow
            if spend and (not falling or falling[-1] < slope):
                falling.append(slope)
                break
            hull.pop()
            if falling:
                falling.pop()
                last_usd, last_reward = cost_usd[hull[-1]], reward[hull[-1]]
        hull.append(k)
        last_usd, last_reward = usd, gain
    return hull, falling
