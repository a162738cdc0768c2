"""The wait of a worker that starts for a store that cannot be reached."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from wiserouter.errors import StoreUnavailable
from wiserouter_litellm.errors import SettingsError

logger = logging.getLogger("wiserouter.litellm")

STORE_WAIT_S = 60.0
"""How long a worker that starts waits for a store that cannot be reached: a restart of Redis, or a failover."""

SLICE_S = 0.1
"""How soon a wait ends once the server is asked to end."""

T = TypeVar("T")


def once_reachable(open_groups: Callable[[], T]) -> T:
    """Open groups; where their store is away, try again for `STORE_WAIT_S`, or until a signal asks the server to end.

    The server ends all workers of a proxy when one that it starts, in the place of another, ends before it serves.
    """
    ends_s, pause_s = time.monotonic() + STORE_WAIT_S, 1.0
    with _asked_to_end() as asked:
        while True:
            try:
                return open_groups()
            except SettingsError as error:
                away = error.__cause__
                passes = isinstance(away, StoreUnavailable) and not away.lasts
                if not passes or time.monotonic() + pause_s > ends_s:
                    raise
                logger.warning("%s; trying again in %g s", error, pause_s)
                _rest(pause_s, asked)
                if asked:
                    raise
                pause_s = min(2.0 * pause_s, 8.0)


def _rest(time_s: float, asked: list[int]) -> None:
    """Sleep, but no longer than until the server is asked to end."""
    until_s = time.monotonic() + time_s
    while not asked and (left_s := until_s - time.monotonic()) > 0.0:
        time.sleep(min(SLICE_S, left_s))


@contextmanager
def _asked_to_end() -> Iterator[list[int]]:
    """Collect the signals that ask the server to end, which its own handlers only note while a worker starts."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        former = formers[number]
        if callable(former):
            former(number, frame)

    ends = int(signal.SIGTERM), int(signal.SIGINT)
    formers = {number: signal.signal(number, note) for number in ends}
    try:
        yield asked
    finally:
        for number, former in formers.items():
            signal.signal(number, signal.SIG_DFL if former is None else former)
