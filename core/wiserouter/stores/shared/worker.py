"""The state of one worker of a shared store, and its side of each exchange with the engine."""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from pathlib import Path
from threading import RLock

from wiserouter.budgets.nested import Account
from wiserouter.errors import StoreError, StoreUnavailable
from wiserouter.parallel.forks import held_at_fork
from wiserouter.stores.base import Record
from wiserouter.stores.engines.base import Engine, ReadRequest, Reply
from wiserouter.stores.engines.events import Event, Find, Lease, Reserve
from wiserouter.stores.ids import fresh_id
from wiserouter.stores.peer import Peer
from wiserouter.stores.shared.cap_views import CapViews
from wiserouter.stores.shared.exchange import RETRY_S, EngineClient, PendingEvent
from wiserouter.stores.shared.leases import Leases, decided_meanwhile
from wiserouter.stores.shared.losses import Loss, gone_back, log_loss, noticed
from wiserouter.stores.shared.recovery import (
    MAX_CLOSED_S,
    KeptDecision,
    follow,
    rename,
    renamed,
    repair_unknown,
    reserve_again,
    restore_accounts,
    return_unused,
    window_names,
)
from wiserouter.stores.shared.replica import IDLE_S, AccountChain, Effect, LocalReplica
from wiserouter.stores.shared.spool import Spool
from wiserouter.stores.transitions import presumed_cost_usd, set_outcome

NOTES_EVERY_S = 60.0
"""How often the records of arrivals are stored, for workers that start later."""


class Worker:
    """One worker of a shared store: its replica of the accounts, its leases, its recent decisions, its peers.

    Parameters
    ----------
    engine : Engine
        The engine that holds the shared state.
    leases : Leases
        The leases of this worker.
    clock : callable returning float
        Seconds.
    name : str
        The name of the store in errors and logs.
    decides_on_leases : bool
        Whether decisions are made on leases even while the engine answers.
    continues : bool
        Whether calls under an expected limit are decided on the replica while the engine does not answer.
    refresh_s, flush_s, max_staleness_s, reservation_ttl_s, max_decisions, spool
        As of `SharedStore`.

    Attributes
    ----------
    lock : RLock
        Guards everything here; never held during an exchange.
    client : EngineClient
        The connection to the engine.
    replica : LocalReplica
        The accounts, as this worker sees them.
    decisions : OrderedDict of str to (Record, tuple of str)
        The latest decisions of this worker, with the windows that they count in.
    caps : CapViews
        The caps of runs, as this worker last saw them.
    seen : OrderedDict of str to str
        The states of conversations that this worker saw last, as text.
    followers : list of callable
        Called when the terms of an account are others than before.
    restored_by_s : float, seconds since 1970
        When all workers have restored what they know, where the engine has lost its data.
    """

    def __init__(
        self,
        engine: Engine,
        leases: Leases,
        clock: Callable[[], float],
        *,
        name: str,
        decides_on_leases: bool,
        continues: bool,
        refresh_s: float,
        flush_s: float,
        max_staleness_s: float,
        reservation_ttl_s: float,
        max_decisions: int,
        spool: Path | None = None,
    ) -> None:
        self.name, self.near, self.flush_s, self.refresh_s = name, engine.near, flush_s, refresh_s
        self.decides_on_leases, self.continues = decides_on_leases, continues
        self.caps, self.seen = CapViews(), OrderedDict[str, str]()
        self.lock, self.leases, self.replica = held_at_fork(RLock()), leases, LocalReplica(name)
        self.decisions: OrderedDict[str, KeptDecision] = OrderedDict()
        self.peers: weakref.WeakSet[Peer] = weakref.WeakSet()
        self.followers: list[Callable[[Collection[str]], object]] = []
        self._clock, self._max_decisions = clock, max_decisions
        self._max_staleness_s, self._reservation_ttl_s = max_staleness_s, reservation_ttl_s
        self._why_closed = "its limit is hard" if continues else "on_store_error is 'closed'"
        self._noted_s, self._asked_peers, self._loss = float("-inf"), weakref.WeakSet[Peer](), fresh_id()
        self._read, self._read_caps, self._hard_scopes, self._reads_all = list[str](), list[str](), set[str](), False
        self._renewing, self._returning = dict[str, Lease](), dict[str, Lease]()
        self.restored_by_s, self._closed_s = float("-inf"), min(3.0 * refresh_s + 2.0 * RETRY_S, MAX_CLOSED_S)
        meanwhile = decided_meanwhile(continues=continues, leases=leases.share is not None)
        self.client = EngineClient(
            engine,
            self,
            self.lock,
            clock,
            name=name,
            meanwhile=meanwhile,
            refresh_s=refresh_s,
            flush_s=flush_s,
            spool=None if spool is None else Spool(spool),
        )
        self.client.offset_s = time.time() - clock()

    def now(self) -> float:
        """Return the engine's time, estimated from its last reply."""
        return self._clock() + self.client.offset_s

    def may_act_locally(self, scope: str) -> bool:
        """Return True if reservations and settlements of a scope need not wait for the engine."""
        if self.decides_on_leases:
            return True
        if self.replica.chain(scope).hard:
            return self.client.broken and self.leases.left_usd(scope) > 0.0
        return not self.near or self.continues_alone(scope)

    def continues_alone(self, scope: str) -> bool:
        """Return True if the engine does not answer and its limit lets a scope be decided on the replica."""
        return self.client.broken and self.continues and not self.replica.chain(scope).hard

    def decides_alone(self) -> bool:
        """Return True if all that an exchange is about is decided on the replica while the engine does not answer."""
        return self.continues and bool(self.replica.views) and not self._hard_scopes and not self._read_caps

    def leases_to(self, scope: str) -> bool:
        """Return True if what is decided in a scope without the engine is taken from a lease."""
        return self.leases.share is not None and (self.decides_on_leases or self.replica.chain(scope).hard)

    def is_hard(self, scope: str) -> bool:
        """Return True if any limit of the account of `scope` is hard."""
        if scope not in self.replica.views:
            self.refresh_account(scope)
        with self.lock:
            return self.replica.chain(scope).hard

    def is_up_to_date(self, scope: str) -> bool:
        """Return True if an account is known and was read lately, the engine answers, and no window has ended."""
        now_s = self.now()
        if self.client.broken or not self.replica.is_current(scope, now_s):
            return False
        return self.replica.chain(scope).is_open(now_s)

    def account(self, scope: str) -> Account:
        """Return the account of `scope`, as of the last reply and the local steps since."""
        self.keep_current(scope)
        with self.lock:
            return self.present_chain(scope).account

    def needs_reading(self, scope: str) -> bool:
        """Return True if an account must be read before it is used; without the engine, it is used as last seen."""
        if scope not in self.replica.views:
            return True
        return not self.client.broken and not self.replica.is_current(scope, self.now())

    def keep_current(self, scope: str) -> None:
        """Read an account where others may have changed its terms unseen; a known one is used if that fails."""
        with self.lock:
            known, needs_reading = scope in self.replica.views, self.needs_reading(scope)
        if needs_reading:
            try:
                self.refresh_account(scope)
            except StoreError:
                if not known:
                    raise

    def present_chain(self, scope: str) -> AccountChain:
        """Return the account of a known scope with those that enclose it; the caller holds the lock."""
        now_s, broken = self.now(), self.client.broken
        if broken:
            self._check_usable(scope, now_s)
        chain, renewals = self.replica.present(scope, now_s)
        if renewals:
            self.client.enqueue(*[PendingEvent(event, scope, applied=True) for event in renewals])
            self.leases.drop(scope)
        if broken and self.leases_to(scope) and not self.continues_alone(scope):
            chain.account.each[0].lease_usd = self.leases.left_usd(scope)
        return chain

    def refresh_account(self, scope: str) -> None:
        """Read an account, and those that it is within."""
        while not self._are_read(self.replica.scopes(scope)):
            pass

    def _are_read(self, scopes: Sequence[str]) -> bool:
        """Read accounts, the outermost first; False once the first one turns out to be within others than these."""
        reads = (self.client.request(PendingEvent(Find(""), one)) for one in reversed(scopes))
        return all(self.replica.scopes(scopes[0]) == scopes for _ in reads)

    def restoring(self, closed: str = "hard limits stay closed") -> StoreUnavailable:
        """Return the error that says why something is closed though the engine answers."""
        why = f"has lost its data, and {closed} for {self._closed_s:g} s while the workers restore it"
        return StoreUnavailable(f"{self.name} {why}: try again later", store=self.name)

    def apply_locally(self, pending: PendingEvent) -> None:
        """Apply an event to the replica at once, and send it in the background."""
        pending.applied, pending.done = True, False
        self.apply(pending)
        self.client.enqueue(pending)

    def apply(self, pending: PendingEvent) -> None:
        """Apply an event to the replica."""
        if pending.effect is not None:
            self.replica.apply(pending.windows, pending.effect)
            if pending.caps:
                self.caps.apply(pending.caps, pending.effect)

    def kept_record(self, decision_id: str) -> Record | None:
        """Return the record of a recent decision of this worker; the engine presumes it when its time is up."""
        with self.lock:
            kept = self.decisions.get(decision_id)
            if kept is None:
                return None
            record, decision = kept[0], kept[0].decision
            overdue = record.state == "in flight" and self.now() - decision.decided_at >= self._reservation_ttl_s
            if overdue and decision.scope in self.replica.views:
                hard = self.replica.chain(decision.scope).hard or any(cap.hard for cap in record.caps)
                set_outcome(record, "presumed", presumed_cost_usd(decision, hard=hard), None)
            return record

    def keep(self, record: Record, windows: tuple[str, ...]) -> None:
        """Keep a decision of this worker; the oldest is dropped."""
        self.decisions[record.decision.id] = record, windows
        if len(self.decisions) > self._max_decisions:
            self.decisions.popitem(last=False)

    def close(self) -> None:
        """Return the leases, send the waiting events and close the engine."""
        with self.lock:
            if self.client.closed:
                return
            self.client.waiting.extend(self.leases.returned())
            for peer in self.peers:
                peer.hasten()
        self.client.close()

    def compose(self, sent: Sequence[PendingEvent], *, due: bool) -> tuple[list[Event], ReadRequest]:
        """Return the leases to renew and to return and the additions of peers, and the data to read."""
        now_s = self.now()
        active = {scope for scope, view in self.replica.views.items() if due and now_s - view.used_s < IDLE_S}
        scopes = active | {pending.scope for pending in sent if pending.scope}
        untold = self._untold_leases(len(sent))
        self._renewing = self._renewals(scopes, active, untold)
        self._returning = self.leases.idle(scopes, untold) if due else {}
        leases = [*self._renewing.values(), *self._returning.values()]
        events: list[Event] = [*leases, *(self._periodic_events(now_s) if due else [])]
        blind = (due or scopes) and scopes.isdisjoint(self.replica.views)
        watched = scopes | set(islice(self.replica.views, 1) if blind else ())  # a known one at least, to notice a loss
        watched |= set(self.replica.views if self._reads_all else ())
        self._read = sorted({one for scope in watched for one in self.replica.scopes(scope)})
        notes = [name for one in self._read if one not in self.replica.views for name in self.replica.note_names(one)]
        self._asked_peers = weakref.WeakSet(self.peers if due else ())
        sums = [name for peer in self._asked_peers for name in peer.wanted(now_s)]
        notes += [name for peer in self._asked_peers for name in peer.wanted_notes()]
        self._read_caps = [key for pending in sent for key in pending.caps]
        return events, ReadRequest(self._read, sums, notes, self._read_caps)

    def take(
        self, sent: Sequence[PendingEvent], extras: list[object], reply: Reply, asked_s: float, known_s: float
    ) -> list[PendingEvent] | None:
        """Take over accounts, leases and the sums of peers."""
        if known_s < float("inf") and not self._reads_all:
            self._reads_all = self.client.hastened = True
            for peer in self.peers:
                peer.hasten()
            return [*sent]
        loss = self._noticed(reply, known_s)
        if loss is not None:
            return [*self._recovery_events(sent, reply, loss), *sent]
        for pending in sent:
            self.client.waiting.extend(repair_unknown(self.replica, pending, self.decisions, self.name))
        are_windows_others = self._take_accounts(reply)
        self.caps.take(self._read_caps, reply.caps, reply.now_s, self._unsent_in_cap)
        self.leases.take(self._renewing, extras, asked_s, self.client.waiting)
        for scope in self._returning:
            self.leases.drop(scope)
        self.leases.drop_others(self.replica.windows, None if are_windows_others else self._renewing)
        for peer in self._asked_peers:  # a peer that has joined meanwhile has asked nothing
            peer.incoming(reply)
        return None

    def _check_usable(self, scope: str, now_s: float) -> None:
        """Raise `StoreUnavailable` where nothing may be decided without the engine, which does not answer."""
        view = self.replica.views.get(scope)
        if self.leases.left_usd(scope) > 0.0 or (view is not None and self.continues_alone(scope)):
            return
        leases = view is not None and self.leases_to(scope)
        fresh = view is not None and now_s - view.as_of_s <= self._max_staleness_s
        if leases or not fresh or not self.may_act_locally(scope):
            raise self.client.unavailable("the lease is used up" if leases else self._why_closed)

    def _periodic_events(self, now_s: float) -> list[Event]:
        """Return the additions of peers and, once a minute, the records of arrivals."""
        events: list[Event] = [event for peer in self.peers for event in peer.outgoing(now_s)]
        if self._clock() - self._noted_s >= NOTES_EVERY_S:
            events += self.replica.notes()
            self._noted_s = self._clock()
        return events

    def _take_accounts(self, reply: Reply) -> bool:
        """Replace the accounts that were read, with the events that are not sent yet; True if windows are others."""
        unsent: list[tuple[str, Effect]] = [
            (window, pending.effect)
            for pending in self.client.waiting
            if pending.applied and pending.effect is not None
            for window in pending.windows
        ]
        changed = are_windows_others = False
        for scope, state in reply.accounts.items():
            known = self.replica.views.get(scope)
            if known is None:
                self._noted_s = float("-inf")  # a worker that starts next can read the record of arrivals at once
            changed |= known is not None and known.state.terms != state.terms
            self.replica.take(scope, state, reply.now_s, reply.notes, unsent)
            view = self.replica.views[scope]
            view.received_s = self.client.received_s
            are_windows_others |= known is not None and known.windows != view.windows
            (self._hard_scopes.add if view.budget.hard else self._hard_scopes.discard)(scope)
        for follower in self.followers if changed else ():
            follower(self._hard_scopes)
        return are_windows_others

    def _unsent_in_cap(self, key: str) -> list[Effect]:
        """Return the effects on a cap of the events that are not sent yet."""
        waiting = [pending for pending in self.client.waiting if pending.applied and key in pending.caps]
        return [pending.effect for pending in waiting if pending.effect is not None]

    def _untold_leases(self, n_sent: int) -> set[str]:
        """Return the leases on which calls were reserved that this exchange does not report yet."""
        waiting = islice(self.client.waiting, n_sent, None)
        return {one.event.lease for one in waiting if isinstance(one.event, Reserve) and one.event.lease is not None}

    def _renewals(self, scopes: set[str], active: set[str], untold: set[str]) -> dict[str, Lease]:
        """Return the leases to renew, by scope; a renewal counts from what the engine knows to be used."""
        leases: dict[str, Lease] = {}
        for scope in () if self.client.closed else scopes:
            known = scope in self.replica.views and self.leases_to(scope)
            if known and self.leases.id(scope) not in untold:
                left_usd, windows = self.replica.left_usd(scope), self.replica.chain(scope).windows
                lease = self.leases.renewal(scope, windows, left_usd, due=scope in active)
                if lease is not None:
                    leases[scope] = lease
        return leases

    def _noticed(self, reply: Reply, known_s: float) -> Loss | None:
        """Return the accounts that the engine has lost, or those that others have restored."""
        self._reads_all = False
        if known_s < float("inf"):
            loss = gone_back(self.replica, reply.accounts, known_s)
            self.client.received_s = self.restored_by_s = 0.0
        else:
            loss = noticed(self.replica, self._read, reply.accounts, self._loss)
        if known_s == float("inf") and not (loss.lost or loss.restored):
            return None
        log_loss(self.name, loss)
        for peer in self.peers:
            peer.begin_again(reply.sums if known_s < float("inf") else {})
        return loss

    def _recovery_events(self, sent: Sequence[PendingEvent], reply: Reply, loss: Loss) -> list[PendingEvent]:
        """Return the events that restore what this worker knows; its leases are not used any more."""
        present, scopes = reply.accounts, {*loss.lost, *loss.restored}
        names, on_their_way = window_names(self.replica, present, loss.replaced), [*sent, *self.client.waiting]
        if self.now() >= self.restored_by_s:  # else others were read since, or restored from that view
            scopes |= set() if loss.followed else self.replica.views.keys() - set(self._read)
            self._loss = f"{reply.now_s!r} {fresh_id()}"
        self.restored_by_s = self.now() + self._closed_s
        ttls_s = self._reservation_ttl_s, self._closed_s
        events = restore_accounts(self.replica, scopes - loss.followed, present, loss.replaced, self._loss, *ttls_s)
        follow(self.replica, present, loss, names)
        self.decisions.update({one: (record, renamed(ids, names)) for one, (record, ids) in self.decisions.items()})
        for pending in on_their_way:
            rename(pending, names)
        events += reserve_again(self.replica, scopes, self.decisions.values(), on_their_way)
        for scope, usd in self.leases.give_up(on_their_way).items():
            events += return_unused(self.replica, self.replica.scopes(scope), self.replica.windows(scope), usd)
        return events
