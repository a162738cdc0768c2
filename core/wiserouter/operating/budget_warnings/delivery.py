"""The delivery of warnings: a thread and a bounded queue for each receiver, with retries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, Full, Queue
from threading import Event, Thread

from tenacity import Retrying, retry_if_exception, sleep_using_event, stop_after_attempt, wait_random_exponential

from wiserouter.errors import WiseRouterError
from wiserouter.operating.budget_warnings.notice import Notice, printable

logger = logging.getLogger("wiserouter")

Send = Callable[[Notice], None]
"""Sends a warning, in a thread that may wait; raises `DeliveryFailed`."""

MAX_WAITING = 256
"""Most warnings that wait for one receiver; further ones are dropped."""

_POLL_S = 0.2


class DeliveryFailed(WiseRouterError):
    """A warning could not be delivered.

    Attributes
    ----------
    passing : bool
        Whether a later attempt may succeed.
    """

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


class Delivery:
    """Delivers warnings to one receiver, one after the other.

    Parameters
    ----------
    send : callable
        Sends one.
    attempts : int, default 6
        Attempts for each; the pauses double from half a second, up to a minute.
    max_waiting : int, default 256
        Most warnings that wait.

    Attributes
    ----------
    sent, failed, dropped : int
        Warnings that arrived, that did not after all attempts, and that found the queue full.
    """

    def __init__(self, send: Send, *, attempts: int = 6, max_waiting: int = MAX_WAITING) -> None:
        self._send, self._closing = send, Event()
        self._waiting: Queue[Notice] = Queue(max_waiting)
        self._retrying = Retrying(
            stop=stop_after_attempt(attempts),
            wait=wait_random_exponential(multiplier=0.5, max=60.0),
            retry=retry_if_exception(_is_worth_another),
            sleep=sleep_using_event(self._closing),
            reraise=True,
        )
        self._thread: Thread | None = None
        self.sent = self.failed = self.dropped = 0

    def put(self, notice: Notice) -> None:
        """Deliver a warning soon; drop it where too many wait."""
        try:
            self._waiting.put_nowait(notice)
        except Full:
            self.dropped += 1
            logger.error("a warning is dropped, since %d others wait: %s", self._waiting.maxsize, notice.text)
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._run, name="wiserouter-warnings", daemon=True)
            self._thread.start()

    def close(self, within_s: float = 5.0) -> None:
        """Deliver what waits, without pauses between attempts, and end."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        while True:
            try:
                notice = self._waiting.get(timeout=_POLL_S)
            except Empty:
                if self._closing.is_set():
                    return
                continue
            self._deliver(notice)

    def _deliver(self, notice: Notice) -> None:
        try:
            self._retrying(self._send, notice)
        except Exception as error:  # a receiver that fails must not end the thread
            self.failed += 1
            logger.error("a warning is not delivered (%s): %s", printable(str(error)), notice.text)
        else:
            self.sent += 1


def _is_worth_another(error: BaseException) -> bool:
    return isinstance(error, DeliveryFailed) and error.passing
