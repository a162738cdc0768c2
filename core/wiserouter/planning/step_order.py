"""The change of one context in the order in which a growing budget takes the steps of all contexts."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from wiserouter.planning.envelope import ContextEnvelope, EnvelopeStep


def with_row(steps: Sequence[EnvelopeStep], old: ContextEnvelope, new: Iterable[EnvelopeStep]) -> list[EnvelopeStep]:
    """Return the order once `new` steps replace those of the `old` envelope: equal to sorting all steps again.

    Examples
    --------
    >>> from wiserouter.planning.envelope import context_envelope
    >>> old = context_envelope(0, 0.5, [1, 2], [0.0, 0.5], allow_skip=False)
    >>> steps = [EnvelopeStep(-0.5, 0, 0.5, 0.25, 1), EnvelopeStep(-0.4, 1, 0.5, 0.2, 1)]
    >>> [(step.falling, step.context) for step in with_row(steps, old, [EnvelopeStep(-0.3, 0, 0.5, 0.15, 1)])]
    [(-0.4, 1), (-0.3, 0)]
    """
    ordered: list[EnvelopeStep] = []
    start = 0
    for falling in old.falling:
        rank = bisect_left(steps, (falling, old.context), lo=start)
        ordered += steps[start:rank]
        start = rank + 1
    ordered += steps[start:]
    for step in new:
        insort(ordered, step)
    return ordered
