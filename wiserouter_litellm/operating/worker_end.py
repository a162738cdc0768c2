"""The end of a proxy worker: its stores send what waits and return their leases as the application ends.

A server that was ended by a signal sends itself that signal again once the application has ended. The worker dies of
it, and nothing that was registered for the end of a process is called.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from contextlib import suppress
from functools import wraps
from types import ModuleType
from typing import Any, Protocol, TypeVar

from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER

logger = logging.getLogger("wiserouter.litellm")

LOGGED_S = 5.0
"""How long the reports of calls that LiteLLM has not made yet are waited for."""

CLOSED_S = 10.0
"""How long stores that cannot be reached are waited for."""

_SHUTDOWN = "proxy_shutdown_event"
"""The function that LiteLLM awaits last as its application ends."""


class Closable(Protocol):
    """A store or a journal."""

    def close(self) -> None:
        """End it; a second call does nothing."""
        ...


One = TypeVar("One", bound=Closable)

_opened: weakref.WeakSet[Any] = weakref.WeakSet()


def closed_at_end(one: One) -> One:
    """Return a store or a journal, which is closed when the application of the proxy ends."""
    _opened.add(one)
    return one


def close_at_end(proxy: ModuleType) -> None:
    """Let the application of the proxy close what it has opened when it ends; once per process."""
    end: Any = getattr(proxy, _SHUTDOWN, None)
    if end is None or hasattr(end, "__wrapped__"):
        return

    @wraps(end)
    async def end_and_close(*args: Any, **terms: Any) -> None:
        try:
            await end(*args, **terms)
        finally:
            await _close_all()

    setattr(proxy, _SHUTDOWN, end_and_close)


async def _close_all() -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(GLOBAL_LOGGING_WORKER.flush(), LOGGED_S)
    closing = [asyncio.ensure_future(asyncio.to_thread(_close, one)) for one in _opened]
    _opened.clear()
    if closing:
        await asyncio.wait(closing, timeout=CLOSED_S)


def _close(one: Closable) -> None:
    try:
        one.close()
    except Exception as error:  # the others are closed all the same
        logger.warning("%s is not closed: %s", type(one).__name__, error)
