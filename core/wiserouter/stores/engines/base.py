"""What a shared store asks of the engine that keeps its state: to apply events, and to say how the accounts stand.

One exchange is one round trip. Its events are applied in order, in one transaction; each is applied once, however often
it is delivered. Engines hold numbers and opaque text: what a budget, a window or a decision means is known to
`SharedStore` alone.

A call counts in each of its windows by the state that it is in, so that a change of state is one subtraction and one
addition:

============ ===================================================
in flight    reserved + held, expected + expected, decided + 1, in_flight + 1
charged      spent + cost, debited + debit, decided + 1, charged + 1
released     released + 1
expired      decided + 1, expired + 1
============ ===================================================

A window has amount + carried - spent - reserved - leased left; where its limit is hard, nothing is held back beyond
that, but for a rounding of 1e-12 of the amount. Where a window rolls over, its successor carries
min(left + skipped x amount, amount), again whenever a late bill changes what was left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

COUNTERS = (
    "spent_usd",
    "debited_usd",
    "reserved_usd",
    "expected_usd",
    "decided",
    "in_flight",
    "charged",
    "released",
    "expired",
    "leased_usd",
)


class WindowOpening(NamedTuple):
    """A window of one budget, as it begins.

    Attributes
    ----------
    id : str
        Names it; the start is part of it, so that a reset cannot race.
    amount_usd : float, USD
        The budget.
    hard, rollover : bool
        Whether the limit is hard, and whether the next window has what this one leaves.
    counters : mapping of str to float
        What it begins with, where an engine has lost its memory; else zeros.
    carried_usd : float, USD
        What it carries from before, likewise.
    """

    id: str
    amount_usd: float
    hard: bool
    rollover: bool
    counters: Mapping[str, float] = MappingProxyType({})
    carried_usd: float = 0.0


class Open(NamedTuple):
    """Open an account, or take part in the one that is open; result: its generation.

    Attributes
    ----------
    scope : str
        Whose account it is.
    generation : int
        That of the account which it takes the place of, 0 for none; the new one has the next number. No change where
        there is an account of another generation.
    terms : str
        Opaque; what `AccountState.terms` returns.
    windows : tuple of WindowOpening
        The first window of each budget, the innermost first.
    """

    scope: str
    generation: int
    terms: str
    windows: tuple[WindowOpening, ...]


class Amend(NamedTuple):
    """Change the terms of an account, and the amount of a running window; result: "ok" or "unknown"."""

    scope: str
    terms: str
    window: str
    amount_usd: float


class Renew(NamedTuple):
    """Let a window take the place of `former`; no change where that is not the latest. Result: "ok".

    Attributes
    ----------
    scope : str
        Whose account it is.
    level : int
        Which of its budgets.
    former : str
        The window that has ended.
    window : WindowOpening
        The one that has begun.
    skipped : int
        Windows between them.
    """

    scope: str
    level: int
    former: str
    window: WindowOpening
    skipped: int


class Reserve(NamedTuple):
    """Hold back the cost of a call in all its windows; result: "ok", or "refused" where a hard one has no room.

    Nothing is held back twice under one id; again is "ok". Where a window is not there, the result is "unknown" and
    nothing is changed.

    Attributes
    ----------
    id : str
        The decision.
    windows : tuple of str
        Where it counts.
    held_usd, expected_usd : float, USD
        Its worst case and its expected cost.
    paper : bool
        Whether planning debits the expected cost, instead of the true one.
    record : str
        Opaque; what `Find` returns.
    lease : str or None
        The lease that the money is taken from, as far as it goes; then nothing is "refused", even if there is none.
    """

    id: str
    windows: tuple[str, ...]
    held_usd: float
    expected_usd: float
    paper: bool
    record: str
    lease: str | None = None


class Settle(NamedTuple):
    """Charge or release a call; result: the state that it was in, "unknown", or "again" where nothing changes.

    It counts in the windows of its reservation; those that are not there any more are passed over.

    A charge is "again" where the call was charged before, a release where it was charged or released before; the same
    `token` again gets the first result. A released or expired call can still be charged.

    Attributes
    ----------
    id : str
        The decision.
    to : {"charged", "released"}
        The state that it goes to.
    token : str
        Names this event.
    cost_usd : float, USD
        What a charged call cost.
    model : int or None
        The model that answered, where it is another one than was decided.
    """

    id: str
    to: Literal["charged", "released"]
    token: str
    cost_usd: float = 0.0
    model: int | None = None


class Score(NamedTuple):
    """Keep the reward of a call; result: "unknown", "released", or the reward that it replaces (None if there is none).

    The same `token` again gets the first result.
    """

    id: str
    reward: float
    token: str


class Spend(NamedTuple):
    """Count a cost that belongs to no call, which may be negative; result as of `Reserve`."""

    token: str
    windows: tuple[str, ...]
    cost_usd: float


class Lease(NamedTuple):
    """Let a worker hold `held_usd` from now on, for `ttl_s`; result: what it holds, less where there is less room.

    What is held counts as leased in `windows`, and never exceeds what is left there, be the limit hard or not. A lease
    that is not renewed for `ttl_s` comes back by itself; 0 gives it back at once. A lease of other windows is given
    back first. Where a window is not there, the worker holds nothing.
    """

    id: str
    windows: tuple[str, ...]
    held_usd: float
    ttl_s: float


class Find(NamedTuple):
    """Look a decision up, by its id or by an alias; result: `Found` or None."""

    id: str


class Alias(NamedTuple):
    """Let a decision be found by another name as well; result: "ok"."""

    alias: str
    id: str


class Learn(NamedTuple):
    """Add to shared sums; result: "ok".

    Attributes
    ----------
    sums : str
        Which sums.
    worker : str
        Who adds.
    sequence : int
        Counts the additions of this worker; one that is not beyond the last is not added again.
    deltas : mapping of str to float
        What to add to each cell.
    """

    sums: str
    worker: str
    sequence: int
    deltas: Mapping[str, float]


class Note(NamedTuple):
    """Keep a text under a name, instead of an earlier one; result: "ok"."""

    name: str
    text: str


Event = Open | Amend | Renew | Reserve | Settle | Score | Spend | Lease | Find | Alias | Learn | Note


class Found(NamedTuple):
    """A decision and what became of it, as an engine keeps it."""

    id: str
    record: str
    state: str
    model: int | None
    cost_usd: float | None
    reward: float | None
    windows: tuple[str, ...]


class WindowState(NamedTuple):
    """How a window stands: `counters` by the names in `COUNTERS`, and what it carries."""

    id: str
    amount_usd: float
    carried_usd: float
    counters: Mapping[str, float]


class AccountState(NamedTuple):
    """How an account stands: its generation, its terms and the latest window of each of its budgets."""

    generation: int
    terms: str
    windows: tuple[WindowState, ...]


class ReadRequest(NamedTuple):
    """What is to be read after the events: accounts by scope, None for all of them; sums and notes by name."""

    scopes: Sequence[str] | None = ()
    sums: Sequence[str] = ()
    notes: Sequence[str] = ()


NOTHING = ReadRequest()


class Reply(NamedTuple):
    """The outcome of an exchange.

    Attributes
    ----------
    now_s : float, seconds since 1970
        The engine's time.
    results : list
        One per event.
    accounts : dict of str to AccountState
        Those that exist.
    sums : dict of str to dict of str to float
        Those asked for; empty where nothing was added.
    notes : dict of str to str
        Those that exist.
    """

    now_s: float
    results: list[object]
    accounts: dict[str, AccountState]
    sums: dict[str, dict[str, float]]
    notes: dict[str, str]


class Engine(Protocol):
    """Keeps the state of shared stores; safe to call from several threads.

    Attributes
    ----------
    near : bool
        Whether an exchange is a matter of microseconds, so that nobody need work ahead of it.
    """

    near: bool

    def exchange(self, events: Sequence[Event], reading: ReadRequest = NOTHING) -> Reply:
        """Apply the events in order, all in one transaction, and read.

        Reservations and leases whose time is up are given back before.

        Raises
        ------
        StoreUnavailable
            If the engine cannot be reached or cannot write; the events may be sent again, whether or not they were
            applied.
        StoreDamaged
            If what it keeps cannot be read; nothing is changed.
        """
        ...

    def close(self) -> None:
        """Let go of connections and files."""
        ...
