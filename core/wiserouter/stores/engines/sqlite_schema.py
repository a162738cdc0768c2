"""The tables of an SQLite store, the statements that bring those of older versions up to date, and parts of queries."""

from __future__ import annotations

from wiserouter.stores.engines.events import COUNTERS

SCHEMA_VERSION = 3

SCHEMA = f"""
CREATE TABLE accounts (
    scope TEXT PRIMARY KEY, generation INTEGER, terms TEXT, windows TEXT, restored TEXT DEFAULT ''
);
CREATE TABLE windows (
    id TEXT PRIMARY KEY, amount_usd REAL, hard INTEGER, rollover INTEGER,
    carried_usd REAL, heir TEXT, skipped INTEGER, closed_until_s REAL DEFAULT 0,
    {", ".join(f"{name} REAL" for name in COUNTERS)}
) WITHOUT ROWID;
CREATE TABLE decisions (
    id TEXT PRIMARY KEY, windows TEXT, held_usd REAL, expected_usd REAL, paper INTEGER, record TEXT,
    state TEXT, model INTEGER, cost_usd REAL, debit_usd REAL, reward REAL, due_s REAL, forget_s REAL
) WITHOUT ROWID;
CREATE INDEX in_flight ON decisions (due_s) WHERE state = 'in flight';
CREATE INDEX decisions_to_forget ON decisions (forget_s);
CREATE TABLE aliases (alias TEXT PRIMARY KEY, decision TEXT, forget_s REAL) WITHOUT ROWID;
CREATE INDEX aliases_to_forget ON aliases (forget_s);
CREATE TABLE tokens (token TEXT PRIMARY KEY, result TEXT, forget_s REAL) WITHOUT ROWID;
CREATE INDEX tokens_to_forget ON tokens (forget_s);
CREATE TABLE leases (id TEXT PRIMARY KEY, windows TEXT, held_usd REAL, due_s REAL, presumed INTEGER);
CREATE TABLE restored (scope TEXT PRIMARY KEY, as_of_s REAL, view TEXT);
CREATE TABLE sums (sums TEXT, cell TEXT, total REAL, PRIMARY KEY (sums, cell)) WITHOUT ROWID;
CREATE TABLE learned (worker TEXT, sums TEXT, sequence INTEGER, PRIMARY KEY (worker, sums)) WITHOUT ROWID;
CREATE TABLE notes (name TEXT PRIMARY KEY, note TEXT);
"""

MIGRATIONS: dict[int, str] = {
    1: """
    ALTER TABLE windows RENAME COLUMN expired TO presumed;
    ALTER TABLE windows ADD COLUMN presumed_usd REAL DEFAULT 0;
    ALTER TABLE leases ADD COLUMN presumed INTEGER DEFAULT 0;
    UPDATE decisions SET state = 'presumed', cost_usd = 0, debit_usd = 0 WHERE state = 'expired'
    """,
    2: """
    ALTER TABLE accounts ADD COLUMN restored TEXT DEFAULT '';
    ALTER TABLE windows ADD COLUMN closed_until_s REAL DEFAULT 0;
    CREATE TABLE restored (scope TEXT PRIMARY KEY, as_of_s REAL, view TEXT)
    """,
}
"""The statements that migrate each version to the next one."""

_CHANGES = ", ".join(
    f"{name} = iif(in_flight + :in_flight = 0, 0, {name} + :{name})"  # leaves no rounding error
    if name in {"reserved_usd", "expected_usd"}
    else f"{name} = {name} + :{name}"
    for name in COUNTERS
)
ADD_COUNTS = f"UPDATE windows SET {_CHANGES} WHERE id = :window"  # noqa: S608
_OPENED = f"id, amount_usd, hard, rollover, carried_usd, {', '.join(COUNTERS)}"
BEGIN_WINDOW = f"INSERT OR IGNORE INTO windows ({_OPENED}, skipped) VALUES (?, ?, ?, ?, ?{', ?' * len(COUNTERS)}, 0)"  # noqa: S608
CALL_COLUMNS = "id, windows, held_usd, expected_usd, paper, state, cost_usd, debit_usd"
LEFT_USD = "amount_usd + carried_usd - spent_usd - reserved_usd - leased_usd"
