"""The local replica of shared accounts: ledgers as of the last reply, plus the worker's own steps since."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from wiserouter.budgets.arrivals import Arrivals
from wiserouter.budgets.budget import Budget
from wiserouter.budgets.changes import AccountTerms
from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.nested import Account, NestedLedger
from wiserouter.budgets.pauses import Pause
from wiserouter.budgets.periods import EARLY_S, Window
from wiserouter.errors import NotStarted
from wiserouter.stores.engines.base import AccountState, WindowState
from wiserouter.stores.engines.events import AMOUNTS, Event, Note, Renew, WindowOpening
from wiserouter.stores.shared.codec import terms_of_text

IDLE_S = 600.0
"""An account that was not asked for within this time is no longer read periodically."""

MAX_NOTED_BUDGETS = 4
"""The number of budgets of a scope whose record of arrivals is read by a worker that starts."""

Effect = Callable[[Ledger], None]


def effect_of(verb: Callable[..., None], reserved_usd: float, expected_usd: float, counts: bool) -> Effect:
    """Return the effect of a ledger's method on the reserved and the expected cost of a call."""
    return lambda ledger: verb(ledger, reserved_usd, expected_usd, counts)


@dataclass(slots=True)
class AccountView:
    """One account as a worker sees it.

    Attributes
    ----------
    generation : int
        The number of the account among those that its scope has had.
    budget : Budget
        The terms.
    parent : str or None
        The scope whose budgets enclose it.
    windows : list of str
        The latest window of each budget, the innermost first.
    arrivals : list of Arrivals or None
        The record of each budget that renews.
    as_of_s : float, seconds since 1970
        The engine's time of the last reply.
    used_s : float, seconds since 1970
        The time of the last request for it.
    state : AccountState
        The engine's last reply, without the steps that it does not have yet.
    terms : AccountTerms
        The terms with what an administrator has added to them.
    received_s : float, seconds since 1970
        The time kept with that reply (`Acknowledge`).
    """

    generation: int
    budget: Budget
    parent: str | None
    windows: list[str]
    arrivals: list[Arrivals | None]
    as_of_s: float
    used_s: float
    state: AccountState
    terms: AccountTerms
    received_s: float = 0.0


class RememberedAccount(NamedTuple):
    """An account as the engine last reported it.

    Attributes
    ----------
    generation, terms
        As of `AccountState`.
    windows : tuple of WindowOpening
        Its windows, without calls in flight and leases.
    held_usd : float, USD
        The amount reserved and leased, in the window with the most.
    as_of_s : float, seconds since 1970
        The engine's time of the report.
    """

    generation: int
    terms: str
    windows: tuple[WindowOpening, ...]
    held_usd: float
    as_of_s: float


class AccountChain(NamedTuple):
    """An account with those that enclose it, assembled once per reply because each decision reads it several times.

    Attributes
    ----------
    scopes, views : tuple of str, tuple of AccountView
        The scope and those that enclose it, and their views.
    windows : tuple of str
        The windows that a call of the scope counts in.
    account : Ledger or NestedLedger
        Their ledgers.
    ends_s : float, seconds since 1970
        The end of the first of them to end.
    begins_s : float, seconds since 1970
        The time before which one of them is not open, where the clock was set back.
    hard : bool
        Whether any of their limits is hard.
    pauses : tuple of (str, Pause)
        The pauses of the scope and of those that enclose it.
    """

    scopes: tuple[str, ...]
    views: tuple[AccountView, ...]
    windows: tuple[str, ...]
    account: Account
    ends_s: float
    begins_s: float
    hard: bool
    pauses: tuple[tuple[str, Pause], ...] = ()

    def is_open(self, now_s: float) -> bool:
        """Return True if each window is open."""
        return self.begins_s <= now_s < self.ends_s

    def is_read_since_windows_ended(self, now_s: float) -> bool:
        """Return True if each of its accounts was read after the end of each window that has ended."""
        windows = [ledger.window for ledger in self.account.each if ledger.window is not None]
        ended_s = [one.end_s for one in windows if one.end_s <= now_s]
        return min(view.as_of_s for view in self.views) >= max(ended_s, default=float("-inf"))


class LocalReplica:
    """The accounts that a worker has read; the caller holds a lock.

    Parameters
    ----------
    store : str
        The name of the store in errors.

    Attributes
    ----------
    views : dict of str to AccountView
        The accounts by scope.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self.views: dict[str, AccountView] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._chains: dict[str, AccountChain] = {}

    def scopes(self, scope: str) -> list[str]:
        """Return a scope and those that enclose it, as far as they are known."""
        found = [scope]
        while (view := self.views.get(found[-1])) is not None and view.parent is not None and view.parent not in found:
            found.append(view.parent)
        return found

    def windows(self, scope: str) -> tuple[str, ...]:
        """Return the windows that a call of a scope counts in, as far as they are known."""
        views = [self.views[one] for one in self.scopes(scope) if one in self.views]
        return tuple([window for view in views for window in view.windows])

    def chain(self, scope: str) -> AccountChain:
        """Return an account with those that enclose it; raises `NotStarted`."""
        chain = self._chains.get(scope)
        if chain is None:
            scopes = tuple(self.scopes(scope))
            views = tuple([self._view(one) for one in scopes])
            windows = tuple([window for view in views for window in view.windows])
            ledgers = tuple([self._ledgers[window] for window in windows])
            account = ledgers[0] if len(ledgers) == 1 else NestedLedger(ledgers)
            spans = [one.window for one in ledgers if one.window is not None]
            ends_s = min([span.end_s for span in spans], default=float("inf"))
            begins_s = max([span.start_s - EARLY_S for span in spans], default=float("-inf"))
            hard = any(view.budget.hard for view in views)
            paused = [(one, view.terms.pause) for one, view in zip(scopes, views, strict=True)]
            pauses = tuple([(one, pause) for one, pause in paused if pause is not None])
            chain = self._chains[scope] = AccountChain(scopes, views, windows, account, ends_s, begins_s, hard, pauses)
        return chain

    def is_current(self, scope: str, now_s: float) -> bool:
        """Return True if an account is known, is read periodically, and was read since its latest windows ended.

        A window that has ended is followed by one with the terms of that moment, which others may have changed.
        """
        view = self.views.get(scope)
        if view is None or now_s - view.used_s >= IDLE_S:
            return False
        chain = self.chain(scope)
        return now_s < chain.ends_s or chain.is_read_since_windows_ended(now_s)

    def present(self, scope: str, now_s: float) -> tuple[AccountChain, list[Event]]:
        """Return the accounts of a scope at `now_s`, and the events that report the windows which have begun."""
        renewals: list[Event] = []
        chain = self.chain(scope)
        if not chain.is_open(now_s):
            renewals = self._renewed(chain, now_s)
            chain = self.chain(scope)
        for view in chain.views:
            view.used_s = now_s
        for ledger in chain.account.each:
            ledger.now_s = now_s
        return chain, renewals

    def left_usd(self, scope: str) -> float:
        """Return the amount left in the tightest of a scope's budgets, in the windows last seen."""
        return min([self._ledgers[window].left_usd for window in self.chain(scope).windows])

    def apply(self, windows: Iterable[str], effect: Effect) -> None:
        """Apply the effect of a step on a call to the ledgers of its windows."""
        for window in windows:
            ledger = self._ledgers.get(window)
            if ledger is not None:
                effect(ledger)

    def take(
        self, scope: str, state: AccountState, now_s: float, notes: dict[str, str], unsent: list[tuple[str, Effect]]
    ) -> None:
        """Take over the state of an account, and apply the effects that the engine does not have yet, by window."""
        terms = terms_of_text(state.terms, self._store)
        budget = terms.budget
        former = self.views.get(scope)
        same = former is not None and former.generation == state.generation
        arrivals = former.arrivals if former is not None and same else [None] * len(state.windows)
        used_s = now_s if former is None else former.used_s
        view = AccountView(state.generation, budget, terms.parent, [], [], now_s, used_s, state, terms)
        for level, (one, window) in enumerate(zip(budget.each, state.windows, strict=True)):
            ledger = _ledger(one, window, now_s)
            if terms.increases:
                ledger.increases = terms.increases_of(level)
            ledger.committed_usd = state.committed_usd
            _apply_unsent(ledger, window.id, unsent)
            if ledger.window is not None:
                note = notes.get(_note_name(scope, level))
                ledger.arrivals = self._arrivals(ledger, ledger.window, window.id, arrivals[level], note)
                ledger.arrivals.follow(one.horizon, now_s)  # whichever worker has changed it
            view.windows.append(window.id)
            view.arrivals.append(ledger.arrivals)
            self._ledgers[window.id] = ledger
        self._replace(scope, view)

    def rename(self, names: Mapping[str, str]) -> None:
        """Give windows other names."""
        self._ledgers = {names.get(one, one): ledger for one, ledger in self._ledgers.items()}
        for view in self.views.values():
            view.windows = [names.get(one, one) for one in view.windows]
        self._chains.clear()

    def notes(self) -> list[Note]:
        """Return the records of arrivals, to be stored for workers that start later."""
        return [
            Note(_note_name(scope, level), _noted(arrivals, self._ledgers[view.windows[level]], view.windows[level]))
            for scope, view in self.views.items()
            for level, arrivals in enumerate(view.arrivals)
            if arrivals is not None
        ]

    def note_names(self, scope: str) -> list[str]:
        """Return the names under which the records of arrivals of a scope may be stored."""
        return [_note_name(scope, level) for level in range(MAX_NOTED_BUDGETS)]

    def remembered(self, scope: str) -> RememberedAccount:
        """Return an account as the engine last reported it."""
        view = self._view(scope)
        windows = [
            WindowOpening(seen.id, seen.amount_usd, terms.hard, terms.rollover, _settled(seen), seen.carried_usd)
            for seen, terms in zip(view.state.windows, view.budget.each, strict=True)
        ]
        held_usd = max([seen.counters["reserved_usd"] + seen.counters["leased_usd"] for seen in view.state.windows])
        return RememberedAccount(view.generation, view.state.terms, tuple(windows), held_usd, view.as_of_s)

    def _renewed(self, chain: AccountChain, now_s: float) -> list[Event]:
        """Replace the ledgers whose window is another one now, and return the events that report the new windows."""
        renewals: list[Event] = []
        for scope, view in zip(chain.scopes, chain.views, strict=True):
            for level, window in enumerate(view.windows):
                ledger = self._ledgers[window]
                renewed = ledger.at(now_s)
                if renewed is not ledger and renewed.window is not None:
                    view.windows[level] = _window_id(scope, view.generation, level, renewed.window.start_s)
                    self._ledgers[view.windows[level]], view.arrivals[level] = renewed, renewed.arrivals
                    opening = _opening(view.windows[level], renewed.budget)
                    is_later = ledger.window is not None and ledger.window.end_s <= renewed.window.start_s
                    renewals.append(Renew(scope, level, window, opening, renewed.skipped if is_later else -1))
        self._chains.clear()
        return renewals

    def _arrivals(
        self, ledger: Ledger, span: Window, window: str, known: Arrivals | None, note: str | None
    ) -> Arrivals:
        """Return the record of arrivals of a budget, with the arrivals that other workers have counted since."""
        if known is None:
            return _first_arrivals(ledger, span, window, note)
        known, seen = known.at(ledger.now_s), self._ledgers.get(window)
        decided = 0 if seen is None else seen.decided
        if ledger.decided != decided:
            known.add(ledger.now_s, ledger.decided - decided)
        return known

    def _replace(self, scope: str, view: AccountView) -> None:
        """Replace the view of a scope, and drop the ledgers of its former windows."""
        former = self.views.get(scope)
        if former is not None:
            for old in set(former.windows) - set(view.windows):
                self._ledgers.pop(old, None)
        self.views[scope] = view
        self._chains.clear()

    def _view(self, scope: str) -> AccountView:
        try:
            return self.views[scope]
        except KeyError:
            raise NotStarted(scope) from None


def first_windows(scope: str, generation: int, budget: Budget, now_s: float) -> tuple[WindowOpening, ...]:
    """Return the first windows of the budgets of an account."""
    windows = []
    for level, one in enumerate(budget.each):
        window = one.window(now_s)
        start_s = now_s if window is None else window.start_s
        windows.append(_opening(_window_id(scope, generation, level, start_s), one))
    return tuple(windows)


def _opening(window: str, budget: Budget) -> WindowOpening:
    return WindowOpening(window, budget.amount_usd, budget.limit == "hard", budget.rollover)


def _window_id(scope: str, generation: int, level: int, start_s: float) -> str:
    return f"{scope}|{generation}|{level}|{start_s!r}"


def _note_name(scope: str, level: int) -> str:
    return f"record|{scope}|{level}"


def _noted(arrivals: Arrivals, ledger: Ledger, window: str) -> str:
    """Return a record of arrivals as text, with the number of decisions in the latest window that it includes."""
    return json.dumps({**arrivals.settings(), "window": window, "decided": ledger.decided})


def _ledger(budget: Budget, state: WindowState, now_s: float) -> Ledger:
    start_s = float(state.id.rpartition("|")[2])
    regular_usd = None
    if budget.within is not None or budget.amount_usd != state.amount_usd:
        regular_usd = None if budget.amount_usd == state.amount_usd else budget.amount_usd
        budget = replace(budget, within=None, amount_usd=state.amount_usd)
    ledger = Ledger(
        budget,
        opened_at=start_s,
        now_s=now_s,
        window=budget.window(start_s),
        expected_requests=budget.horizon,
        carried_usd=state.carried_usd,
        regular_usd=regular_usd,
    )
    for name, value in state.counters.items():
        setattr(ledger, name, value if name in AMOUNTS else round(value))
    return ledger


def _apply_unsent(ledger: Ledger, window: str, unsent: Iterable[tuple[str, Effect]]) -> None:
    """Apply the effects that the engine does not have yet."""
    for changed, effect in unsent:
        if changed == window:
            effect(ledger)


def _first_arrivals(ledger: Ledger, span: Window, window: str, note: str | None) -> Arrivals:
    """Return the record of arrivals of a budget that this worker has not seen before."""
    if note is not None:
        settings = json.loads(note)
        record = Arrivals.of_settings(settings)
        since = ledger.decided - (settings["decided"] if settings["window"] == window else 0)
        record.add(ledger.now_s, since)
        return record
    start_s = span.start_s if ledger.decided else ledger.now_s  # without a request before, it begins now
    record = Arrivals(start_s, span.end_s - span.start_s, ledger.budget.timezone)
    record.expect(ledger.budget.horizon, start_s)
    buckets = max(1, int((ledger.now_s - start_s) / record.bucket_s))
    for bucket in range(buckets if ledger.decided else 0):  # spread evenly, since their times are not known
        n = ledger.decided // buckets + (bucket < ledger.decided % buckets)
        record.add(start_s + bucket * record.bucket_s, n)
    return record


def _settled(seen: WindowState) -> dict[str, float]:
    """Return the counters of a window without its calls in flight and leases."""
    settled = {**seen.counters, "decided": seen.counters["decided"] - seen.counters["in_flight"]}
    return {**settled, **dict.fromkeys(("reserved_usd", "expected_usd", "in_flight", "leased_usd"), 0.0)}
