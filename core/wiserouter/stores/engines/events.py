"""The events that an engine applies to its accounts, decisions and sums.

A call counts in each of its windows according to its state, so that a change of state is one subtraction and one
addition:

============ ==========================================================================
in flight    reserved + held, expected + expected, decided + 1, in_flight + 1
charged      spent + cost, debited + debit, decided + 1, charged + 1
released     released + 1
presumed     spent + cost, debited + debit, decided + 1, presumed + 1, presumed_usd + cost
============ ==========================================================================

A call that continues a run adds nothing to `decided`, and 1 to `continuing` while it is in flight. The calls of a run
count in a further window for each of its caps (`RunCap`), which the first of them opens. It is forgotten some time
after the last of them, but not while one is in flight, and what counts in it later is skipped.

A call whose outcome is unknown, or that is not settled in time, is presumed: it costs what was held where the limit of
any of its windows is hard, and what was expected otherwise. In the same way the unused rest of a lease that is neither
renewed nor returned in time is presumed to be spent (spent + rest, debited + rest, presumed_usd + rest) where the limit
of any of its windows is hard, since the worker may have made calls on it that it could not report; otherwise the rest
is returned.

A window has amount + carried - spent - reserved - leased left. Where its limit is hard, nothing is reserved beyond
that, except for a rounding error of 1e-12 of the amount; the same holds for a hard cap. A cap that is not hard admits a
call whose expected cost is at most amount - spent - expected. Where a window rolls over, the next one carries
min(left + skipped x amount, amount), computed again whenever a late bill changes the amount left.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from wiserouter.budgets.run_caps import RunCap
from wiserouter.stores.engines.acknowledgements import Acknowledge
from wiserouter.stores.engines.changes import Change

COUNTERS = (
    "spent_usd",
    "debited_usd",
    "reserved_usd",
    "expected_usd",
    "decided",
    "in_flight",
    "charged",
    "released",
    "presumed",
    "leased_usd",
    "presumed_usd",
    "continuing",
)

AMOUNTS = frozenset([name for name in COUNTERS if name.endswith("_usd")])
"""The counters that are amounts; the others are numbers of calls."""


class WindowOpening(NamedTuple):
    """The first state of a window of one budget.

    Attributes
    ----------
    id : str
        Its name; contains the start of the window, so that two workers that renew it at once name the same window.
    amount_usd : float, USD
        The budget.
    hard, rollover : bool
        Whether the limit is hard, and whether the next window receives the amount left in this one.
    counters, carried_usd : mapping of str to float, and USD
        Initial counters, and the amount carried over, where an engine has lost its data; otherwise zeros.
    """

    id: str
    amount_usd: float
    hard: bool
    rollover: bool
    counters: Mapping[str, float] = MappingProxyType({})
    carried_usd: float = 0.0


class Open(NamedTuple):
    """Open an account, or join the one that is open; result: its generation.

    Attributes
    ----------
    scope : str
        The scope of the account.
    generation : int
        That of the account to replace, 0 for none; the new account has the next number. Where an account of another
        generation is open, nothing changes.
    terms, token : str
        Opaque texts, returned as `AccountState.terms` and `AccountState.restored`; the token names this opening.
    windows : tuple of WindowOpening
        The first window of each budget, the innermost first.
    """

    scope: str
    generation: int
    terms: str
    windows: tuple[WindowOpening, ...]
    token: str = ""


class Restore(NamedTuple):
    """Open an account again that the engine has lost, as a worker last saw it; result: its generation.

    Several workers may restore one account, each from its own view. The first one opens it; one with a later view then
    replaces the earlier: the counters change by the difference of the two views, so that what was counted meanwhile is
    kept. A view that is not later, or of another generation, changes nothing. Where the account alone was lost, it is
    opened on its windows, which have counted everything; where it was opened by `former`, the view is added to it, or,
    with a later generation, takes its place, as where the engine has gone back to an older state of it.

    Attributes
    ----------
    scope, generation, terms, windows
        As of `Open`, with its own generation, and counters as last seen, without calls in flight and leases.
    token : str
        The name that this worker gives to the loss; reported as `AccountState.restored` if it opens the account.
    as_of_s : float, seconds since 1970
        The engine's time of the view.
    lease, held_usd, ttl_s
        The lease that stands for the calls in flight and the leases of the view, its amount and its time to live.
    closed_s : float, seconds
        Time in which hard limits of the account admit nothing but calls on a lease: later views may still come.
    former : str
        `AccountState.restored` of the account that the view is added to, or replaces, else "".
    """

    scope: str
    generation: int
    terms: str
    windows: tuple[WindowOpening, ...]
    token: str
    as_of_s: float
    lease: str
    held_usd: float
    ttl_s: float
    closed_s: float
    former: str = ""


class Amend(NamedTuple):
    """Change the terms of an account and the amount of a running window; result: "ok" or "unknown"."""

    scope: str
    terms: str
    window: str
    amount_usd: float


class Renew(NamedTuple):
    """Replace the window `former` by the next one; result: "ok". Nothing changes where `former` is not the latest.

    Attributes
    ----------
    scope : str
        The scope of the account.
    level : int
        Position of the budget among those of the account.
    former : str
        The window that has ended.
    window : WindowOpening
        The window that has begun.
    skipped : int
        Number of windows between the two; -1 where the clock was set back, so that nothing is carried over.
    """

    scope: str
    level: int
    former: str
    window: WindowOpening
    skipped: int


class Reserve(NamedTuple):
    """Reserve the cost of a call in all its windows; result: "ok", or "refused" where a hard limit has no room.

    Delivered twice under one id, it reserves once and the result is "ok" both times, unless a window of the call is
    gone. Where one of its own does not exist, the result is "unknown" and nothing changes; where a hard limit was
    restored just now (`Restore`), it is "closed"; where only a cap does not admit it, it is "capped".

    Attributes
    ----------
    id : str
        The decision.
    windows : tuple of str
        The windows that it counts in.
    held_usd, expected_usd : float, USD
        Its worst case and its expected cost.
    paper : bool
        Whether planning debits the expected cost in place of the true one.
    record : str
        Opaque text, returned by `Find`.
    lease : str or None
        The lease that the money is taken from, as far as it goes, also where its rest was presumed. Such a reservation
        is never "refused" nor "closed", even where the lease does not exist.
    caps : tuple of RunCap
        The caps of its run, which must also bear it.
    counts : bool
        Whether it uses a request of the horizon; False for a call that continues a run.
    admitted : bool
        Whether a worker has admitted it before: it is never "capped", and counts in those of its windows that exist.
    """

    id: str
    windows: tuple[str, ...]
    held_usd: float
    expected_usd: float
    paper: bool
    record: str
    lease: str | None = None
    caps: tuple[RunCap, ...] = ()
    counts: bool = True
    admitted: bool = False


class Settle(NamedTuple):
    """Charge, release or presume a call; result: its state before, "unknown", or "again" where nothing changes.

    The call counts in the windows of its reservation; where one of a call in flight is gone, the call is "unknown".

    A charge is "again" where the call was charged before, a release where it was charged or released before, and a
    presumption where it is not in flight. The same `token` delivered twice gets the first result.

    Attributes
    ----------
    id : str
        The decision.
    to : {"charged", "released", "presumed"}
        The new state.
    token : str
        The unique name of this event.
    cost_usd : float, USD
        The true cost of a charged call.
    model : str or None
        Opaque text that names the model which answered, where it is not the one decided.
    """

    id: str
    to: Literal["charged", "released", "presumed"]
    token: str
    cost_usd: float = 0.0
    model: str | None = None


class Score(NamedTuple):
    """Keep the score of one source of a call; result: "unknown", "released", or the scores of all sources before.

    Attributes
    ----------
    id : str
        The decision.
    source : str
        The source; its earlier score is replaced.
    text : str
        Opaque text; the results, and `Found`, have the texts by source.
    token : str
        The unique name of this event; delivered twice, it gets the first result.
    """

    id: str
    source: str
    text: str
    token: str


class Spend(NamedTuple):
    """Count a cost that belongs to no call, which may be negative; result as for `Reserve`, "ok" where it is billed."""

    token: str
    windows: tuple[str, ...]
    cost_usd: float
    billed: bool = False


class Lease(NamedTuple):
    """Lease `held_usd` to a worker for `ttl_s` seconds; result: the amount granted, less where there is less room.

    The amount counts as leased in `windows` and never exceeds what is left there, whether or not the limit is hard. A
    lease that is not renewed within `ttl_s` is presumed or returned; `ttl_s` = 0 returns it at once. A lease that was
    presumed, or is on other windows, is returned before a new one is granted. Where a window does not exist, the grant
    is 0; where one is closed, nothing more is granted.
    """

    id: str
    windows: tuple[str, ...]
    held_usd: float
    ttl_s: float


class Find(NamedTuple):
    """Look a decision up by its id or an alias; result: `Found` or None."""

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
        The name of the sums.
    worker : str
        The worker that adds.
    sequence : int
        Number of the addition of this worker; one that is not beyond the last is ignored.
    deltas : mapping of str to float
        The amount to add to each cell.
    days_kept : int or None
        Sums named `NAME@DAY` or `NAME@DAY@PART`, with the day since 1970, may be forgotten after so many days.
    """

    sums: str
    worker: str
    sequence: int
    deltas: Mapping[str, float]
    days_kept: int | None = None


class Note(NamedTuple):
    """Keep a text under a name; result: "ok", or "other" where a text other than `former` is kept ("" for none)."""

    name: str
    text: str
    former: str | None = None


class FindConversation(NamedTuple):
    """Look the kept state of a conversation up; result: its text, or None where there is none or it has expired."""

    key: str


class KeepConversation(NamedTuple):
    """Keep a state in place of a version; result: "ok", or "other" where another version is kept and nothing changes.

    The same `token` delivered twice gets the first result. Beyond a number of conversations, those kept longest ago are
    forgotten.

    Attributes
    ----------
    key : str
        The key of the conversation.
    version : int
        The version that it replaces, 0 for none; it is kept as the next one.
    text : str
        Opaque text, returned by `FindConversation`.
    ttl_s : float, seconds
        Time after which it expires.
    token : str
        The unique name of this event.
    scopes : tuple of str
        The accounts that commit `committed_usd` until its end, in place of what an earlier state has committed.
    committed_usd : float, USD
        The amount; reported as `AccountState.committed_usd`, and no limit depends on it.
    """

    key: str
    version: int
    text: str
    ttl_s: float
    token: str
    scopes: tuple[str, ...] = ()
    committed_usd: float = 0.0


class EndConversation(NamedTuple):
    """Forget a conversation, what it commits, and its cap unless a call is in flight there; result: "ok"."""

    key: str


Event = (
    Acknowledge
    | Open
    | Restore
    | Amend
    | Change
    | Renew
    | Reserve
    | Settle
    | Score
    | Spend
    | Lease
    | Find
    | Alias
    | Learn
    | Note
    | FindConversation
    | KeepConversation
    | EndConversation
)
