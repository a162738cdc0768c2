"""Requests that wait while the rest of their budget is only held by calls in flight, each scope in order of arrival.

A call in flight reserves its worst case, and most of it comes back when the call is settled. So a request that does not
fit now waits for the next settlement instead of being refused:

* The first of a scope tries again after each settlement of this process and, for settlements of other workers and for
  budgets that renew, every `poll_s`. The others wait until they are the first.
* A request that only the budget of its run holds up steps aside, and tries again like the first of a scope, since the
  other runs would wait behind it.
* A request that would not fit even if all calls in flight cost nothing is refused at once, and so is one that finds too
  many waiting.
* A request that has waited for its time tries once more, with any model that fits; then it is refused.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary, ref

from wiserouter.errors import BudgetExhausted, RunBudgetExhausted
from wiserouter.parallel.forks import held_at_fork
from wiserouter.router import WiseRouter
from wiserouter.stores.offload import offload

MAX_WAIT_S = 10.0
"""How long a request waits by default: longer than most calls take, shorter than clients and gateways wait."""

MAX_WAITING = 1_000
"""The most requests of a router that wait at the same time."""

POLL_S = 0.1
"""How often the first of each scope tries again without a settlement of this process."""

OVERDUE_S = 1.0
"""A request that has not come back this long after its time is no longer waited for: its event loop has stopped."""

T = TypeVar("T")


class OwnLine(str):
    """The line of one request that waits for its run."""

    __slots__ = ()


class Waiter(Protocol):
    """A request that waits in `line` until `until_s`; `wake` lets it try again, and is False if its loop is closed."""

    line: str
    until_s: float

    def wake(self) -> bool:
        """Let it try again."""
        ...


class ThreadWaiter:
    """A request that waits in a thread."""

    def __init__(self, line: str, until_s: float) -> None:
        self.line, self.until_s, self.woken = line, until_s, threading.Event()

    def wake(self) -> bool:
        """Let it try again."""
        self.woken.set()
        return True


class TaskWaiter:
    """A request that waits on an event loop."""

    def __init__(self, line: str, until_s: float) -> None:
        self.line, self.until_s, self.woken = line, until_s, asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> bool:
        """Let it try again; return False if its event loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self.woken.set)
        except RuntimeError:
            return False
        return True

    async def pause(self, at_most_s: float) -> bool:
        """Wait until it is woken; return False if it is not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self.woken.wait()
        return self.woken.is_set()


class AdmissionQueue:
    """The requests of one router that wait for settlements.

    Parameters
    ----------
    router : WiseRouter
        Reports each settlement; only a weak reference to it is kept.
    max_waiting : int, default 1,000
        The most requests that wait at the same time.
    poll_s : float, seconds, default 0.1
        How often the first of each scope tries again without a settlement of this process.
    clock : callable returning float, default time.monotonic
        Seconds.

    Notes
    -----
    Serves threads and any number of event loops at once.
    """

    def __init__(
        self,
        router: WiseRouter,
        *,
        max_waiting: int = MAX_WAITING,
        poll_s: float = POLL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_waiting = max_waiting
        self._router, self._poll_s, self._clock = ref(router), poll_s, clock
        self._lines: dict[str, deque[Waiter]] = {}
        self._lock = held_at_fork(threading.RLock(), innermost=True)
        self._refreshed_s = float("-inf")
        router.notify(self.wake)

    @property
    def n_waiting(self) -> int:
        """The number of requests that wait."""
        with self._lock:
            return sum(map(len, self._lines.values()))

    def wake(self) -> None:
        """Let the first of each scope try again."""
        if self._lines:
            with self._lock:
                for line in list(self._lines):
                    self._wake_first(line)

    def admit(self, scope: str, attempt: Callable[[bool], T], needed_usd: Callable[[], float], max_wait_s: float) -> T:
        """Return the result of the first attempt that succeeds: one is made at once, and one after each settlement.

        A thread that runs an event loop with other tasks does not wait, since it would hold them up.

        Parameters
        ----------
        scope : str
            The scope whose budget pays.
        attempt : callable
            Decides and reserves; its argument is `may_wait` of `WiseRouter.decide`.
        needed_usd : callable returning float
            The least worst case of the request, by which it may be refused without an attempt; 0 if it is not known.
        max_wait_s : float, seconds
            The time after which the last attempt is made, with any model that fits; 0 refuses at once.

        Raises
        ------
        BudgetExhausted
            If it does not fit, or too many wait already.
        """
        if scope not in self._lines:
            try:
                return attempt(max_wait_s > 0.0)
            except BudgetExhausted as error:
                _check_waits(error, may_wait=max_wait_s > 0.0)
        waiter = ThreadWaiter(scope, self._clock() + (0.0 if _holds_up_tasks() else max_wait_s))
        with self._in_line(waiter, needed_usd()):
            return self._wait(waiter, attempt)

    async def aadmit(
        self,
        scope: str,
        attempt: Callable[[bool], T],
        needed_usd: Callable[[], float],
        max_wait_s: float,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """Do what `admit` does, on an event loop.

        Parameters
        ----------
        scope, attempt, needed_usd, max_wait_s
            As in `admit`.
        undo : callable, optional
            Given where an attempt may block: it then runs in a thread, and `undo` gets its result if the caller was
            cancelled meanwhile.
        """
        if scope not in self._lines:
            try:
                return attempt(max_wait_s > 0.0) if undo is None else await _offloaded(attempt, undo, max_wait_s > 0.0)
            except BudgetExhausted as error:
                _check_waits(error, may_wait=max_wait_s > 0.0)
        needed = needed_usd() if undo is None else await offload(needed_usd)
        waiter = TaskWaiter(scope, self._clock() + max_wait_s)
        with self._in_line(waiter, needed):
            return await self._await(waiter, attempt, undo)

    def _wait(self, waiter: ThreadWaiter, attempt: Callable[[bool], T]) -> T:
        """Try again whenever it is this request's turn."""
        while True:
            waiter.woken.clear()
            is_first, may_wait = self._stage(waiter)
            if is_first or not may_wait:
                try:
                    return attempt(may_wait)
                except BudgetExhausted as error:
                    _check_waits(error, may_wait=may_wait)
                    self._step_aside(waiter, error)
            woken = waiter.woken.wait(self._pause_s(waiter, is_first=is_first))
            if is_first and not woken and self._is_refresh_due():
                self._known_router().refresh()

    async def _await(self, waiter: TaskWaiter, attempt: Callable[[bool], T], undo: Callable[[T], object] | None) -> T:
        """Do what `_wait` does, on an event loop."""
        while True:
            waiter.woken.clear()
            is_first, may_wait = self._stage(waiter)
            if is_first or not may_wait:
                try:
                    return attempt(may_wait) if undo is None else await _offloaded(attempt, undo, may_wait)
                except BudgetExhausted as error:
                    _check_waits(error, may_wait=may_wait)
                    self._step_aside(waiter, error)
            woken = await waiter.pause(self._pause_s(waiter, is_first=is_first))
            if is_first and not woken and self._is_refresh_due():
                await offload(self._known_router().refresh)

    @contextmanager
    def _in_line(self, waiter: Waiter, needed_usd: float) -> Iterator[None]:
        """Let a request wait behind the others of its scope; however it ends, the next one is woken."""
        account = self._known_router().snapshot(waiter.line).account
        if needed_usd > account.reachable_usd() or self.n_waiting >= self.max_waiting:
            raise account.exhausted(needed_usd)
        with self._lock:
            self._lines.setdefault(waiter.line, deque()).append(waiter)
        try:
            yield
        finally:
            with self._lock:
                self._leave(waiter)

    def _leave(self, waiter: Waiter) -> None:
        line = self._lines.get(waiter.line)
        if line is not None and waiter in line:
            was_first = line[0] is waiter
            line.remove(waiter)
            if was_first:
                self._wake_first(waiter.line)

    def _step_aside(self, waiter: Waiter, error: BudgetExhausted) -> None:
        """Let a request that waits for its own run make room for the others of its scope."""
        if isinstance(error, RunBudgetExhausted) and not isinstance(waiter.line, OwnLine):
            with self._lock:
                self._leave(waiter)
                waiter.line = OwnLine(f"{waiter.line} {id(waiter)}")
                self._lines[waiter.line] = deque([waiter])

    def _wake_first(self, name: str) -> None:
        """Wake the first of a line; those whose event loop has ended make room for the next."""
        line, now_s = self._lines[name], self._clock()
        while line and (now_s > line[0].until_s + OVERDUE_S or not line[0].wake()):
            line.popleft()
        if not line:
            del self._lines[name]

    def _stage(self, waiter: Waiter) -> tuple[bool, bool]:
        """Return two flags: a request is the first of its line, and it has time left."""
        with self._lock:
            line = self._lines.get(waiter.line)
            return line is not None and line[0] is waiter, self._clock() < waiter.until_s

    def _pause_s(self, waiter: Waiter, *, is_first: bool) -> float:
        left_s = max(0.0, waiter.until_s - self._clock())
        return min(left_s, self._poll_s) if is_first else left_s

    def _is_refresh_due(self) -> bool:
        """Return True, once in each `poll_s`, where other workers may have settled calls."""
        with self._lock:
            now_s = self._clock()
            if not self._known_router().durable or now_s - self._refreshed_s < self._poll_s:
                return False
            self._refreshed_s = now_s
            return True

    def _known_router(self) -> WiseRouter:
        router = self._router()
        if router is None:
            raise ReferenceError("the router of this queue no longer exists")
        return router


_queues: WeakKeyDictionary[WiseRouter, AdmissionQueue] = WeakKeyDictionary()
_opening = threading.Lock()


def admission_queue(router: WiseRouter) -> AdmissionQueue:
    """Return the queue of a router; all who use the router share it."""
    with _opening:
        queue = _queues.get(router)
        if queue is None:
            queue = _queues[router] = AdmissionQueue(router)
        return queue


def _check_waits(error: BudgetExhausted, *, may_wait: bool) -> None:
    """Raise an error that no wait helps against; where calls were settled meanwhile, its amount may be free by now."""
    if not (may_wait and (error.is_only_held or error.needed_usd <= error.left_usd)):
        raise error


async def _offloaded(attempt: Callable[[bool], T], undo: Callable[[T], object], may_wait: bool) -> T:
    return await offload(partial(attempt, may_wait), undo)


def _holds_up_tasks() -> bool:
    """Return True if this thread runs an event loop with other tasks, which could settle nothing meanwhile."""
    try:
        return len(asyncio.all_tasks()) > 1
    except RuntimeError:  # it runs none
        return False
