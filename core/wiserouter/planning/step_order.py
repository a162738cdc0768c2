"""The steps of all contexts in the order in which a growing budget takes them, and the change of one context in it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from wiserouter.planning.envelope import ContextEnvelope, EnvelopeStep


def in_order(rows: Iterable[ContextEnvelope]) -> list[EnvelopeStep]:
    """Return the steps of all contexts by falling slope; of equal slopes, that of the lower context comes first."""
    steps = [step for row in rows for step in row.steps]
    steps.sort(key=_slope, reverse=True)
    return steps


def with_row(
    steps: Sequence[EnvelopeStep], old: Sequence[EnvelopeStep], new: Sequence[EnvelopeStep]
) -> list[EnvelopeStep]:
    """Return the order after the steps of one context have changed: that of `in_order`, without sorting again.

    Parameters
    ----------
    steps : sequence of EnvelopeStep
        The order before.
    old, new : sequence of EnvelopeStep
        The steps of the context, each by falling slope: those in `steps`, and those that replace them.

    Examples
    --------
    >>> steps = [EnvelopeStep(slope, 1.0, slope, context, 1) for slope, context in ((3.0, 0), (2.0, 1), (1.0, 0))]
    >>> new = [EnvelopeStep(2.0, 1.0, 2.0, 0, 1)]
    >>> [(step.slope, step.context) for step in with_row(steps, [steps[0], steps[2]], new)]
    [(2.0, 0), (2.0, 1)]
    """
    others: list[EnvelopeStep] = []
    start = 0
    for step in old:
        rank = bisect_left(steps, _place(step), lo=start, key=_place)
        others += steps[start:rank]
        start = rank + 1
    others += steps[start:]
    merged: list[EnvelopeStep] = []
    start = 0
    for step in new:
        rank = bisect_left(others, _place(step), lo=start, key=_place)
        merged += others[start:rank]
        merged.append(step)
        start = rank
    merged += others[start:]
    return merged


def _slope(step: EnvelopeStep) -> float:
    return step[0]


def _place(step: EnvelopeStep) -> tuple[float, int]:
    """Return the key of the order; no two steps share it, since slopes fall along an envelope."""
    return -step[0], step[3]
