"""The engine of a shared store: a protocol that applies events and reports the state of accounts, decisions and sums.

One exchange is one round trip. Its events are applied in order, in one transaction, and each is applied once however
often it is delivered. Engines hold numbers and opaque text: only `SharedStore` knows what a budget, a window or a
decision means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from wiserouter.stores.engines.events import Event


class Found(NamedTuple):
    """A decision and its outcome, as an engine keeps them: scores by source, and its windows with those of its caps."""

    id: str
    record: str
    state: str
    model: str | None
    cost_usd: float | None
    scores: Mapping[str, str]
    windows: tuple[str, ...]


class WindowState(NamedTuple):
    """The state of a window: `counters` under the names in `COUNTERS`, and the amount carried over."""

    id: str
    amount_usd: float
    carried_usd: float
    counters: Mapping[str, float]


class AccountState(NamedTuple):
    """The state of an account: its generation, its terms and the latest window of each of its budgets.

    `restored` is the token of its `Open`, or of the `Restore` after a loss; `committed_usd` is the amount that kept
    conversations commit.
    """

    generation: int
    terms: str
    windows: tuple[WindowState, ...]
    restored: str = ""
    committed_usd: float = 0.0


class CapState(NamedTuple):
    """The state of the cap of a run: its amount, whether it is hard, and its counters."""

    amount_usd: float
    hard: bool
    counters: Mapping[str, float]


class ReadRequest(NamedTuple):
    """The data to read after the events: accounts by scope (None for all), sums and notes by name, caps by key."""

    scopes: Sequence[str] | None = ()
    sums: Sequence[str] = ()
    notes: Sequence[str] = ()
    caps: Sequence[str] = ()


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
        Those requested that exist.
    sums : dict of str to dict of str to float
        Those requested; empty where nothing was added.
    notes : dict of str to str
        Those requested that exist.
    caps : mapping of str to CapState
        Those requested that are open.
    """

    now_s: float
    results: list[object]
    accounts: dict[str, AccountState]
    sums: dict[str, dict[str, float]]
    notes: dict[str, str]
    caps: Mapping[str, CapState] = MappingProxyType({})


class Engine(Protocol):
    """The keeper of the state of a shared store; safe to call from several threads.

    Attributes
    ----------
    near : bool
        Whether an exchange takes microseconds, so that no step needs to be applied locally first.
    """

    near: bool

    def exchange(self, events: Sequence[Event], reading: ReadRequest = NOTHING, within_s: float | None = None) -> Reply:
        """Apply the events in order, all in one transaction, and read.

        Reservations and leases whose time has run out are presumed or returned before that, and conversations and caps
        whose time has run out are forgotten.
        A near engine waits at most `within_s` for other writers, where that is given and less than its own limit.

        Raises
        ------
        StoreUnavailable
            If the engine cannot be reached or cannot write; the events may be sent again, whether or not they were
            applied.
        StoreDamaged
            If the stored data cannot be read; nothing changes.
        """
        ...

    def close(self) -> None:
        """Close connections and files."""
        ...
