"""An event loop whose clock jumps to the next timer in place of waiting for it; the time of day moves along.

What the loop has handed to threads takes no time either: the clock stands still until they are done.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import time_machine

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_WAIT_S = 1.0  # for a thread, which wakes the loop once it is done


class _Jumping(selectors.DefaultSelector):
    """Has the clock jump as far as it was to wait, where nothing is ready and no thread is at work."""

    def __init__(self, jump: Callable[[float], bool]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None):
        if timeout is None or timeout <= 0.0:
            return super().select(timeout)
        return super().select(0.0) or ([] if self._jump(timeout) else super().select(MOST_WAIT_S))


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop in which neither a sleep nor a thread takes time; the time of day moves along."""

    def __init__(self, traveller: time_machine.Coordinates) -> None:
        self.now_s = 0.0
        self._traveller = traveller
        self._threads: set[Any] = set()
        super().__init__(_Jumping(self._jump))

    def time(self) -> float:
        return self.now_s

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        future = super().run_in_executor(executor, func, *args)
        self._threads.add(future)
        future.add_done_callback(self._threads.discard)
        return future

    def _jump(self, wait_s: float) -> bool:
        """Return False, and leave the clock as it is, where a thread is at work."""
        if self._threads:
            return False
        self.now_s += wait_s
        self._traveller.shift(wait_s)
        return True


def run_in_virtual_time(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, and return what it returns."""
    with (
        time_machine.travel(START, tick=False) as traveller,
        asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(traveller)) as runner,
    ):
        return runner.run(main)
