"""How budgets were spent: readings of the accounts, taken once a minute, for the burn-down of the page.

Each worker reads the accounts as the store has them, so that all workers draw the same line from their start
on. Readings are thinned where there are many: a window has at most `MAX_READINGS`, whatever its length.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, Protocol

from wiserouter.errors import NotStarted, StoreError
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.scopes import OWN

EVERY_S = 60.0
"""Time in seconds between two readings of all accounts."""

MAX_READINGS = 240
"""Most readings of one window."""

MAX_WINDOWS = 400
"""Most windows whose readings are kept; those of the longest ago are forgotten first."""

MAX_SCOPES = 100
"""Scopes of one group that are read."""


class SpendReading(NamedTuple):
    """The spend of one window at one moment.

    Attributes
    ----------
    at_s : float, seconds since 1970
        The moment.
    spent_usd : float, USD
        The charges of the window so far.
    decided : int
        Its decisions so far.
    """

    at_s: float
    spent_usd: float
    decided: int


class WindowKey(NamedTuple):
    """One window of one budget: group and scope of the account, which of its budgets, and the start."""

    group: str
    scope: str
    which: int
    start_s: float


class _Ledger(Protocol):
    """The part of an account of the core that is read."""

    budget: Any
    opened_at: float
    window: Any
    spent_usd: float
    decided: int


class SpendHistory:
    """The readings of one worker.

    Parameters
    ----------
    clock : callable returning float, default time.time
        Seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._readings: OrderedDict[WindowKey, list[SpendReading]] = OrderedDict()
        self._lock = Lock()

    def read(self, groups: Mapping[str, Group]) -> None:
        """Read every account; one that its store does not show at present is left out."""
        for name, group in groups.items():
            for scope in (OWN, *group.scope_resolver.opened[:MAX_SCOPES]):
                self.windows(name, group, scope)

    def windows(self, name: str, group: Group, scope: str) -> list[dict[str, Any]]:
        """Read an account, and return the start, the end and the readings of each of its windows."""
        try:
            each: Iterable[_Ledger] = group.router.account(scope).each
        except (NotStarted, StoreError):
            return []
        return [self._window(WindowKey(name, scope, i, _start_s(one)), one) for i, one in enumerate(each)]

    def _window(self, key: WindowKey, ledger: _Ledger) -> dict[str, Any]:
        with self._lock:
            readings = self._note(key, SpendReading(self._clock(), ledger.spent_usd, ledger.decided))
            points = [list(one) for one in readings]
        ends_at = None if ledger.window is None else ledger.window.end_s
        return {"every": ledger.budget.every, "starts_at": key.start_s, "renews_at": ends_at, "points": points}

    def _note(self, key: WindowKey, now: SpendReading) -> list[SpendReading]:
        """Add a reading in place of the last one where nothing was spent in between, and return all of the window."""
        readings = self._readings.setdefault(key, [])
        self._readings.move_to_end(key)
        if len(self._readings) > MAX_WINDOWS:
            self._readings.popitem(last=False)
        if len(readings) > 1 and readings[-1][1:] == readings[-2][1:] == now[1:]:
            readings.pop()
        readings.append(now)
        if len(readings) > MAX_READINGS:
            readings[1:-1] = readings[2:-1:2]
        return readings


def keep_reading(history: SpendHistory, groups: Callable[[], Mapping[str, Group]]) -> None:
    """Read all accounts now and then, in a thread of its own that ends with the process."""
    Thread(target=_read_on, args=(history, groups), name="wiserouter-page", daemon=True).start()


def _read_on(history: SpendHistory, groups: Callable[[], Mapping[str, Group]]) -> None:
    pause = Event()
    while not pause.wait(EVERY_S):
        history.read(groups())


def _start_s(ledger: _Ledger) -> float:
    """Return when the spending of a window began: with the window, or later with its budget."""
    return ledger.opened_at if ledger.window is None else max(ledger.window.start_s, ledger.opened_at)
