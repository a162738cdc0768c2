"""Conversations that a worker has served and whose end no one has reported, so that those that lapse count as ended.

Most callers never say that a conversation is over. Without the silent ends, the product-limit estimate of `calls_left`
would take every run for one in progress.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple


class OpenRun(NamedTuple):
    """The state of one conversation as this worker last saw it."""

    model: int
    calls: int
    used_s: float


class OpenRuns:
    """The open conversations in the order of their last use, bounded in number.

    Parameters
    ----------
    ttl_s : float
        Seconds after its last call at which a conversation counts as ended.
    max_runs : int, default 10000
        The most that are kept; beyond it the one unused for longest is forgotten and teaches nothing.

    Examples
    --------
    >>> runs = OpenRuns(ttl_s=60.0)
    >>> runs.touch("a", model=1, calls=3, now_s=0.0); runs.touch("b", model=0, calls=1, now_s=50.0)
    >>> runs.lapsed(now_s=61.0)
    [('a', OpenRun(model=1, calls=3, used_s=0.0))]
    """

    def __init__(self, ttl_s: float, max_runs: int = 10_000) -> None:
        self._ttl_s, self._max_runs = ttl_s, max_runs
        self._runs: OrderedDict[str, OpenRun] = OrderedDict()
        self._not_before_s = float("-inf")  # no run lapses before: the one used longest ago was seen then

    def __len__(self) -> int:
        return len(self._runs)

    def touch(self, key: str, model: int, calls: int, now_s: float) -> None:
        """Note a call of a conversation."""
        self._runs[key] = tuple.__new__(OpenRun, (model, calls, now_s))  # in half the time of a call
        self._runs.move_to_end(key)
        if len(self._runs) > self._max_runs:
            self._runs.popitem(last=False)

    def close(self, key: str) -> OpenRun | None:
        """Forget a conversation whose end is known; return its last state, or None where it is not open here."""
        return self._runs.pop(key, None)

    def lapsed(self, now_s: float) -> list[tuple[str, OpenRun]]:
        """Take out and return the conversations that no one has used for the time to live."""
        if now_s < self._not_before_s:
            return []
        found = []
        while self._runs:
            key, run = next(iter(self._runs.items()))
            if now_s - run.used_s < self._ttl_s:
                self._not_before_s = run.used_s + self._ttl_s
                break
            found.append((key, self._runs.pop(key)))
        return found
