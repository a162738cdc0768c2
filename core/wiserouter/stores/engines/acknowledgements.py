"""The first event of an exchange, by which an engine that has gone back to an older state is noticed."""

from __future__ import annotations

from typing import NamedTuple


class Acknowledge(NamedTuple):
    """Say which reply a worker relies on; result: the engine's time of the worker's exchange before, 0 for none.

    Where that is before `received_s`, the engine has lost its data, or has gone back to an older state of them, such as
    a snapshot: the events that follow are not applied. Otherwise the time of this exchange is kept.

    Attributes
    ----------
    worker : str
        The worker.
    received_s : float, seconds since 1970
        The engine's time in the last reply that the worker has received, 0 for none.
    """

    worker: str
    received_s: float


KEPT_S = 90 * 86_400.0
"""Time for which the last exchange of a worker is kept."""
