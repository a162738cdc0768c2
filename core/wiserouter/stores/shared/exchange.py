"""The wire between a worker and the engine: steps that wait for an answer, and steps that are told on occasion.

Those who wait together go together: whoever is first takes the steps of all others along, in the order in which they
were made. After a failure what nobody waits for is sent again until it arrives; every event counts once.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event as Signal
from threading import RLock, Thread
from typing import Protocol

from wiserouter.errors import StoreError, StoreUnavailable
from wiserouter.stores.base import Health, Record
from wiserouter.stores.engines.base import Engine, ReadRequest, Reply
from wiserouter.stores.engines.events import Event, Reserve, Settle
from wiserouter.stores.ids import fresh_id
from wiserouter.stores.shared.codec import text_of_record
from wiserouter.stores.shared.replica import Effect

logger = logging.getLogger("wiserouter")

AT_ONCE = 500
"""The most steps that go in one exchange."""

RETRY_S = 1.0
"""After an exchange has failed, nobody waits for another one so soon."""


@dataclass(slots=True, eq=False)
class PendingEvent:
    """An event on its way to the engine.

    Attributes
    ----------
    event : Event
        What is to be done.
    scope : str
        Whose account to read with it; "" for none.
    windows : tuple of str
        Where it counts.
    effect : callable, optional
        What it does to the ledger of each of these windows.
    shown : bool
        Whether the worker's view shows it already; then nobody waits for it, else somebody does.
    again : bool
        Whether it is sent a second time, because the engine did not know what it is about.
    record : Record, optional
        The decision that a `Reserve` is for: put into words when it is sent, off the path of a decision.
    done, result, error
        What came of it.
    """

    event: Event
    scope: str
    windows: tuple[str, ...] = ()
    effect: Effect | None = None
    shown: bool = False
    again: bool = False
    record: Record | None = None
    done: bool = False
    result: object = None
    error: StoreError | None = None


class ExchangeParticipant(Protocol):
    """The worker's end of the wire: what it adds to an exchange and makes of the reply; called with the lock held."""

    def compose(self, steps: Sequence[PendingEvent], *, due: bool) -> tuple[list[Event], ReadRequest]:
        """Return the events that go along, and what to read; all that is read now and then where it is `due`."""
        ...

    def take(
        self, steps: Sequence[PendingEvent], extras: list[object], reply: Reply, asked_s: float
    ) -> Sequence[PendingEvent] | None:
        """Take over a reply, and the results of the events that went along.

        Returns None, or where the engine has lost its memory the steps to send in the place of those that were sent.
        """
        ...


class EngineClient:
    """Sends steps to an engine.

    Parameters
    ----------
    engine : Engine
        The other end.
    ends : ExchangeParticipant
        The worker's end.
    lock : RLock
        Held while the state of the worker changes, never while the engine is waited for.
    clock : callable returning float
        Seconds.
    name : str
        What errors and logs call the store.
    refresh_s, flush_s : float, seconds
        How often to read, and how long a step that nobody waits for may lie.
    """

    def __init__(
        self,
        engine: Engine,
        ends: ExchangeParticipant,
        lock: RLock,
        clock: Callable[[], float],
        *,
        name: str,
        refresh_s: float,
        flush_s: float,
    ) -> None:
        self._engine, self._clock, self._name = engine, clock, name
        self._ends = weakref.ref(ends)
        self._refresh_s, self._flush_s = refresh_s, flush_s
        self._lock, self._busy, self._wake = lock, RLock(), Signal()
        self._failed_s: float | None = None
        self._refreshed_s = self._replied_s = float("-inf")
        self._failures = self._exchanges = 0
        self._process = 0
        self.waiting: deque[PendingEvent] = deque()
        self.offset_s = 0.0
        self.closed = False

    @property
    def broken(self) -> bool:
        """Whether the last exchange failed."""
        return self._failed_s is not None

    def tell(self, *steps: PendingEvent) -> None:
        """Send steps soon; nobody waits for them."""
        with self._lock:
            self.waiting.extend(steps)
            self._start()

    def ask(self, step: PendingEvent) -> object:
        """Send a step and return its result; raises what the engine raises."""
        with self._lock:
            self._start()
            if self._failed_s is not None and self._clock() - self._failed_s < RETRY_S:
                raise self.unavailable("it was tried a moment ago")
            self.waiting.append(step)
        while not step.done:
            with self._busy, suppress(StoreError):  # a failure is told to the step
                if not step.done:
                    self._exchange()
        if step.error is not None:
            raise step.error
        return step.result

    def refresh(self) -> None:
        """Send all that waits, and read how things stand; raises what the engine raises."""
        with self._busy:
            self._exchange(refresh=True)
            while self.waiting:
                self._exchange()

    def health(self) -> Health:
        """Return whether the engine answers, how old the last reply is, and what waits to be sent."""
        with self._lock:
            age_s = self._clock() - self._replied_s
            return Health(not self.broken, age_s, len(self.waiting), self._failures, self._exchanges)

    def unavailable(self, why: str) -> StoreUnavailable:
        """Return the error that says why nothing is done without the engine."""
        return StoreUnavailable(f"{self._name} cannot be reached, and {why}: try again later", store=self._name)

    def listen(self) -> None:
        """Begin to read now and then."""
        with self._lock:
            self._start()

    def close(self) -> None:
        """Send what waits, and hang up."""
        self.closed = True
        self._wake.set()
        try:
            if self._process == os.getpid():
                self.refresh()
        except StoreError as error:
            logger.warning("%d events could not be told to the store: %s", len(self.waiting), error)
        finally:
            self._engine.close()

    def beat(self) -> float:
        """Send what waits where it is due, and return how long to sleep."""
        try:
            with self._busy:  # who held it may have sent all there was
                if self.waiting or self._clock() - self._refreshed_s >= self._refresh_s:
                    self._exchange()
        except StoreError:  # noted, and logged once
            return RETRY_S
        return min(self._flush_s, self._refresh_s)

    def _exchange(self, *, refresh: bool = False) -> None:
        """Send what waits, and take over the reply."""
        ends = self._ends()
        if ends is None:
            return
        with self._lock:
            steps = [self.waiting[at] for at in range(min(AT_ONCE, len(self.waiting)))]
            started_s = self._clock()
            due = refresh or started_s - self._refreshed_s >= self._refresh_s
            extras, reading = ends.compose(steps, due=due)
        try:
            reply = self._engine.exchange([*[_worded(step) for step in steps], *extras], reading)
        except StoreError as error:
            self._fail(len(steps), error)
            raise
        with self._lock:
            self._succeed(started_s, reply)
            for step, result in zip(steps, reply.results, strict=False):
                step.result = result
            for _ in steps:
                self.waiting.popleft()
            once_more = ends.take(steps, reply.results[len(steps) :], reply, started_s)
            if once_more is not None:
                self.waiting.extendleft(reversed(once_more))
                return
            for step in steps:
                step.done = True
            self._refreshed_s = started_s if due else self._refreshed_s

    def _succeed(self, started_s: float, reply: Reply) -> None:
        ended_s = self._clock()
        self.offset_s = reply.now_s - 0.5 * (started_s + ended_s)
        self._replied_s = ended_s
        self._exchanges += 1
        if self._failed_s is not None:
            logger.warning("%s answers again; %d events were waiting", self._name, len(self.waiting))
            self._failed_s = None

    def _fail(self, n_sent: int, error: StoreError) -> None:
        """Note a failure; who waits is told, all else is sent again later."""
        with self._lock:
            if self._failed_s is None:
                logger.error("%s; nothing is decided but what was leased, until it answers again", error)
            self._failed_s = self._clock()
            self._failures += 1
            asked = [step for step in self.waiting if not step.shown]
            perhaps = [self.waiting[at].event for at in range(n_sent) if not self.waiting[at].shown]
            self.waiting = deque([step for step in self.waiting if step.shown])
            for event in perhaps:
                if isinstance(event, Reserve):  # it may have arrived all the same
                    undo = Settle(event.id, "released", fresh_id())
                    self.waiting.append(PendingEvent(undo, "", shown=True, again=True))
            for step in asked:
                step.error, step.done = error, True

    def _start(self) -> None:
        """Start the thread that sends what nobody waits for; once per process."""
        if self._process == os.getpid() or self.closed:
            return
        self._process = os.getpid()
        Thread(target=_run, args=(weakref.ref(self), self._wake), name="wiserouter-store", daemon=True).start()
        atexit.register(_close, self._ends)


def _worded(step: PendingEvent) -> Event:
    if isinstance(step.event, Reserve) and step.record is not None:
        return step.event._replace(record=text_of_record(step.record))
    return step.event


def _run(wire: weakref.ref[EngineClient], wake: Signal) -> None:
    """Send what waits, until nobody keeps the store any more."""
    sleep_s = 0.0
    while not wake.wait(sleep_s):
        one = wire()
        if one is None:
            return
        sleep_s = one.beat()
        del one


def _close(store: weakref.ref[ExchangeParticipant]) -> None:
    one = store()
    close = getattr(one, "close", None)
    if close is not None:
        close()
