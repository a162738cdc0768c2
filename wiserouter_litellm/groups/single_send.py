"""One send for each reservation: LiteLLM's HTTP client sends a request again where its connection breaks.

The provider may have billed the first one by then, and a hard limit has reserved the cost of one call. So calls under a
hard limit get the error, which LiteLLM's router may answer with a retry that has a reservation of its own. OpenAI's
client sends again, too, after errors and timeouts: for providers such as DeepInfra, LiteLLM lets it do so twice,
whatever `max_retries` says. So does LiteLLM itself with synchronous calls of the responses API, which it does not take
for calls of its router.

For Gemini, LiteLLM sends messages with `cache_control` on their own before the call, to be stored. The provider bills
that by the hour, for as long as the client likes, and no answer reports it. So those calls are made without it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any

import litellm
import openai
from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler
from litellm.llms.vertex_ai.context_caching.vertex_ai_context_caching import ContextCachingEndpoints

SENDS_ONCE: ContextVar[Callable[[], bool] | None] = ContextVar("wiserouter_sends_once", default=None)
"""Whether the request that the current task makes is sent once only: as long as its attempt is in flight."""

_AGAIN = "single_connection_post_request"
"""The method by which LiteLLM sends again, while it handles the error of the first connection."""

_MARK = "sends_once"
"""The attribute by which a method that was replaced is known."""

_RETRIES = "get_max_retries"
"""The method by which OpenAI's client learns how often it may send a request again."""

_OF_ROUTER = "_is_litellm_router_call"
"""The function by which LiteLLM learns that its router retries a call, so that it need not do so itself."""

_STORE = "check_and_create_cache"
"""The method by which LiteLLM has Gemini store messages, and returns those that it has not."""


def send_once(once: Callable[[], bool] | None) -> None:
    """Determine for the attempt that the current task makes whether its request is sent once only.

    Parameters
    ----------
    once : callable, optional
        Returns True as long as the attempt is in flight; None lets clients send again.
    """
    if once is not None:
        _install()
    if once is not SENDS_ONCE.get():
        SENDS_ONCE.set(once)


def _install() -> None:
    """Let the clients' methods refuse to send again where the attempt may not; once per process."""
    _wrap(AsyncHTTPHandler, _AGAIN, _unless_once)
    _wrap(getattr(getattr(openai, "_models", None), "FinalRequestOptions", None), _RETRIES, _none_where_once)
    _wrap(litellm.utils, _OF_ROUTER, _true_where_once)
    _wrap(ContextCachingEndpoints, _STORE, _unstored)
    _wrap(ContextCachingEndpoints, f"async_{_STORE}", _aunstored)


def _wrap(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    """Replace a method unless that is done already; what others put around either one leaves the mark in sight."""
    method = getattr(owner, name, None)
    if method is not None and not hasattr(method, _MARK):
        once = wraps(method)(wrapper(method))
        setattr(once, _MARK, True)
        setattr(owner, name, once)


def _is_once() -> bool:
    once = SENDS_ONCE.get()
    return once is not None and once()


def _unless_once(again: Any) -> Any:
    async def unless_once(*arguments: Any, **options: Any) -> Any:
        error = sys.exc_info()[1]
        if error is not None and _is_once():
            raise error
        return await again(*arguments, **options)

    return unless_once


def _none_where_once(retries: Any) -> Any:
    def none_where_once(*arguments: Any, **options: Any) -> int:
        return 0 if _is_once() else retries(*arguments, **options)

    return none_where_once


def _true_where_once(is_of_router: Any) -> Any:
    def true_where_once(*arguments: Any, **options: Any) -> bool:
        return _is_once() or is_of_router(*arguments, **options)

    return true_where_once


def _unstored(store: Any) -> Any:
    def unstored(*arguments: Any, **call: Any) -> Any:
        return _as_given(**call) if _is_once() else store(*arguments, **call)

    return unstored


def _aunstored(store: Any) -> Any:
    async def unstored(*arguments: Any, **call: Any) -> Any:
        return _as_given(**call) if _is_once() else await store(*arguments, **call)

    return unstored


def _as_given(*, messages: Any, optional_params: Any, cached_content: Any = None, **_: Any) -> tuple[Any, Any, Any]:
    """Return the messages and the parameters of a call as they are, of which nothing is stored."""
    return messages, optional_params, cached_content
