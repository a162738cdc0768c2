"""The windows of an SQLite store and the leases on them, inside a transaction of the caller."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from wiserouter.budgets.ledger import ROUNDING
from wiserouter.stores.engines.base import WindowState
from wiserouter.stores.engines.counts import NOWHERE, Counts, lease_counts
from wiserouter.stores.engines.events import COUNTERS, WindowOpening
from wiserouter.stores.engines.sqlite_schema import ADD_COUNTS, BEGIN_WINDOW, LEFT_USD


class WindowTables:
    """The tables of windows and leases.

    Parameters
    ----------
    cursor : sqlite3.Cursor
        Inside an open transaction.
    now_s : float, seconds since 1970
        The time.
    """

    def __init__(self, cursor: sqlite3.Cursor, now_s: float) -> None:
        self._cursor, self._now_s = cursor, now_s

    def _begin(self, window: WindowOpening) -> bool:
        """Insert a window and return True; one that is there, as where the clock was set back, is only kept again."""
        self._do("UPDATE windows SET ttl_s = NULL, until_s = NULL WHERE id = ?", window.id)
        begins = [window.counters.get(name, 0.0) for name in COUNTERS]
        terms = window.amount_usd, window.hard, window.rollover, window.carried_usd
        return self._cursor.execute(BEGIN_WINDOW, (window.id, *terms, *begins)).rowcount > 0

    def _end(self, window: str, ttl_s: float) -> None:
        """Keep a window that has ended for so long after the last of its calls."""
        until = "iif(in_flight = 0, ?, NULL)"
        self._do(f"UPDATE windows SET ttl_s = ?, until_s = {until} WHERE id = ?", ttl_s, self._now_s + ttl_s, window)  # noqa: S608

    def _exists(self, window: str) -> bool:
        return self._one("SELECT 1 FROM windows WHERE id = ?", window) is not None

    def _window(self, window: str) -> WindowState:
        names = f"amount_usd, carried_usd, {', '.join(COUNTERS)}"
        row = self._one(f"SELECT {names} FROM windows WHERE id = ?", window)  # noqa: S608
        if row is None:
            raise sqlite3.DatabaseError(f"an account names the window {window!r}, which does not exist")
        return WindowState(window, row[0], row[1], dict(zip(COUNTERS, row[2:], strict=True)))

    def _rooms(self, windows: Iterable[str]) -> list[tuple[float, bool, float, bool]]:
        """Return for each window the amount left, if its limit is hard, the rounding tolerance, and if it is closed."""
        ask = f"SELECT {LEFT_USD}, hard, amount_usd, closed_until_s FROM windows WHERE id = ?"  # noqa: S608
        rows = [self._one(ask, window) for window in windows]
        return [(row[0], bool(row[1]), ROUNDING * row[2], row[3] > self._now_s) for row in rows if row is not None]

    def _admits(self, windows: tuple[str, ...], held_usd: float) -> str:
        rooms = self._rooms(windows)
        if len(rooms) < len(windows):
            return "unknown"
        if held_usd > 0.0 and any(closed for _, _, _, closed in rooms):
            return "closed"
        fits = all(held_usd <= left_usd + rounding_usd for left_usd, hard, rounding_usd, _ in rooms if hard)
        return "ok" if fits else "refused"

    def _is_hard(self, windows: Iterable[str]) -> bool:
        """Return True if the limit of any of these windows is hard."""
        return any(hard for _, hard, _, _ in self._rooms(windows))

    def _count(self, windows: Iterable[str], before: Counts, after: Counts) -> None:
        """Subtract the counters `before` of a call from its windows, and add those `after`."""
        change = {name: new - old for name, new, old in zip(COUNTERS, after, before, strict=True)}
        for window in windows:
            self._cursor.execute(ADD_COUNTS, {**change, "window": window, "now_s": self._now_s})
            self._carry_over(window)

    def _carry_over(self, window: str) -> None:
        """Pass on to the later windows the amount that this one leaves."""
        while True:
            row = self._one(f"SELECT rollover, heir, {LEFT_USD}, skipped FROM windows WHERE id = ?", window)  # noqa: S608
            if row is None or not row[0] or row[1] is None:
                return
            _, window, left_usd, skipped = row
            self._do(
                "UPDATE windows SET carried_usd = min(? + ? * amount_usd, amount_usd) WHERE id = ?",
                left_usd,
                skipped,
                window,
            )

    def _take(self, lease: str, held_usd: float) -> None:
        """Take the cost of a call from a lease, as far as the lease goes."""
        row = self._one("SELECT windows, held_usd, presumed FROM leases WHERE id = ?", lease)
        if row is not None:
            taken_usd = min(held_usd, row[1])
            self._count(json.loads(row[0]), lease_counts(taken_usd, presumed=bool(row[2])), NOWHERE)
            self._do("UPDATE leases SET held_usd = held_usd - ? WHERE id = ?", taken_usd, lease)

    def _return_lease(self, lease: str) -> None:
        self._take(lease, float("inf"))
        self._do("DELETE FROM leases WHERE id = ?", lease)

    def _do(self, statement: str, *values: object) -> None:
        self._cursor.execute(statement, values)

    def _one(self, statement: str, *values: object) -> Any:
        return self._cursor.execute(statement, values).fetchone()

    def _all(self, statement: str, *values: object) -> list[Any]:
        return self._cursor.execute(statement, values).fetchall()
