"""The first event of an exchange, by which an engine that has gone back to an older state is noticed."""

from __future__ import annotations

from typing import NamedTuple


class Acknowledge(NamedTuple):
    """Say which reply a worker relies on; result: the engine's time of the worker's exchange before, 0 for none.

    Where that is before `received_s`, the engine has lost its data, or has gone back to an older state of them, such as
    a snapshot: the events that follow are not applied. Otherwise the time of this exchange is kept (`acknowledged_s`).
    A worker that has exchanged nothing for longer than `KEPT_S` is believed: then `received_s` is the result.

    Attributes
    ----------
    worker : str
        The worker.
    received_s : float, seconds since 1970
        The time kept with the last reply that the worker has received, 0 for none.
    """

    worker: str
    received_s: float


KEPT_S = 7 * 86_400.0
"""Time for which the last exchange of a worker is kept."""

TICK_S = 1e-6
"""The least difference of the times kept."""


def acknowledged_s(known_s: float, now_s: float) -> float:
    """Return the time kept of an exchange: the engine's, but later than that of the one before if the clock is not."""
    return max(now_s, known_s + TICK_S)
