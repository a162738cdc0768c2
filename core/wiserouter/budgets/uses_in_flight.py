"""The expected uses of calls in flight: a slow call reports its use late, and until then a meter would miss it.

Among the calls that have ended, fast ones come first. A meter of these alone takes their savings for real, and the more
so the more calls are in flight at a time.
"""

from __future__ import annotations

from collections.abc import Mapping

from wiserouter.budgets.limits import Measure

LONGEST_S = 900.0
"""Seconds after which a call without a report is not waited for any more, as with reservations by default."""


class UsesInFlight:
    """The expected uses of the calls of one scope that have not reported theirs yet.

    Examples
    --------
    >>> flying = UsesInFlight()
    >>> flying.begin("a", {Measure("latency_s"): 2.0}, 0.0)
    >>> flying.begin("b", {Measure("latency_s"): 3.0}, 1.0)
    >>> flying.end("a")
    >>> flying.total(Measure("latency_s"))
    (3.0, 1)
    """

    def __init__(self) -> None:
        self._calls: dict[str, tuple[Mapping[Measure, float], float]] = {}
        self._sums: dict[Measure, list[float]] = {}

    def begin(self, decision_id: str, uses: Mapping[Measure, float], now_s: float) -> None:
        """Count a call, and forget those that are too old to be waited for."""
        self._calls[decision_id] = uses, now_s
        self._add(uses, 1)
        while True:
            oldest, (_, begun_s) = next(iter(self._calls.items()))
            if begun_s > now_s - LONGEST_S:
                return
            self.end(oldest)

    def end(self, decision_id: str) -> None:
        """Forget a call, which has reported its use or never will."""
        uses, _ = self._calls.pop(decision_id, ({}, 0.0))
        self._add(uses, -1)

    def total(self, measure: Measure) -> tuple[float, int]:
        """Return the expected uses of the calls in flight, and their number."""
        used, calls = self._sums.get(measure, (0.0, 0.0))
        return (max(used, 0.0), int(calls)) if calls else (0.0, 0)

    def _add(self, uses: Mapping[Measure, float], sign: int) -> None:
        for measure, use in uses.items():
            sums = self._sums.setdefault(measure, [0.0, 0.0])
            sums[0] += sign * use
            sums[1] += sign
