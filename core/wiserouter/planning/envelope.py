"""The upper concave envelope of one context: the models that some budget uses, and the steps from one to the next.

The reduction of the paper's Appendix "Solution Formulation": a model below the envelope of (cost, reward) is in no
optimum of the linear program.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from wiserouter.learning.long_rows import kept_numbers
from wiserouter.types import FloatArray

SKIP = -1
"""Index of the null action."""

_INFINITE = float("inf")

_LEAST_QUOTIENT = 1e-300
"""A step that costs less than this part of its gain has an infinite slope: the quotient would overflow."""


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

    Means of many models are arrays of Python instead of lists, as `kept_numbers` makes them.

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
    rows = zip(freq, cost_usd.tolist(), reward.tolist(), strict=True)
    return [context_envelope(context, *row, allow_skip=allow_skip) for context, row in enumerate(rows)]


def context_envelope(
    context: int, weight: float, cost_usd: list[float], reward: list[float], *, allow_skip: bool
) -> ContextEnvelope:
    """Return the envelope of a context that makes up the share `weight` of all requests."""
    order = sorted(range(len(cost_usd)), key=cost_usd.__getitem__)
    cost, gain = [*cost_usd, 0.0], [*reward, 0.0]  # index -1 is the null action
    hull, falling = _upper_hull(cost, gain, [SKIP, *order] if allow_skip else order)
    spends, gains = [], []
    for a, b in pairwise(hull):
        spends.append(weight * (cost[b] - cost[a]))
        gains.append(weight * (gain[b] - gain[a]))
    base = weight * cost[hull[0]], weight * gain[hull[0]]
    return ContextEnvelope(context, hull, falling, spends, gains, *base, kept_numbers(cost_usd), kept_numbers(reward))


def _upper_hull(
    cost_usd: Sequence[float], reward: Sequence[float], order: Sequence[int]
) -> tuple[list[int], list[float]]:
    """Return the models on the upper concave envelope, cheapest first, and the slopes from each to the next, negated.

    Costs and rewards rise strictly, slopes fall; index -1 is the null action. Of equal models the first stays. This is
    the monotone chain algorithm for convex hulls (Andrew 1979), on the upper left side.
    """
    hull: list[int] = []
    falling: list[float] = []
    last_usd, last_reward = 0.0, -_INFINITE
    for k in order:
        usd, gain = cost_usd[k], reward[k]
        if gain <= last_reward:  # costs no less and yields no more
            continue
        while hull:
            spend, rise = usd - last_usd, gain - last_reward
            slope = -rise / spend if spend > rise * _LEAST_QUOTIENT else -_INFINITE
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
