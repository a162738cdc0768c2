"""Leases: shares of a budget that the engine sets apart for one worker, for a limited time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from wiserouter.budgets.funds import RefusingAccount
from wiserouter.budgets.ledger import INFINITE
from wiserouter.budgets.nested import Account
from wiserouter.errors import BudgetError, BudgetExhausted, StoreUnavailable
from wiserouter.stores.engines.events import Lease, Reserve
from wiserouter.stores.ids import WorkerIdentity
from wiserouter.stores.shared.exchange import PendingEvent


@dataclass(frozen=True, slots=True)
class LeasedAccount:
    """An account while the engine does not answer: what a lease does not cover, the budget may.

    Attributes
    ----------
    account : RefusingAccount
        The account, with the caps of a run.
    leased : Account
        The account without them; its first ledger has the amount left of the lease.
    unavailable : StoreUnavailable
        The error where only the lease does not cover a call.
    """

    account: RefusingAccount
    leased: Account
    unavailable: StoreUnavailable

    @property
    def epoch_s(self) -> float:
        """The start of the window of the account."""
        return self.account.epoch_s

    def refusal(self, needed_usd: float) -> BudgetError | None:
        """Return the error for a used-up horizon or amount; None where the cheapest model continues."""
        return self.account.refusal(needed_usd)

    def reachable_usd(self) -> float:
        """Return the room as it would be if the calls in flight cost nothing; a lease regains nothing from them."""
        return self.account.reachable_usd()

    def exhausted(self, needed_usd: float) -> BudgetExhausted | StoreUnavailable:
        """Return the error of the budget that is used up; else of the engine, which might grant the call."""
        refused, lease_usd = self.account.exhausted(needed_usd), self.leased.each[0].lease_usd or 0.0
        left_usd = min([ledger.left_usd for ledger in self.leased.each if ledger.hard], default=INFINITE)
        return self.unavailable if lease_usd < needed_usd <= left_usd + lease_usd else refused


@dataclass(slots=True)
class _Held:
    usd: float = 0.0
    until_s: float = 0.0
    unused_usd: float = 0.0  # no longer used, and still the worker's own until the engine takes it back
    windows: tuple[str, ...] = ()

    def reduce(self, usd: float) -> None:
        """Use no more than `usd` from now on."""
        self.unused_usd += self.usd - usd
        self.usd = usd


class Leases:
    """The leases of one worker, by scope; the caller holds a lock.

    A lease can be used for `ttl_s` by the worker's own clock, counted from the moment of the request. The engine keeps
    it longer, by the time to live of a reservation, in which the calls made on it may still be reported. After that it
    presumes under a hard limit that the rest was spent, so a worker returns what it no longer needs.

    Parameters
    ----------
    share : float or None
        Share of the amount left to lease; None where there are no leases.
    ttl_s, reservation_ttl_s : float, seconds
        As above.
    clock : callable returning float
        Seconds.
    """

    def __init__(self, share: float | None, ttl_s: float, reservation_ttl_s: float, clock: Callable[[], float]) -> None:
        self.share = share
        self._ttl_s, self._reservation_ttl_s, self._clock = ttl_s, reservation_ttl_s, clock
        self._held: dict[str, _Held] = {}
        self._identity = WorkerIdentity()

    def id(self, scope: str) -> str:
        """Return the name of a lease."""
        self._leave_to_parent()
        return f"{self._identity.name}|{scope}"

    def left_usd(self, scope: str) -> float:
        """Return the amount that can be reserved on a lease now."""
        held = self._held.get(scope) if self._identity.is_current else None
        return 0.0 if held is None or self._clock() >= held.until_s else held.usd

    def reserve(self, scope: str, usd: float) -> str | None:
        """Reserve `usd` on the lease of a scope and return its name; None, and nothing changes, if less is left."""
        if self.share is None or usd > self.left_usd(scope):
            return None
        if usd > 0.0:
            self._held[scope].usd -= usd
        return f"{self._identity.name}|{scope}" if usd > 0.0 else self.id(scope)

    def drop(self, scope: str) -> None:
        """Stop using a lease, for instance because its windows have ended."""
        self._held.pop(scope, None)

    def drop_others(self, windows: Callable[[str], tuple[str, ...]], scopes: Iterable[str] | None = None) -> None:
        """Stop using leases, of all scopes or some, on other windows than theirs: others have opened the next ones."""
        for scope in [*(self._held if scopes is None else scopes)]:
            if scope in self._held and self._held[scope].windows != windows(scope):
                self.drop(scope)

    def renewal(self, scope: str, windows: tuple[str, ...], left_usd: float, *, due: bool) -> Lease | None:
        """Return the event that renews a lease where it is `due` or half used; an excess is not used from now on."""
        held_usd = self.left_usd(scope)
        target_usd = (self.share or 0.0) * max(left_usd + held_usd, 0.0)
        if not due and held_usd >= 0.5 * target_usd:
            return None
        if held_usd > target_usd:
            self._held[scope].reduce(target_usd)
        return Lease(self.id(scope), windows, target_usd, self._ttl_s + self._reservation_ttl_s)

    def idle(self, used: Container[str], untold: Container[str]) -> dict[str, Lease]:
        """Return the events that return the leases of scopes that are not `used` any more, by scope.

        A lease in `untold` is kept until the calls made on it are reported. None of those returned is used from now on.
        """
        self._leave_to_parent()
        unused = [scope for scope in self._held if scope not in used and self.id(scope) not in untold]
        for scope in unused:
            self._held[scope].reduce(0.0)
        return {scope: Lease(self.id(scope), (), 0.0, 0.0) for scope in unused}

    def take(
        self, renewed: Mapping[str, Lease], granted: Iterable[object], asked_s: float, waiting: Iterable[PendingEvent]
    ) -> None:
        """Take over the granted amounts, by scope, less the reservations made on the leases since the request."""
        for (scope, lease), usd in zip(renewed.items(), granted, strict=False):
            name, held_usd = self.id(scope), cast("float", usd)
            for pending in waiting:
                if isinstance(pending.event, Reserve) and pending.event.lease == name:
                    held_usd -= pending.event.held_usd
            self._held[scope] = _Held(max(held_usd, 0.0), asked_s + self._ttl_s, windows=lease.windows)

    def give_up(self, on_their_way: Iterable[PendingEvent]) -> dict[str, float]:
        """Stop using all leases; return by scope the amount left, with that of reservations that are on their way."""
        self._leave_to_parent()
        given_usd = defaultdict(float, {scope: held.usd + held.unused_usd for scope, held in self._held.items()})
        for pending in on_their_way:
            if isinstance(pending.event, Reserve) and pending.event.lease == self.id(pending.scope):
                given_usd[pending.scope] += pending.event.held_usd
        self._held.clear()
        return {scope: usd for scope, usd in given_usd.items() if usd > 0.0}

    def returned(self) -> list[PendingEvent]:
        """Return the events that return all leases to the engine."""
        self._leave_to_parent()
        return [PendingEvent(Lease(self.id(scope), (), 0.0, 0.0), scope, applied=True) for scope in self._held]

    def _leave_to_parent(self) -> None:
        """Forget the leases of the process that this one was forked from: they are not its own."""
        if self._identity.renew_after_fork():
            self._held.clear()


def decided_meanwhile(*, continues: bool, leases: bool) -> str:
    """Return the rule for decisions while the engine does not answer, as a part of a sentence."""
    hard = "nothing is decided under a hard limit" + (" beyond what was leased" if leases else "")
    if continues:
        return f"{hard}, and what is decided under an expected one is sent later"
    return "nothing is decided" + (" beyond what was leased" if leases else "")
