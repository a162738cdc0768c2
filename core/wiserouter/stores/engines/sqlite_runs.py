"""The conversations of an SQLite store and the caps of its runs, inside a transaction of the caller."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from wiserouter.budgets.ledger import ROUNDING
from wiserouter.budgets.run_caps import RunCap
from wiserouter.stores.engines.base import CapState
from wiserouter.stores.engines.events import (
    COUNTERS,
    EndConversation,
    FindConversation,
    KeepConversation,
    Reserve,
    WindowOpening,
)
from wiserouter.stores.engines.sqlite_accounts import AccountTables
from wiserouter.stores.engines.sqlite_texts import text_of

MAX_FORGOTTEN_PER_TRANSACTION = 100
"""The most rows of each kind that one transaction presumes, returns or deletes."""


class RunTables(AccountTables):
    """The table of conversations, and the windows that are caps of runs.

    Parameters
    ----------
    cursor, now_s
        As of `WindowTables`.
    max_conversations : int
        Beyond this many, the conversations kept longest ago are forgotten, as are the caps.
    """

    def __init__(self, cursor: sqlite3.Cursor, now_s: float, max_conversations: int) -> None:
        super().__init__(cursor, now_s)
        self._max_conversations = max_conversations

    def cap(self, key: str) -> CapState | None:
        """Return the state of a cap; None where it is not open."""
        names = f"amount_usd, hard, {', '.join(COUNTERS)}"
        open_now = "cap = ? AND (until_s IS NULL OR until_s > ?)"
        row = self._one(f"SELECT {names} FROM windows WHERE {open_now}", key, self._now_s)  # noqa: S608
        return None if row is None else CapState(row[0], bool(row[1]), dict(zip(COUNTERS, row[2:], strict=True)))

    def _forget_expired(self) -> None:
        """Forget conversations, caps and ended windows whose time has run out."""
        expired = "SELECT key, scopes, committed_usd FROM conversations WHERE until_s <= ? LIMIT ?"
        self._forget(self._all(expired, self._now_s, MAX_FORGOTTEN_PER_TRANSACTION))
        windows = "SELECT id FROM windows WHERE until_s <= ? LIMIT ?"
        self._forget_windows(self._all(windows, self._now_s, MAX_FORGOTTEN_PER_TRANSACTION))

    def _find_conversation(self, event: FindConversation) -> str | None:
        row = self._one("SELECT text FROM conversations WHERE key = ? AND until_s > ?", event.key, self._now_s)
        return None if row is None else text_of(row[0])

    def _keep_conversation(self, event: KeepConversation) -> str:
        former = "SELECT key, scopes, committed_usd, version, until_s, token FROM conversations WHERE key = ?"
        row = self._one(former, event.key)
        version = 0 if row is None or row[4] <= self._now_s else row[3]
        if version and row[5] == event.token:
            return "ok"
        if version != event.version:
            return "other"
        if row is not None:
            self._forget([row[:3]])
        scopes = self._commit(event.scopes, event.committed_usd, 1) if event.committed_usd > 0.0 else []
        self._do(
            "INSERT INTO conversations (key, version, text, token, until_s, scopes, committed_usd) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            event.key,
            event.version + 1,
            event.text,
            event.token,
            self._now_s + event.ttl_s,
            json.dumps(scopes),
            event.committed_usd,
        )
        excess = self._resize("conversations", 1) - self._max_conversations
        if excess > 0:
            oldest = "SELECT key, scopes, committed_usd FROM conversations ORDER BY kept LIMIT ?"
            self._forget(self._all(oldest, min(excess, MAX_FORGOTTEN_PER_TRANSACTION)))
        return "ok"

    def _end_conversation(self, event: EndConversation) -> str:
        self._forget(self._all("SELECT key, scopes, committed_usd FROM conversations WHERE key = ?", event.key))
        self._forget_windows(self._all("SELECT id FROM windows WHERE cap = ? AND in_flight = 0", event.key))
        return "ok"

    def _caps_admit(self, event: Reserve) -> bool:
        """Return True if every cap of a call admits it."""
        for cap in event.caps:
            kept = self.cap(cap[0])
            amount_usd, hard, at = (cap[1], cap[2], {}) if kept is None else kept
            held_usd = at.get("reserved_usd" if hard else "expected_usd", 0.0)
            left_usd = amount_usd - at.get("spent_usd", 0.0) - held_usd
            if (event.held_usd if hard else event.expected_usd) > left_usd + ROUNDING * amount_usd:
                return False
        return True

    def _windows_of_caps(self, event: Reserve) -> list[str]:
        """Return the windows of the caps of a call; those that are not open are opened."""
        return [self._window_of_cap(RunCap(*cap), event.id) for cap in event.caps]

    def _window_of_cap(self, cap: RunCap, decision_id: str) -> str:
        row = self._one("SELECT id, until_s FROM windows WHERE cap = ?", cap.key)
        if row is not None and (row[1] is None or row[1] > self._now_s):
            self._do("UPDATE windows SET ttl_s = ? WHERE id = ?", cap.ttl_s, row[0])
            return text_of(row[0])
        if row is not None:
            self._forget_windows([row[:1]])
        window = f"cap|{cap.key}|{decision_id}"  # another one each time that it is opened: late bills reach their own
        self._begin(WindowOpening(window, cap.amount_usd, cap.hard, rollover=False))
        self._do("UPDATE windows SET cap = ?, ttl_s = ? WHERE id = ?", cap.key, cap.ttl_s, window)
        self._resize("caps", 1)
        return window

    def _drop_idle_caps(self, most: int) -> None:
        """Drop the caps used longest ago, at most so many, where there are too many."""
        excess = self._resize("caps", 0) - self._max_conversations
        if excess > 0:
            idle = "SELECT id FROM windows WHERE until_s IS NOT NULL AND cap IS NOT NULL ORDER BY until_s LIMIT ?"
            self._forget_windows(self._all(idle, min(excess, most)))

    def _forget(self, conversations: Iterable[Any]) -> None:
        """Delete conversations, given as their key, scopes and committed amount, and take back what they commit."""
        for key, scopes, committed_usd in conversations:
            if committed_usd > 0.0:
                self._commit(json.loads(scopes), -committed_usd, -1)
            self._do("DELETE FROM conversations WHERE key = ?", key)
            self._resize("conversations", -1)

    def _forget_windows(self, windows: Iterable[Any]) -> None:
        for (window,) in windows:
            (of_run,) = self._one("SELECT cap IS NOT NULL FROM windows WHERE id = ?", window)
            self._do("DELETE FROM windows WHERE id = ?", window)
            self._resize("caps", -of_run)

    def _commit(self, scopes: Iterable[str], usd: float, runs: int) -> list[str]:
        """Add to the amounts that runs commit in the accounts of scopes, and return the scopes that have one."""
        added = "iif(committing + ? = 0, 0, committed_usd + ?)"  # leaves no rounding error
        change = f"UPDATE accounts SET committed_usd = {added}, committing = committing + ? WHERE scope = ?"  # noqa: S608
        return [scope for scope in scopes if self._cursor.execute(change, (runs, usd, runs, scope)).rowcount]

    def _resize(self, what: str, by: int) -> int:
        """Change a kept number of rows, and return it."""
        if by:
            self._do("UPDATE sizes SET size = size + ? WHERE what = ?", by, what)
        return int(self._one("SELECT size FROM sizes WHERE what = ?", what)[0])
