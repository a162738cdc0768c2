"""Blocking steps run in a thread, off the event loop, and finish even if the caller is cancelled.

A step may wait for a store. A caller that is cancelled while it waits, as when a client disconnects, does not stop the
step: otherwise a bill could be lost, or money stay reserved for no call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import copy_context
from threading import Lock
from typing import Generic, TypeVar

from wiserouter.errors import StoreError, WiseRouterError

logger = logging.getLogger("wiserouter")

T = TypeVar("T")


async def offload(step: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """Run a step in a thread and return its result.

    Parameters
    ----------
    step : callable
        The step; it finishes even if the caller is cancelled.
    undo : callable, optional
        Called with the result of the step, in a thread as well, if the caller was cancelled.
    """
    handed = _Handover(step, undo)
    loop, context = asyncio.get_running_loop(), copy_context()
    done = loop.run_in_executor(None, context.run, handed.run)  # no task, which the end of the loop would cancel
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        done.add_done_callback(_report)
        if handed.leave():
            loop.run_in_executor(None, context.copy().run, handed.undo)  # the thread may be about to leave it
        raise


def _report(done: asyncio.Future[T]) -> None:
    """Log the error of a step whose caller has left, which asyncio would report as one that no one retrieved.

    A refusal is no error there: nothing was done, and no one asks any more.
    """
    error = None if done.cancelled() else done.exception()
    if error is not None and (isinstance(error, StoreError) or not isinstance(error, WiseRouterError)):
        logger.error("a step failed after its caller had left: %s", error, exc_info=error)


class _Handover(Generic[T]):
    """A step whose result is undone in its thread if the caller has left meanwhile: the loop may have ended by then."""

    def __init__(self, step: Callable[[], T], undo: Callable[[T], object] | None) -> None:
        self._step, self._undo = step, undo
        self._lock, self._is_left = Lock(), False
        self._results: list[T] = []

    def run(self) -> T:
        result = self._step()
        with self._lock:
            self._results.append(result)
            is_left = self._is_left
        if is_left:
            self.undo()
        return result

    def leave(self) -> bool:
        """Note that the caller has left, and return True if the step has ended before that."""
        with self._lock:
            self._is_left = True
            return bool(self._results)

    def undo(self) -> None:
        if self._undo is not None:
            self._undo(self._results[0])
