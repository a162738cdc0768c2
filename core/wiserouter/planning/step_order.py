"""The change of one context in the order in which a growing budget takes the steps of all contexts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from wiserouter.planning.envelope import ContextEnvelope, EnvelopeStep


def with_row(steps: Sequence[EnvelopeStep], old: ContextEnvelope, new: Sequence[EnvelopeStep]) -> list[EnvelopeStep]:
    """Return the order after the steps of one context have changed: equal to sorting all steps again.

    Parameters
    ----------
    steps : sequence of EnvelopeStep
        The order before.
    old : ContextEnvelope
        The envelope of the context in `steps`.
    new : sequence of EnvelopeStep
        The steps that replace its own, by falling slope.

    Examples
    --------
    >>> from wiserouter.planning.envelope import context_envelope
    >>> old = context_envelope(0, 0.5, [1, 2], [0.0, 0.5], allow_skip=False)
    >>> steps = [EnvelopeStep(0.5, 0.5, 0.25, 0, 1), EnvelopeStep(0.4, 0.5, 0.2, 1, 1)]
    >>> [(step.slope, step.context) for step in with_row(steps, old, [EnvelopeStep(0.3, 0.5, 0.15, 0, 1)])]
    [(0.4, 1), (0.3, 0)]
    """
    others: list[EnvelopeStep] = []
    start = 0
    for slope in old.falling:
        rank = bisect_left(steps, (slope, old.context), lo=start, key=_place)
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


def _place(step: EnvelopeStep) -> tuple[float, int]:
    """Return the key of the order; no two steps share it, since slopes fall along an envelope."""
    return -step[0], step[3]
