"""The effect of each event on the tables of an SQLite store, inside a transaction of the caller."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, cast

from wiserouter.learning.source_scores import HUMAN
from wiserouter.stores.engines.acknowledgements import KEPT_S, Acknowledge, acknowledged_s
from wiserouter.stores.engines.base import Found
from wiserouter.stores.engines.changes import Change
from wiserouter.stores.engines.counts import NOWHERE, CountedCall, counters, lease_counts
from wiserouter.stores.engines.events import (
    Alias,
    Amend,
    EndConversation,
    Event,
    Find,
    FindConversation,
    KeepConversation,
    Learn,
    Lease,
    Note,
    Open,
    Renew,
    Reserve,
    Restore,
    Score,
    Settle,
    Spend,
)
from wiserouter.stores.engines.sqlite_runs import MAX_FORGOTTEN_PER_TRANSACTION, RunTables
from wiserouter.stores.engines.sqlite_schema import CALL_COLUMNS, IS_ANYTHING_DUE
from wiserouter.stores.engines.sqlite_texts import text_of
from wiserouter.stores.transitions import FINAL, Outcome

DAY_S = 86_400.0


class Transaction(RunTables):
    """A transaction that applies events and reads.

    Parameters
    ----------
    cursor : sqlite3.Cursor
        Inside an open transaction.
    now_s : float, seconds since 1970
        The time.
    reservation_ttl_s, decision_ttl_s : float, seconds
        Time after which an unsettled call is presumed, and a settled decision is deleted.
    max_conversations : int
        As of `RunTables`.
    """

    def __init__(
        self,
        cursor: sqlite3.Cursor,
        now_s: float,
        reservation_ttl_s: float,
        decision_ttl_s: float,
        max_conversations: int,
    ) -> None:
        super().__init__(cursor, now_s, max_conversations)
        self._reservation_ttl_s, self._decision_ttl_s = reservation_ttl_s, decision_ttl_s
        self.ended_ttl_s = reservation_ttl_s + decision_ttl_s

    def apply_each(self, events: Sequence[Event]) -> list[object]:
        """Apply events in order and return their results; none after one that says that data were lost."""
        results: list[object] = []
        for event in events:
            results.append(_APPLY[type(event)](self, event))
            if isinstance(event, Acknowledge) and cast("float", results[-1]) < event.received_s:
                break
        return results

    def tidy(self) -> None:
        """Presume or return overdue reservations and leases, and delete old rows."""
        if not self._cursor.execute(IS_ANYTHING_DUE, {"now_s": self._now_s}).fetchone()[0]:
            return
        calls = f"SELECT {CALL_COLUMNS} FROM decisions WHERE state = 'in flight' AND due_s <= ? LIMIT ?"  # noqa: S608
        for call in self._overdue(calls):
            self._finish(_call(call), "presumed")
        for lease in self._overdue("SELECT id, windows, held_usd, presumed FROM leases WHERE due_s <= ? LIMIT ?"):
            self._end_lease(*lease)
        for table, key in (("decisions", "id"), ("aliases", "alias"), ("tokens", "token")):
            old = f"SELECT {key} FROM {table} WHERE forget_s <= ? LIMIT ?"  # noqa: S608
            self._do(f"DELETE FROM {table} WHERE {key} IN ({old})", self._now_s, MAX_FORGOTTEN_PER_TRANSACTION)  # noqa: S608
        self._forget_expired()

    def sums(self, name: str) -> dict[str, float]:
        """Return shared sums."""
        rows = self._all("SELECT cell, total FROM sums WHERE sums = ?", name)
        return {text_of(cell): total for cell, total in rows}

    def note(self, name: str) -> str | None:
        """Return the text kept under a name."""
        row = self._one("SELECT note FROM notes WHERE name = ?", name)
        return None if row is None else text_of(row[0])

    def _acknowledge(self, event: Acknowledge) -> float:
        token = json.dumps(["Acknowledge", event.worker])
        row = self._one("SELECT result FROM tokens WHERE token = ?", token)
        believed_s = event.received_s if self._now_s - event.received_s >= KEPT_S else 0.0
        known_s = believed_s if row is None else float(row[0])
        if known_s >= event.received_s:
            at_s = acknowledged_s(known_s, self._now_s)
            self._do("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?)", token, repr(at_s), at_s + KEPT_S)
        return known_s

    def _reserve(self, event: Reserve) -> str:
        found = self._one(f"SELECT {CALL_COLUMNS} FROM decisions WHERE id = ?", event.id)  # noqa: S608
        if found is not None:
            call = _call(found)
            if not self._is_stranded(call):
                return "ok"
            self._count(call.windows, call.counts(), NOWHERE)
            self._do("DELETE FROM decisions WHERE id = ?", event.id)
        if event.admitted:
            event = event._replace(windows=tuple(filter(self._exists, event.windows)) or event.windows)
        answer = self._admits(event.windows, float("-inf") if event.lease is not None else event.held_usd)
        if answer != "ok":
            return answer
        if event.caps and not event.admitted and not self._caps_admit(event):
            return "capped"
        if event.lease is not None:
            self._take(event.lease, event.held_usd)
        windows = (*event.windows, *self._windows_of_caps(event)) if event.caps else event.windows
        held = event.held_usd, event.expected_usd
        call = CountedCall(event.id, windows, *held, event.paper, "in flight", counted=int(event.counts))
        self._count(windows, NOWHERE, call.counts())
        self._insert(event, windows)
        if event.caps:
            self._drop_idle_caps(2 * len(event.caps))
        return "ok"

    def _insert(self, event: Reserve, windows: tuple[str, ...]) -> None:
        """Insert the row of a decision in flight."""
        due_s = self._now_s + self._reservation_ttl_s
        self._do(
            "INSERT INTO decisions (id, windows, held_usd, expected_usd, paper, record, state, due_s, forget_s, "
            "counted) VALUES (?, ?, ?, ?, ?, ?, 'in flight', ?, ?, ?)",
            event.id,
            json.dumps(windows),
            event.held_usd,
            event.expected_usd,
            event.paper,
            event.record,
            due_s,
            due_s + self._decision_ttl_s,
            event.counts,
        )

    def _settle(self, event: Settle) -> str:
        found = self._one(f"SELECT {CALL_COLUMNS} FROM decisions WHERE id = ?", event.id)  # noqa: S608
        if found is None:
            return "unknown"
        call, first = _call(found), self._first_result(event)
        if self._is_stranded(call):
            return "unknown"
        if first is not None:
            return str(first[0])
        if call.state in FINAL[event.to]:
            return "again"
        self._finish(call, event.to, event.cost_usd, event.model)
        self._remember(event, call.state)
        return call.state

    def _is_stranded(self, call: CountedCall) -> bool:
        """Return True if a call is in flight, and a window that it counts in is gone."""
        return call.state == "in flight" and not all(map(self._exists, call.windows))

    def _finish(self, call: CountedCall, to: Outcome, cost_usd: float = 0.0, model: str | None = None) -> None:
        """Change the state of a call, in its windows and in its row."""
        if to == "presumed":
            cost_usd = call.held_usd if self._is_hard(call.windows) else call.expected_usd
        after = call.with_outcome(to, cost_usd)
        self._count(call.windows, call.counts(), after.counts())
        self._do(
            "UPDATE decisions SET state = ?, cost_usd = ?, debit_usd = ?, model = coalesce(?, model), forget_s = ? "
            "WHERE id = ?",
            to,
            after.cost_usd,
            after.debit_usd,
            model,
            self._now_s + self._decision_ttl_s,
            call.id,
        )

    def _score(self, event: Score) -> str | dict[str, str]:
        row = self._one("SELECT state, reward, scores FROM decisions WHERE id = ?", event.id)
        if row is None:
            return "unknown"
        first = self._first_result(event)
        if first is not None:
            return cast("dict[str, str]", first[0])
        state, reward, text = row
        if state == "released":
            return "released"
        before = _scores(reward, text)
        after = json.dumps({**before, event.source: event.text})
        self._do("UPDATE decisions SET scores = ? WHERE id = ?", after, event.id)
        self._remember(event, before)
        return before

    def _spend(self, event: Spend) -> str:
        if self._first_result(event) is not None:
            return "ok"
        asks = event.cost_usd > 0.0 and not event.billed
        answer = self._admits(event.windows, event.cost_usd if asks else float("-inf"))
        if answer == "ok":
            spent = counters(spent_usd=event.cost_usd, debited_usd=event.cost_usd)
            self._count(event.windows, NOWHERE, spent)
            self._remember(event, "ok")
        return answer

    def _lease(self, event: Lease) -> float:
        row = self._one("SELECT windows, presumed, held_usd FROM leases WHERE id = ?", event.id)
        windows = json.dumps(event.windows)
        runs = row is not None and row[0] == windows and not row[1]
        if row is not None and (not runs or event.ttl_s <= 0.0):
            self._return_lease(event.id)
        rooms = self._rooms(event.windows)
        if event.ttl_s <= 0.0 or len(rooms) < len(event.windows):
            return 0.0
        held_usd = row[2] if runs else 0.0
        more_usd = event.held_usd - held_usd
        if more_usd > 0.0:
            more_usd = min([more_usd, *[0.0 if closed else max(left_usd, 0.0) for left_usd, _, _, closed in rooms]])
        self._count(event.windows, NOWHERE, lease_counts(more_usd, presumed=False))
        due_s = self._now_s + event.ttl_s
        self._do("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, 0)", event.id, windows, held_usd + more_usd, due_s)
        return float(held_usd + more_usd)

    def _find(self, event: Find) -> Found | None:
        named = "id = ? OR id = (SELECT decision FROM aliases WHERE alias = ?)"
        ask = f"SELECT id, record, state, model, cost_usd, reward, scores, windows FROM decisions WHERE {named} LIMIT 1"  # noqa: S608
        row = self._one(ask, event.id, event.id)
        if row is None:
            return None
        id_, record, state, model, cost_usd, reward, scores, windows = row
        answered = None if model is None else str(model)
        kept = answered, cost_usd, _scores(reward, scores), tuple(json.loads(windows))
        return Found(text_of(id_), text_of(record), state, *kept)

    def _alias(self, event: Alias) -> str:
        forget_s = self._now_s + self._reservation_ttl_s + self._decision_ttl_s
        self._do("INSERT OR REPLACE INTO aliases VALUES (?, ?, ?)", event.alias, event.id, forget_s)
        return "ok"

    def _learn(self, event: Learn) -> str:
        last = self._one("SELECT sequence FROM learned WHERE worker = ? AND sums = ?", event.worker, event.sums)
        if last is None or event.sequence > last[0]:
            self._cursor.executemany(
                "INSERT INTO sums VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET total = total + excluded.total",
                [(event.sums, cell, delta) for cell, delta in event.deltas.items()],
            )
            self._do("INSERT OR REPLACE INTO learned VALUES (?, ?, ?)", event.worker, event.sums, event.sequence)
            if last is None and event.days_kept is not None and event.sums.count("@") == 1:  # once a day and worker
                self._forget_days(event.sums.partition("@")[0], event.days_kept)
        return "ok"

    def _forget_days(self, name: str, days_kept: int) -> None:
        """Forget the sums of a name whose day is too old; days have five digits, so that they are in order."""
        oldest = f"{name}@{int(self._now_s // DAY_S) - days_kept:05}"
        for table in ("sums", "learned"):
            self._do(f"DELETE FROM {table} WHERE sums >= ? AND sums < ?", f"{name}@", oldest)  # noqa: S608

    def _keep(self, event: Note) -> str:
        if event.former is not None and event.former != (self.note(event.name) or ""):
            return "other"
        self._do("INSERT OR REPLACE INTO notes VALUES (?, ?)", event.name, event.text)
        return "ok"

    def _end_lease(self, lease: str, windows: str, held_usd: float, presumed: int) -> None:
        """Presume the rest of an overdue lease under a hard limit and return it otherwise; forget a presumed one."""
        if presumed:
            self._do("DELETE FROM leases WHERE id = ?", lease)
        elif held_usd > 0.0 and self._is_hard(names := json.loads(windows)):
            self._count(names, lease_counts(held_usd, presumed=False), lease_counts(held_usd, presumed=True))
            forget_s = self._now_s + self._decision_ttl_s
            self._do("UPDATE leases SET presumed = 1, due_s = ? WHERE id = ?", forget_s, lease)
        else:
            self._return_lease(lease)

    def _first_result(self, event: Settle | Score | Spend) -> list[object] | None:
        """Return the result of an event that was delivered before, in a list; None for a new one."""
        row = self._one("SELECT result FROM tokens WHERE token = ?", _token(event))
        return None if row is None else cast("list[object]", json.loads(row[0]))

    def _remember(self, event: Settle | Score | Spend, result: object) -> None:
        forget_s = self._now_s + self._decision_ttl_s
        self._do("INSERT INTO tokens VALUES (?, ?, ?)", _token(event), json.dumps([result]), forget_s)

    def _overdue(self, statement: str) -> list[Any]:
        return self._all(statement, self._now_s, MAX_FORGOTTEN_PER_TRANSACTION)


_APPLY: dict[type, Callable[[Transaction, Any], object]] = {
    Acknowledge: Transaction._acknowledge,
    Open: Transaction._open,
    Restore: Transaction._restore,
    Amend: Transaction._amend,
    Change: Transaction._change,
    Renew: Transaction._renew,
    Reserve: Transaction._reserve,
    Settle: Transaction._settle,
    Score: Transaction._score,
    Spend: Transaction._spend,
    Lease: Transaction._lease,
    Find: Transaction._find,
    Alias: Transaction._alias,
    Learn: Transaction._learn,
    Note: Transaction._keep,
    FindConversation: Transaction._find_conversation,
    KeepConversation: Transaction._keep_conversation,
    EndConversation: Transaction._end_conversation,
}


def _scores(reward: float | None, text: str | None) -> dict[str, str]:
    """Return the scores of a call by source; earlier versions kept one reward, in a column of its own."""
    if text is not None:
        return cast("dict[str, str]", json.loads(text))
    return {} if reward is None else {HUMAN: repr(reward)}


def _token(event: Settle | Score | Spend) -> str:
    return json.dumps([type(event).__name__, "" if isinstance(event, Spend) else event.id, event.token])


def _call(found: tuple[Any, ...]) -> CountedCall:
    """Return the call of a row with the columns `CALL_COLUMNS`."""
    name, windows, *rest = found
    return CountedCall(name, tuple(json.loads(windows)), *rest)
