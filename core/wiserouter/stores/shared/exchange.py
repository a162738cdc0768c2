"""The client of an engine: it sends events in batches, on behalf of callers that wait and in the background.

Callers that wait at the same time share one exchange: the first to send takes along the events of all others, in the
order in which they were made. After a failure, events that no caller waits for are sent again until they arrive, as are
those that their caller allows to arrive later; every event counts once.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Signal
from threading import RLock, Thread
from typing import Protocol, cast

from wiserouter.errors import StoreError, StoreUnavailable
from wiserouter.parallel.forks import close_at_end, held_at_fork
from wiserouter.stores.base import Health, Record
from wiserouter.stores.engines.acknowledgements import Acknowledge, acknowledged_s
from wiserouter.stores.engines.base import Engine, ReadRequest, Reply
from wiserouter.stores.engines.events import Event, Reserve, Settle
from wiserouter.stores.ids import WorkerIdentity, fresh_id
from wiserouter.stores.shared.codec import text_of_record
from wiserouter.stores.shared.replica import Effect
from wiserouter.stores.shared.spool import Spool

logger = logging.getLogger("wiserouter")

MAX_EVENTS_PER_EXCHANGE = 500
"""The most pending events that one exchange sends."""

BRIEF_S = 1.0
"""The longest wait for other writers where no account has a hard limit: its calls are decided without the engine."""

RETRY_S = 1.0
"""Pause after a failed exchange in which requests fail at once."""


@dataclass(slots=True, eq=False)
class PendingEvent:
    """An event on its way to the engine.

    Attributes
    ----------
    event : Event
        The event.
    scope : str
        The account to read with it; "" for none.
    windows : tuple of str
        The windows that it counts in.
    effect : callable, optional
        Its effect on the ledger of each of these windows.
    applied : bool
        Whether the local replica already shows it; then no caller waits for it, otherwise one does.
    resent : bool
        Whether it is sent a second time because the engine did not know the decision.
    spooled : bool
        Whether it is in the spool.
    record : Record, optional
        The decision of a `Reserve`; encoded when it is sent, off the path of the decision.
    caps : tuple of str
        The keys of the caps that it counts in, which are read with it.
    defer : callable returning bool, optional
        Called where the engine fails a caller, with the lock held: shows the event on the local replica and returns
        True if it is to be sent later. Its result is then "ok".
    done, result, error
        The outcome.
    """

    event: Event
    scope: str
    windows: tuple[str, ...] = ()
    effect: Effect | None = None
    applied: bool = False
    resent: bool = False
    spooled: bool = False
    record: Record | None = None
    caps: tuple[str, ...] = ()
    defer: Callable[[], bool] | None = None
    done: bool = False
    result: object = None
    error: StoreError | None = None

    def is_deferred(self) -> bool:
        """Return True if the event is to be sent later, and its caller need not wait."""
        if self.defer is None or not self.defer():
            return False
        self.applied, self.done, self.result = True, True, "ok"
        return True


class ExchangeParticipant(Protocol):
    """The worker's side of an exchange: it adds events and takes over the reply. Called with the lock held."""

    def compose(self, sent: Sequence[PendingEvent], *, due: bool) -> tuple[list[Event], ReadRequest]:
        """Return the events to add and the data to read, including the periodic ones where `due`."""
        ...

    def take(
        self, sent: Sequence[PendingEvent], extras: list[object], reply: Reply, asked_s: float, known_s: float
    ) -> Sequence[PendingEvent] | None:
        """Take over a reply, and in `extras` the results of the events that were added.

        Where the engine has gone back to an older state, `known_s` is its time of the worker's last exchange that it
        knows, 0 for none, and nothing was applied; otherwise it is infinite.
        Returns None, or, where the engine has lost data, the events to send in place of those that were sent.
        """
        ...

    def decides_alone(self) -> bool:
        """Return True if what was composed last is decided without the engine while it does not answer."""
        ...

    def close(self) -> None:
        """End the participation; called when the process ends."""
        ...


class EngineClient:
    """The connection of one worker to its engine.

    Parameters
    ----------
    engine : Engine
        The engine.
    participant : ExchangeParticipant
        The worker; only a weak reference to it is kept.
    lock : RLock
        Held while the state of the worker changes, never during an exchange.
    clock : callable returning float
        Seconds.
    name : str
        The name of the store in errors and logs.
    meanwhile : str
        What is decided while the engine does not answer; for the log.
    refresh_s, flush_s : float, seconds
        How often to read, and how long an event that no caller waits for may stay unsent.
    spool : Spool, optional
        Keeps unsent events for a worker that starts later, in case this one ends first.
    """

    def __init__(
        self,
        engine: Engine,
        participant: ExchangeParticipant,
        lock: RLock,
        clock: Callable[[], float],
        *,
        name: str,
        meanwhile: str,
        refresh_s: float,
        flush_s: float,
        spool: Spool | None = None,
    ) -> None:
        self._spool, self._inherited = spool, list[Path]()
        self._engine, self._clock, self._name, self._meanwhile = engine, clock, name, meanwhile
        self._participant = weakref.ref(participant)
        self._refresh_s, self._flush_s = refresh_s, flush_s
        self._lock, self._busy, self._wake = lock, held_at_fork(RLock()), Signal()
        self._failed_s: float | None = None
        self._refreshed_s = self._replied_s = float("-inf")
        self._failures = self._exchanges = 0
        self._identity, self.received_s = WorkerIdentity(), 0.0
        self._sender: WorkerIdentity | None = None
        self.waiting, self.offset_s = deque[PendingEvent](), 0.0
        self.closed = self.hastened = False

    @property
    def broken(self) -> bool:
        """Whether the last exchange failed."""
        return self._failed_s is not None

    def enqueue(self, *events: PendingEvent) -> None:
        """Send events soon, in the background."""
        with self._lock:
            self.waiting.extend(events)
            if self._sender is None or not self._sender.is_current:
                self._start()
            if self._failed_s is not None:
                self._keep(events)

    def request(self, pending: PendingEvent, *before: PendingEvent) -> object:
        """Send an event, after others that go with it, and return its result.

        Raises
        ------
        StoreUnavailable, StoreDamaged
            If the engine fails, unless the event may be sent later.
        """
        with self._lock:
            self._start()
            resting = self._failed_s is not None and self._clock() - self._failed_s < RETRY_S
            if resting and not pending.is_deferred():
                raise self.unavailable(f"the last attempt was less than {RETRY_S:g} s ago")
            self.waiting.extend((*before, pending))
            if pending.done:
                self._keep((*before, pending))
        while not pending.done:
            with self._busy, suppress(StoreError):  # a failure is set as the error of the event
                if not pending.done:
                    self._exchange()
        if pending.error is not None:
            raise pending.error
        return pending.result

    def exchange_apart(self, events: Sequence[Event], reading: ReadRequest) -> Reply:
        """Exchange with the engine at once, apart from the events that wait; raises the engine's errors."""
        return self._engine.exchange(events, reading)

    def refresh(self) -> None:
        """Send all waiting events and read the current state; raises the engine's errors."""
        with self._busy:
            while not self._exchange(refresh=True):
                pass
            while self.waiting:
                self._exchange()

    def health(self) -> Health:
        """Return the state of the connection: reachable or not, age of the last reply, events still to be sent."""
        with self._lock:
            age_s = self._clock() - self._replied_s
            return Health(not self.broken, age_s, len(self.waiting), self._failures, self._exchanges)

    def unavailable(self, why: str) -> StoreUnavailable:
        """Return the error that says why nothing is done without the engine."""
        return StoreUnavailable(f"{self._name} cannot be reached, and {why}: try again later", store=self._name)

    def listen(self) -> None:
        """Begin to read periodically."""
        with self._lock:
            self._start()

    def close(self) -> None:
        """Send the waiting events and close the engine."""
        self.closed = True
        self._wake.set()
        try:
            if self._sender is not None and self._sender.is_current:
                self.refresh()
        except StoreError as error:
            if self.waiting:
                logger.warning("%d events could not be sent to the store: %s", len(self.waiting), error)
        finally:
            if self._spool is not None:
                self._spool.close()
            self._engine.close()

    def send_due(self) -> float:
        """Send waiting events, or read where a refresh is due; return the seconds to sleep until the next call."""
        try:
            with self._busy:  # the previous holder may have sent everything
                if self.waiting or self.hastened or self._clock() - self._refreshed_s >= self._refresh_s:
                    self._exchange()
        except StoreError:  # counted, and logged once
            return RETRY_S
        return min(self._flush_s, self._refresh_s)

    def _exchange(self, *, refresh: bool = False) -> bool:
        """Send the waiting events and take over the reply; return False if the events must be sent again."""
        participant = self._participant()
        if participant is None:
            return True
        with self._lock:
            self._leave_to_parent()
            sent = [self.waiting[at] for at in range(min(MAX_EVENTS_PER_EXCHANGE, len(self.waiting)))]
            started_s = self._clock()
            due = refresh or self.hastened or started_s - self._refreshed_s >= self._refresh_s
            self.hastened = self.hastened and not due
            extras, reading = participant.compose(sent, due=due)
            brief = self._engine.near and not refresh and participant.decides_alone()
        try:
            events = [Acknowledge(self._identity.name, self.received_s), *map(_encoded, sent), *extras]
            reply = self._engine.exchange(events, reading, BRIEF_S if brief else None)
        except StoreError as error:
            self._fail(len(sent), error)
            raise
        with self._lock:
            self._succeed(started_s, reply)
            delivered = self._deliver(participant, sent, reply, started_s)
            if delivered and due:
                self._refreshed_s = started_s
            return delivered

    def _deliver(
        self, participant: ExchangeParticipant, sent: list[PendingEvent], reply: Reply, started_s: float
    ) -> bool:
        """Hand over the reply to the participant and the callers; return False if the events must be sent again."""
        known_s, results = cast("float", reply.results[0]), reply.results[1:]
        if known_s >= self.received_s:
            self.received_s, known_s = acknowledged_s(known_s, reply.now_s), float("inf")
        for pending, result in zip(sent, results, strict=False):
            pending.result = result
        for _ in sent:
            self.waiting.popleft()
        instead = participant.take(sent, results[len(sent) :], reply, started_s, known_s)
        if instead is not None:
            self.waiting.extendleft(reversed(instead))
            return False
        for pending in sent:
            pending.done = True
        if not self.waiting:
            self._clear_spool()
        return True

    def _leave_to_parent(self) -> None:
        """Forget the events for which a caller waits in the process that this one was forked from: it sends them."""
        if self._identity.renew_after_fork():
            self.received_s = 0.0
            self.waiting = deque([pending for pending in self.waiting if pending.applied])

    def _succeed(self, started_s: float, reply: Reply) -> None:
        ended_s = self._clock()
        self.offset_s = reply.now_s - 0.5 * (started_s + ended_s)
        self._replied_s = ended_s
        self._exchanges += 1
        if self._failed_s is not None:
            logger.warning("%s answers again; %d events were waiting", self._name, len(self.waiting))
            self._failed_s = None

    def _fail(self, n_sent: int, error: StoreError) -> None:
        """Record a failure: events that a caller waits for fail, all others are sent again later."""
        with self._lock:
            if self._failed_s is None:
                logger.error("%s; until it answers again, %s", error, self._meanwhile)
            self._failed_s = self._clock()
            self._failures += 1
            sent = [self.waiting[at] for at in range(n_sent)]
            failed = [pending for pending in self.waiting if not pending.applied and not pending.is_deferred()]
            self.waiting = deque([pending for pending in self.waiting if pending.applied])
            for pending in sent:
                if isinstance(pending.event, Reserve) and not pending.applied:  # it may have arrived all the same
                    undo = Settle(pending.event.id, "released", fresh_id())
                    self.waiting.append(PendingEvent(undo, "", applied=True, resent=True))
            for pending in failed:
                pending.error, pending.done = error, True
            self._keep(self.waiting)

    def _keep(self, events: Iterable[PendingEvent]) -> None:
        """Write events to the spool that are not in it yet."""
        unwritten = [pending for pending in events if not pending.spooled]
        if self._spool is not None and unwritten:
            self._spool.keep([_encoded(pending) for pending in unwritten])
            for pending in unwritten:
                pending.spooled = True

    def _clear_spool(self) -> None:
        """Delete the spool, and those of other workers that were taken over: everything was sent."""
        if self._spool is not None:
            self._spool.clear()
        while self._inherited:
            self._inherited.pop().unlink(missing_ok=True)

    def _take_over(self) -> None:
        """Send the events that workers which have ended have left behind."""
        if self._spool is not None:
            events, self._inherited = self._spool.left_behind()
            self.waiting.extend([PendingEvent(event, "", applied=True) for event in events])
            if events:
                logger.warning("%s gets %d events of workers that ended while it was away", self._name, len(events))

    def _start(self) -> None:
        """Start the thread that sends and reads in the background; once per process."""
        self._leave_to_parent()
        if self.closed or (self._sender is not None and self._sender.is_current):
            return
        if self._sender is None:
            self._take_over()
        self._sender, self._wake = WorkerIdentity(), Signal()  # that of a parent may be in use by its thread
        Thread(target=_run, args=(weakref.ref(self), self._wake), name="wiserouter-store", daemon=True).start()
        if (participant := self._participant()) is not None:
            close_at_end(participant)


def _encoded(pending: PendingEvent) -> Event:
    """Return the event to send, with the record of a decision as text."""
    if isinstance(pending.event, Reserve) and pending.record is not None:
        return pending.event._replace(record=text_of_record(pending.record))
    return pending.event


def _run(client: weakref.ref[EngineClient], wake: Signal) -> None:
    """Send what is due until the client is closed or no longer referenced."""
    sleep_s = 0.0
    while not wake.wait(sleep_s):
        alive = client()
        if alive is None:
            return
        sleep_s = alive.send_due()
        del alive
