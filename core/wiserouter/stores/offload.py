"""Steps off the event loop that a cancelled caller cannot tear in two.

A step may wait for a store, so it is done in a thread. Whoever gives up waiting for it, as when a client goes away,
does not stop it: a bill would be lost, or money be held back for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def offload(step: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """Do a step in a thread, and return what it returns.

    Parameters
    ----------
    step : callable
        What to do; it is finished whoever gives up waiting.
    undo : callable, optional
        What to do with its result then, in a thread as well.
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
