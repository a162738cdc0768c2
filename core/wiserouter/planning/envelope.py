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
from numpy.typing import ArrayLike, NDArray

from wiserouter.learning.long_rows import LONG_ROW, numbers
from wiserouter.types import FloatArray

SKIP = -1
"""Index of the null action."""

_INFINITE = float("inf")

_LEAST_QUOTIENT = 1e-300
"""A step that costs less than this part of its gain has an infinite slope: the quotient would overflow."""

_Models = NDArray[np.signedinteger]


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

    Means of more than `LONG_ROW` models are arrays of Python instead of lists, as are their steps if all have one.

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
    if cost_usd.shape[1] > LONG_ROW:
        many = zip(freq, cost_usd, reward, strict=True)
        return [_of_many_models(context, *row, allow_skip=allow_skip) for context, row in enumerate(many)]
    few = zip(freq, cost_usd.tolist(), reward.tolist(), strict=True)
    return [_of_few_models(context, *row, allow_skip=allow_skip) for context, row in enumerate(few)]


def context_envelope(
    context: int, weight: float, cost_usd: ArrayLike, reward: ArrayLike, *, allow_skip: bool
) -> ContextEnvelope:
    """Return the envelope of a context that makes up the share `weight` of all requests."""
    cost, gain = np.asarray(cost_usd, dtype=np.float64), np.asarray(reward, dtype=np.float64)
    if len(cost) > LONG_ROW:
        return _of_many_models(context, weight, cost, gain, allow_skip=allow_skip)
    return _of_few_models(context, weight, cost.tolist(), gain.tolist(), allow_skip=allow_skip)


def _of_few_models(
    context: int, weight: float, cost_usd: list[float], reward: list[float], *, allow_skip: bool
) -> ContextEnvelope:
    order = sorted(range(len(cost_usd)), key=cost_usd.__getitem__)
    order = [SKIP, *order] if allow_skip else order
    fields = _by_a_loop(order, weight, [*cost_usd, 0.0], [*reward, 0.0])  # index -1 is the null action
    return ContextEnvelope(context, *fields, cost_usd, reward)


_Fields = tuple[Sequence[int], Sequence[float], Sequence[float], Sequence[float], float, float]
"""Those of `ContextEnvelope` from `hull` to `base_value`."""


def _by_a_loop(order: Sequence[int], weight: float, cost: Sequence[float], gain: Sequence[float]) -> _Fields:
    """Return the fields of an envelope from actions in the order of their costs."""
    hull, falling = _upper_hull(cost, gain, order)
    low = hull[0]
    spends, gains = [], []
    for a, b in pairwise(hull):
        spends.append(weight * (cost[b] - cost[a]))
        gains.append(weight * (gain[b] - gain[a]))
    return hull, falling, spends, gains, weight * cost[low], weight * gain[low]


def _of_all(models: _Models, falling: FloatArray, weight: float, cost: FloatArray, gain: FloatArray) -> _Fields:
    """Return the same numbers where all of these actions lie on the envelope."""
    slopes, spends, gains = (
        array("d", one.tobytes()) for one in (falling, weight * np.diff(cost), weight * np.diff(gain))
    )
    return array("q", models.tobytes()), slopes, spends, gains, weight * float(cost[0]), weight * float(gain[0])


def _of_many_models(
    context: int, weight: float, cost_usd: FloatArray, reward: FloatArray, *, allow_skip: bool
) -> ContextEnvelope:
    """Return the envelope of many models: the same numbers, by a loop over those that come into question.

    Where list prices alone order the models, each lies on the envelope, and no loop is needed.
    """
    models, usd, gain = _rising(cost_usd, reward, allow_skip=allow_skip)
    means, slopes = (numbers(cost_usd), numbers(reward)), _slopes(usd, gain)
    if len(models) > LONG_ROW and (slopes[1:] > slopes[:-1]).all():
        return ContextEnvelope(context, *_of_all(models, slopes, weight, usd, gain), *means)
    order = range(len(models))
    places, falling, spends, gains, base_usd, base_value = _by_a_loop(order, weight, usd.tolist(), gain.tolist())
    hull = models[[*places]].tolist()
    return ContextEnvelope(context, hull, falling, spends, gains, base_usd, base_value, *means)


def _rising(cost_usd: FloatArray, reward: FloatArray, *, allow_skip: bool) -> tuple[_Models, FloatArray, FloatArray]:
    """Return the models that yield more than all of no higher cost, cheapest first, with their costs and rewards.

    Examples
    --------
    >>> _rising(np.array([1, 2, 3, 3]), np.array([0.1, 0.2, 0.9, 0.5]), allow_skip=False)[0].tolist()
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
    last = np.append(usd[1:] > usd[:-1], True)  # of one cost the last yields most
    return models[last], usd[last], gain[last]


def _slopes(usd: FloatArray, gain: FloatArray) -> FloatArray:
    """Return the slopes from each point to the next, negated."""
    rise, spend = np.diff(gain), np.diff(usd)
    falling = np.full(len(spend), -_INFINITE)
    np.divide(-rise, spend, out=falling, where=spend > rise * _LEAST_QUOTIENT)
    return falling


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
