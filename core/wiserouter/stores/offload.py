"""Blocking steps run in a thread, off the event loop, and finish even if the caller is cancelled.

A step may wait for a store. A caller that is cancelled while it waits, as when a client disconnects, does not stop the
step: otherwise a bill could be lost, or money stay reserved for no call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

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
    done = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        if undo is not None:
            done.add_done_callback(lambda future: _undone(future, undo))
        raise


def _undone(done: asyncio.Future[T], undo: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        done.get_loop().run_in_executor(None, undo, done.result())
