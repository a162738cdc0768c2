"""The admission of calls, with its refusals and the times of its decisions in the metrics of the router."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from wiserouter import WiseRouter
from wiserouter.errors import WiseRouterError
from wiserouter.integration import AdmissionQueue

T = TypeVar("T")


class CountedAdmission:
    """The queue of a router; what a call waits for is no refusal, only the error that ends it is one.

    Parameters
    ----------
    router : WiseRouter
        Has the observers that count.
    queue : AdmissionQueue
        Admits the calls.
    """

    def __init__(self, router: WiseRouter, queue: AdmissionQueue) -> None:
        self._router, self._queue = router, queue

    def admit(self, scope: str, attempt: Callable[[bool], T], needed_usd: Callable[[], float], max_wait_s: float) -> T:
        """Do what `AdmissionQueue.admit` does."""
        with self._counting():
            return self._queue.admit(scope, self._measured(attempt), needed_usd, max_wait_s)

    async def aadmit(
        self,
        scope: str,
        attempt: Callable[[bool], T],
        needed_usd: Callable[[], float],
        max_wait_s: float,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """Do what `AdmissionQueue.aadmit` does."""
        with self._counting():
            return await self._queue.aadmit(scope, self._measured(attempt), needed_usd, max_wait_s, undo)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except WiseRouterError as error:
            for one in self._router.request_observers:
                one.refused(error)
            raise

    def _measured(self, attempt: Callable[[bool], T]) -> Callable[[bool], T]:
        """Return an attempt whose time is taken, where an observer asks for it."""
        observers = self._router.request_observers
        if not observers:
            return attempt

        def timed(may_wait: bool) -> T:
            start_s = time.perf_counter()
            try:
                return attempt(may_wait)
            finally:
                for one in observers:
                    one.measured(time.perf_counter() - start_s)

        return timed
