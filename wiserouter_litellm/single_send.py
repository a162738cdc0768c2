"""One send for each reservation: LiteLLM's HTTP client sends a request again where its connection breaks.

The provider may have billed the first one by then, and a hard limit has reserved the cost of one call. So calls under a
hard limit get the error, which LiteLLM's router may answer with a retry that has a reservation of its own. Clients that
come with a provider, such as OpenAI's, do not send again without `max_retries`.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from functools import wraps
from typing import Any

from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

SENDS_ONCE: ContextVar[bool] = ContextVar("wiserouter_sends_once", default=False)
"""Whether the request of the attempt that the current task makes is sent once only."""

_AGAIN = "single_connection_post_request"
"""The method by which LiteLLM sends again, while it handles the error of the first connection."""


def send_once(once: bool) -> None:
    """Determine for the attempt that the current task makes whether its request is sent once only."""
    if SENDS_ONCE.get() is once:
        return
    if once:
        _install()
    SENDS_ONCE.set(once)


def _install() -> None:
    """Let LiteLLM's method refuse to send again where the attempt may not; once per process."""
    again: Any = getattr(AsyncHTTPHandler, _AGAIN, None)
    if again is None or hasattr(again, "__wrapped__"):
        return

    @wraps(again)
    async def unless_once(*arguments: Any, **options: Any) -> Any:
        error = sys.exc_info()[1]
        if error is not None and SENDS_ONCE.get():
            raise error
        return await again(*arguments, **options)

    setattr(AsyncHTTPHandler, _AGAIN, unless_once)
