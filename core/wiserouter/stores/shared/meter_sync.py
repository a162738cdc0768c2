"""Synchronisation of the meters of limits between the workers of a store: calls and uses by scope, window and measure.

Each worker adds its calls to sums in the store, once each, and reads what the others have added. A worker that starts
later reads the sums so far, so that the total of a month outlives the processes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple
from urllib.parse import quote

from wiserouter.stores.engines.events import Learn
from wiserouter.stores.shared.daily_sums import DailySumsPeer

_CALLS, _USED = "calls", "used"


class Metered(NamedTuple):
    """The name of a sum: its window, by the scope and the start of its budget, and the label of its measure."""

    window: str
    measure: str

    @classmethod
    def of(cls, scope: str, window_s: float, measure: str) -> Metered:
        """Return the name of the sum of a scope, in the window that started at a time."""
        return cls(f"{quote(scope, safe='')} {window_s!r}", measure)

    def cell(self, field: str) -> str:
        """Return the name of the sum in a store."""
        return f"{field}|{self.window}|{self.measure}"


class MeterSync(DailySumsPeer):
    """The calls and uses that one worker has counted, and those of the others.

    Examples
    --------
    >>> sync, month = MeterSync(), Metered.of("team-a", 1767225600.0, "energy_wh")
    >>> sync.add(month, 3.0)
    >>> sync.add(month, 1.5)
    >>> sync.total(month)
    (2, 4.5)
    """

    def __init__(self) -> None:
        super().__init__("limits")
        self._known: defaultdict[str, float] = defaultdict(float)
        self._unsent: defaultdict[str, float] = defaultdict(float)

    def add(self, of: Metered, use: float) -> None:
        """Count a call."""
        with self._lock:
            for field, value in ((_CALLS, 1.0), (_USED, use)):
                self._known[of.cell(field)] += value
                self._unsent[of.cell(field)] += value

    def total(self, of: Metered) -> tuple[int, float]:
        """Return the number of calls of all workers, and the sum of their uses."""
        with self._lock:
            for _, cells in self._sums.take_remote([of.measure]):
                for cell, value in cells.items():
                    self._known[cell] += value
            return round(self._known.get(of.cell(_CALLS), 0.0)), self._known.get(of.cell(_USED), 0.0)

    def outgoing(self, now_s: float) -> list[Learn]:
        """Return the events that add to the sums; the same ones again until `incoming` confirms their arrival."""
        with self._lock:
            unconfirmed = self._sums.sent
            if self._sums.renew_after_fork():  # the parent sends what it has counted, and this process reads it
                for cells in (self._unsent, *(learn.deltas for learn in unconfirmed)):
                    for cell, value in cells.items():
                        self._known[cell] -= value
                self._unsent.clear()
            if not self._sums.sent and self._unsent:
                self._sums.send(now_s, dict(self._unsent))
                self._unsent.clear()
            return list(self._sums.sent)
