"""The tables of an SQLite store, and the statements that bring those of older versions up to date."""

from __future__ import annotations

from wiserouter.stores.engines.events import COUNTERS

SCHEMA_VERSION = 2

SCHEMA = f"""
CREATE TABLE accounts (scope TEXT PRIMARY KEY, generation INTEGER, terms TEXT, windows TEXT);
CREATE TABLE windows (
    id TEXT PRIMARY KEY, amount_usd REAL, hard INTEGER, rollover INTEGER,
    carried_usd REAL, heir TEXT, skipped INTEGER, {", ".join(f"{name} REAL" for name in COUNTERS)}
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
    """
}
"""The statements that migrate each version to the next one."""
