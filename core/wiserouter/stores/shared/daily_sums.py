"""Sums in a store that several workers add to, kept by day, and by how much the others have added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from threading import Lock

from wiserouter.stores.engines.base import Reply
from wiserouter.stores.engines.events import Learn
from wiserouter.stores.ids import WorkerIdentity
from wiserouter.stores.peer import Peer

DAY_S = 86_400.0

ROUNDING = 1e-12
"""Relative change of a sum that is taken as a rounding error, not as an addition of another worker."""

MAX_AGE_DAYS = 90
"""A worker that starts reads the sums of this many days."""


class DailySums:
    """The view that one worker has of the sums; the caller holds a lock.

    Cells are named `field|place|model`; the sums of a day are named after `name` and the day.

    Parameters
    ----------
    name : str
        The name that all workers give to these sums.

    Attributes
    ----------
    sent : list of Learn
        The additions that the store has not confirmed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[Learn] = []
        self._identity, self._sequence = WorkerIdentity(), 0
        self._totals: dict[str, dict[str, float]] = {}
        self._remote: dict[str, dict[str, float]] = {}
        self._maybe_lost: dict[str, Mapping[str, float]] = {}
        self._started = False
        self._now_s = 0.0

    @property
    def is_behind(self) -> bool:
        """Whether the sums were never read."""
        return not self._started

    @property
    def has_news(self) -> bool:
        """Whether other workers have added amounts that were not taken yet."""
        return bool(self._remote)

    def renew_after_fork(self) -> bool:
        """Forget what is sent if this process was forked, since the parent sends it; return True if so."""
        forked = self._identity.renew_after_fork()
        if forked:
            self.sent = []
        return forked

    def send(self, now_s: float, deltas: Mapping[str, float]) -> None:
        """Let amounts be added to the cells of today."""
        self._sequence += 1
        self.sent = [Learn(self._of_day(now_s), self._identity.name, self._sequence, deltas)]

    def wanted(self, now_s: float) -> list[str]:
        """Return the names of the sums to read: of today and yesterday, the first time of all days."""
        self._now_s = now_s
        days = 2 if self._started else MAX_AGE_DAYS
        wanted = [self._of_day(now_s - day * DAY_S) for day in range(days)]
        return list(dict.fromkeys([*wanted, *(learn.sums for learn in self.sent)]))

    def begin_again(self, sums: Mapping[str, Mapping[str, float]]) -> None:
        """Take what the next sums have beyond `sums` as additions since a loss, where they are less than before."""
        self._maybe_lost = {name: sums.get(name, {}) for name in self._totals}

    def incoming(self, reply: Reply) -> None:
        """Take over the sums as they are after `sent`; those of other names are not these."""
        own: defaultdict[tuple[str, str], float] = defaultdict(float)
        for learn in self.sent:
            for cell, delta in learn.deltas.items():
                own[learn.sums, cell] += delta
        self.sent = []
        for name, totals in reply.sums.items():
            if name.rpartition("@")[0] != self.name:
                continue
            known = self._known(name, totals)
            for cell, total in totals.items():
                grown = total - known.get(cell, 0.0) - own[name, cell]
                if abs(grown) > ROUNDING * abs(total):
                    remote = self._remote.setdefault(name, {})
                    remote[cell] = remote.get(cell, 0.0) + grown
            self._totals[name] = dict(totals)
        self._started = True

    def _known(self, name: str, totals: Mapping[str, float]) -> Mapping[str, float]:
        """Return the sums of a name as they were read last; what a loss has left, where they are less since."""
        known = self._totals.get(name, {})
        if name in self._maybe_lost:
            since = self._maybe_lost.pop(name)
            shrunk = any(totals.get(cell, 0.0) < total - ROUNDING * abs(total) for cell, total in known.items())
            return since if shrunk else known
        return known

    def take_remote(self, models: Collection[str]) -> list[tuple[float, dict[str, float]]]:
        """Take out what other workers have added to cells of these models, with its age in seconds, the oldest first.

        The age is 0 for today and yesterday. Cells of other models stay until their model is known.
        """
        found, unknown = [], {}
        for name in sorted(self._remote, key=_day):
            cells = self._remote[name]
            known = {cell: total for cell, total in cells.items() if cell.split("|", 2)[2] in models}
            if known:
                age_s = self._now_s - (_day(name) + 0.5) * DAY_S
                found.append((age_s if age_s >= DAY_S else 0.0, known))
            if len(known) < len(cells):
                unknown[name] = {cell: total for cell, total in cells.items() if cell not in known}
        self._remote = unknown
        return found

    def _of_day(self, now_s: float) -> str:
        return f"{self.name}@{int(now_s // DAY_S)}"


class DailySumsPeer(Peer):
    """What shares sums by day with the other workers of a store.

    Parameters
    ----------
    name : str
        The name that all workers give to these sums.
    """

    def __init__(self, name: str) -> None:
        self._sums, self._lock = DailySums(name), Lock()

    @property
    def has_news(self) -> bool:
        """Whether other workers have added amounts that were not taken yet."""
        return self._sums.has_news

    def wanted(self, now_s: float) -> list[str]:
        """Return the names of the sums to read: of today and yesterday, the first time of all days."""
        return self._sums.wanted(now_s)

    def incoming(self, reply: Reply) -> None:
        """Take over the sums as they are after the events of `outgoing`."""
        with self._lock:
            self._sums.incoming(reply)

    def begin_again(self, sums: Mapping[str, Mapping[str, float]]) -> None:
        """Take what the next sums have beyond `sums` as additions since a loss of the store's data."""
        with self._lock:
            self._sums.begin_again(sums)


def _day(sums: str) -> int:
    """Return the day of sums by their name, counted from 1970."""
    return int(sums.rpartition("@")[2])
