"""How much the first calls of a model say about its uses: together, as much as a few.

Before the first call of a model has ended, many may have begun. All of them find connections closed, code that is not
loaded and caches that are empty, and so each says the same about later ones. The more calls run at a time, the longer
would a mean over all calls take to forget them.
"""

from __future__ import annotations

from collections import defaultdict

MOST_CALLS = 3.0
"""Number of calls that those of a model count for that began before its first one ended."""


class FirstCalls:
    """The calls of each model that began before the first one has ended.

    Examples
    --------
    >>> first = FirstCalls()
    >>> for _ in range(20):
    ...     first.begin(0)
    >>> first.weight(0, begun_s=0.0, now_s=3.0), first.weight(0, begun_s=3.0, now_s=3.1)
    (0.15, 1.0)
    """

    def __init__(self) -> None:
        self._begun: defaultdict[int, int] = defaultdict(int)
        self._ended_s: dict[int, float] = {}

    def begin(self, model: int) -> None:
        """Note that a call begins."""
        if model not in self._ended_s:
            self._begun[model] += 1

    def take_back(self, model: int) -> None:
        """Note that the latest call that begins is not sent after all."""
        if model not in self._ended_s:
            self._begun[model] -= 1

    def weight(self, model: int, *, begun_s: float, now_s: float) -> float:
        """Return the number of calls that a call counts for once it has ended."""
        ended_s = self._ended_s.setdefault(model, now_s)
        return 1.0 if begun_s >= ended_s else min(1.0, MOST_CALLS / max(self._begun[model], 1))
