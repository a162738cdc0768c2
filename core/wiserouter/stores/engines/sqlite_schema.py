"""The tables of an SQLite store, the statements that bring those of older versions up to date, and parts of queries."""

from __future__ import annotations

from wiserouter.stores.engines.events import COUNTERS

SCHEMA_VERSION = 5

_OF_CAPS = """
CREATE UNIQUE INDEX windows_of_caps ON windows (cap) WHERE cap IS NOT NULL;
CREATE INDEX caps_to_forget ON windows (until_s) WHERE until_s IS NOT NULL;
"""
_CONVERSATIONS = """
CREATE TABLE conversations (
    kept INTEGER PRIMARY KEY, key TEXT UNIQUE, version INTEGER, text TEXT, token TEXT, until_s REAL,
    scopes TEXT, committed_usd REAL
);
CREATE INDEX conversations_to_forget ON conversations (until_s);
CREATE TABLE sizes (what TEXT PRIMARY KEY, size INTEGER);
INSERT INTO sizes VALUES ('conversations', 0), ('caps', 0)
"""

SCHEMA = f"""
CREATE TABLE accounts (
    scope TEXT PRIMARY KEY, generation INTEGER, terms TEXT, windows TEXT, restored TEXT DEFAULT '',
    committed_usd REAL DEFAULT 0, committing INTEGER DEFAULT 0
);
CREATE TABLE windows (
    id TEXT PRIMARY KEY, amount_usd REAL, hard INTEGER, rollover INTEGER,
    carried_usd REAL, heir TEXT, skipped INTEGER, closed_until_s REAL DEFAULT 0,
    {", ".join(f"{name} REAL" for name in COUNTERS)},
    cap TEXT, ttl_s REAL, until_s REAL
) WITHOUT ROWID;
{_OF_CAPS}
CREATE TABLE decisions (
    id TEXT PRIMARY KEY, windows TEXT, held_usd REAL, expected_usd REAL, paper INTEGER, record TEXT,
    state TEXT, model INTEGER, cost_usd REAL, debit_usd REAL, reward REAL, due_s REAL, forget_s REAL,
    counted INTEGER DEFAULT 1, scores TEXT
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
{_CONVERSATIONS}
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
    3: f"""
    ALTER TABLE accounts ADD COLUMN committed_usd REAL DEFAULT 0;
    ALTER TABLE accounts ADD COLUMN committing INTEGER DEFAULT 0;
    ALTER TABLE windows ADD COLUMN continuing REAL DEFAULT 0;
    ALTER TABLE windows ADD COLUMN cap TEXT;
    ALTER TABLE windows ADD COLUMN ttl_s REAL;
    ALTER TABLE windows ADD COLUMN until_s REAL;
    ALTER TABLE decisions ADD COLUMN counted INTEGER DEFAULT 1;
    {_OF_CAPS}{_CONVERSATIONS}
    """,
    4: "ALTER TABLE decisions ADD COLUMN scores TEXT",
}
"""The statements that migrate each version to the next one."""

_CHANGES = ", ".join(
    f"{name} = iif(in_flight + :in_flight = 0, 0, {name} + :{name})"  # leaves no rounding error
    if name in {"reserved_usd", "expected_usd"}
    else f"{name} = {name} + :{name}"
    for name in COUNTERS
)
_UNTIL = "until_s = iif(in_flight + :in_flight = 0, :now_s + ttl_s, NULL)"  # of a cap or an ended window
ADD_COUNTS = f"UPDATE windows SET {_CHANGES}, {_UNTIL} WHERE id = :window"  # noqa: S608
READ_ACCOUNT = "SELECT generation, terms, windows, restored, committed_usd FROM accounts WHERE scope = ?"
OPEN_ACCOUNT = """
INSERT INTO accounts (scope, generation, terms, windows, restored) VALUES (?, ?, ?, ?, ?) ON CONFLICT (scope) DO UPDATE
SET generation = excluded.generation, terms = excluded.terms, windows = excluded.windows, restored = excluded.restored
"""
_OPENED = f"id, amount_usd, hard, rollover, carried_usd, {', '.join(COUNTERS)}"
BEGIN_WINDOW = f"INSERT OR IGNORE INTO windows ({_OPENED}, skipped) VALUES (?, ?, ?, ?, ?{', ?' * len(COUNTERS)}, 0)"  # noqa: S608
CALL_COLUMNS = "id, windows, held_usd, expected_usd, paper, state, cost_usd, debit_usd, counted"
_DUE = (
    "decisions WHERE state = 'in flight' AND due_s",
    "leases WHERE due_s",
    "decisions WHERE forget_s",
    "aliases WHERE forget_s",
    "tokens WHERE forget_s",
    "conversations WHERE until_s",
    "windows WHERE until_s",
)
IS_ANYTHING_DUE = "SELECT " + " OR ".join([f"EXISTS (SELECT 1 FROM {due} <= :now_s)" for due in _DUE])  # noqa: S608
LEFT_USD = "amount_usd + carried_usd - spent_usd - reserved_usd - leased_usd"
