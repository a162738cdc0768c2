"""The accounts of an SQLite store: opened, amended, renewed, and restored after a loss."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from wiserouter.budgets.ledger import ROUNDING
from wiserouter.stores.engines.base import AccountState
from wiserouter.stores.engines.changes import Change
from wiserouter.stores.engines.counts import NOWHERE, counters, lease_counts
from wiserouter.stores.engines.events import Amend, Open, Renew, Restore
from wiserouter.stores.engines.sqlite_schema import LEFT_USD, OPEN_ACCOUNT, READ_ACCOUNT
from wiserouter.stores.engines.sqlite_texts import text_of
from wiserouter.stores.engines.sqlite_windows import WindowTables


class AccountTables(WindowTables):
    """The tables of accounts and of the views that they were restored from.

    Attributes
    ----------
    ended_ttl_s : float, seconds
        Time after its last call for which a window that has ended is kept.
    """

    answer_ttl_s = 86_400.0
    ended_ttl_s: float

    def account(self, scope: str) -> AccountState | None:
        """Return the state of an account."""
        row = self._one(READ_ACCOUNT, scope)
        if row is None:
            return None
        windows = tuple([self._window(window) for window in json.loads(row[2])])
        return AccountState(row[0], text_of(row[1]), windows, *row[3:])

    def scopes(self) -> list[str]:
        """Return the scopes that have an account."""
        return [text_of(scope) for (scope,) in self._all("SELECT scope FROM accounts")]

    def _open(self, event: Open) -> int:
        row = self._one("SELECT generation, windows FROM accounts WHERE scope = ?", event.scope)
        if row is not None and row[0] != event.generation:
            return int(row[0])
        for former in [] if row is None else json.loads(row[1]):
            self._end(former, self.ended_ttl_s)
        for window in event.windows:
            self._begin(window)
        windows = json.dumps([window.id for window in event.windows])
        generation = event.generation + 1
        self._do(OPEN_ACCOUNT, event.scope, generation, event.terms, windows, event.token)
        return generation

    def _restore(self, event: Restore) -> int:
        row = self._one("SELECT generation, windows, restored FROM accounts WHERE scope = ?", event.scope)
        earlier: dict[str, Any] = {"held_usd": 0.0, "windows": {}}
        is_former = row is not None and event.former != "" and text_of(row[2]) == event.former
        if is_former and event.generation > row[0]:
            self._drop_windows(event.lease, json.loads(row[1]))
            self._do("UPDATE accounts SET generation = ? WHERE scope = ?", event.generation - 1, event.scope)
            row = None
        if row is None:
            is_kept = all(self._exists(window.id) for window in event.windows)
            windows = event.windows if is_kept else ()
            self._open(Open(event.scope, event.generation - 1, event.terms, windows))
            self._do("UPDATE accounts SET restored = ? WHERE scope = ?", event.token, event.scope)
            if is_kept:  # its windows have counted everything
                return event.generation
        elif is_former:
            self._do("UPDATE accounts SET restored = ? WHERE scope = ?", event.token, event.scope)
        else:
            view = self._one("SELECT as_of_s, view FROM restored WHERE scope = ?", event.scope)
            if row[0] != event.generation or view is None or view[0] >= event.as_of_s:
                return int(row[0])
            earlier = json.loads(view[1])
        self._restore_windows(event, [] if row is None else json.loads(row[1]), earlier["windows"])
        self._set_apart(event, event.held_usd - earlier["held_usd"])
        seen = {window.id: dict(window.counters) for window in event.windows}
        text = json.dumps({"held_usd": event.held_usd, "windows": {**earlier["windows"], **seen}})
        self._do("INSERT OR REPLACE INTO restored VALUES (?, ?, ?)", event.scope, event.as_of_s, text)
        return event.generation

    def _drop_windows(self, lease: str, windows: list[str]) -> None:
        """Delete the windows of an account that is replaced, with what is set apart in them."""
        self._return_lease(lease)
        for window in windows:
            self._do("DELETE FROM windows WHERE id = ?", window)

    def _restore_windows(self, event: Restore, present: list[str], earlier: Mapping[str, Mapping[str, float]]) -> None:
        """Let the windows count what the view knows beyond an earlier one; the latest of both are the account's."""
        for window in event.windows:
            self._begin(window._replace(counters={}))
            self._count([window.id], counters(**earlier.get(window.id, {})), counters(**window.counters))
            if window.id not in earlier and window.hard:
                until_s = self._now_s + event.closed_s
                self._do("UPDATE windows SET closed_until_s = ? WHERE id = ?", until_s, window.id)
        windows = [
            one if one is not None and one not in earlier else seen.id
            for one, seen in zip_longest(present, event.windows)
        ]
        self._do("UPDATE accounts SET windows = ? WHERE scope = ?", json.dumps(windows), event.scope)

    def _set_apart(self, event: Restore, more_usd: float) -> None:
        """Change the lease that stands for the calls in flight of a lost account."""
        windows = [window.id for window in event.windows]
        row = self._one("SELECT held_usd FROM leases WHERE id = ?", event.lease)
        held_usd = max(0.0, more_usd + (0.0 if row is None else row[0]))
        self._return_lease(event.lease)
        self._count(windows, NOWHERE, lease_counts(held_usd, presumed=False))
        lease = event.lease, json.dumps(windows), held_usd, self._now_s + event.ttl_s
        self._do("INSERT INTO leases VALUES (?, ?, ?, ?, 0)", *lease)

    def _amend(self, event: Amend) -> str:
        if self._one("SELECT 1 FROM accounts WHERE scope = ?", event.scope) is None:
            return "unknown"
        self._do("UPDATE accounts SET terms = ? WHERE scope = ?", event.terms, event.scope)
        self._do("UPDATE windows SET amount_usd = ? WHERE id = ?", event.amount_usd, event.window)
        return "ok"

    def _change(self, event: Change) -> str:
        token = json.dumps(["Change", event.token])
        found = self._one("SELECT result FROM tokens WHERE token = ?", token) if event.token else None
        if found is not None:
            return text_of(found[0])
        row = self._one("SELECT terms, windows FROM accounts WHERE scope = ?", event.scope)
        if row is None:
            return "unknown"
        if text_of(row[0]) != event.former or event.window not in json.loads(row[1]):
            return "other"
        refused = self._refused(event)
        if refused is not None:
            return refused
        self._do("UPDATE accounts SET terms = ? WHERE scope = ?", event.terms, event.scope)
        self._do("UPDATE windows SET amount_usd = ?, hard = ? WHERE id = ?", event.amount_usd, event.hard, event.window)
        if event.token:
            forget_s = self._now_s + self.answer_ttl_s
            self._do("INSERT INTO tokens VALUES (?, ?, ?)", token, event.answer, forget_s)
        return "ok"

    def _refused(self, event: Change) -> str | None:
        """Return why a hard limit forbids a change, if it does."""
        ask = f"SELECT hard, in_flight, amount_usd, {LEFT_USD} FROM windows WHERE id = ?"  # noqa: S608
        hard, in_flight, amount_usd, left_usd = self._one(ask, event.window)
        if not event.hard:
            return None
        if not hard and round(in_flight):
            return "busy"
        lowered = event.amount_usd < amount_usd or not hard
        left_usd += event.amount_usd - amount_usd
        return "short" if lowered and left_usd < -ROUNDING * event.amount_usd else None

    def _renew(self, event: Renew) -> str:
        row = self._one("SELECT windows FROM accounts WHERE scope = ?", event.scope)
        windows = [] if row is None else json.loads(row[0])
        if event.level < len(windows) and windows[event.level] == event.former:
            windows[event.level] = event.window.id
            created = self._begin(event.window)
            closed = "(SELECT closed_until_s FROM windows WHERE id = ?)"
            self._do(f"UPDATE windows SET closed_until_s = {closed} WHERE id = ?", event.former, event.window.id)  # noqa: S608
            self._do("UPDATE accounts SET windows = ? WHERE scope = ?", json.dumps(windows), event.scope)
            if created and event.skipped >= 0:  # so that no cycle can form
                heir, skipped = event.window.id, event.skipped
                self._do("UPDATE windows SET heir = ?, skipped = ? WHERE id = ?", heir, skipped, event.former)
            if event.skipped >= 0:  # else the time of the former one is still to come
                self._end(event.former, self.ended_ttl_s)
            self._carry_over(event.former)
        return "ok"
