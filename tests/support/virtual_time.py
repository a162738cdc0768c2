"""An event loop whose clock jumps to the next timer in place of waiting for it; the time of day moves along."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import time_machine

START = datetime(2026, 1, 1, tzinfo=UTC)


class _Jumping(selectors.DefaultSelector):
    """Returns at once where nothing is ready, and has the clock jump as far as it was to wait."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None):
        if timeout is None or timeout <= 0.0:
            return super().select(timeout)
        if not (ready := super().select(0.0)):
            self._jump(timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop in which a sleep takes no time; the time of day moves along."""

    def __init__(self, traveller: time_machine.Coordinates) -> None:
        self.now_s = 0.0
        self._traveller = traveller
        super().__init__(_Jumping(self._jump))

    def time(self) -> float:
        return self.now_s

    def _jump(self, wait_s: float) -> None:
        self.now_s += wait_s
        self._traveller.shift(wait_s)


def run_in_virtual_time(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, and return what it returns."""
    with (
        time_machine.travel(START, tick=False) as traveller,
        asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(traveller)) as runner,
    ):
        return runner.run(main)
