"""The outcome of a failed attempt: whether its error proves that the provider billed nothing.

LiteLLM gives its own errors a status, chosen by the text of what went wrong, and a response that no server sent: an
error inside an answer of status 200 becomes a `RateLimitError`. So they prove nothing. Proof is an error of the HTTP
clients underneath: a response whose status refuses the request, or a connection that was never made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal

import aiohttp
import httpx
import openai
from litellm.exceptions import (
    BudgetExceededError,
    ContentPolicyViolationError,
    ImageFetchError,
    LiteLLMUnknownProvider,
    MidStreamFallbackError,
    UnsupportedParamsError,
)

Outcome = Literal["unbilled", "unknown"]

UNBILLED_STATUSES = frozenset({400, 401, 402, 403, 404, 405, 413, 415, 422, 429})
"""The statuses by which a provider refuses a request before it generates anything."""

_UNSENT = (
    *(UnsupportedParamsError, LiteLLMUnknownProvider, BudgetExceededError),  # raised while the request is built
    ImageFetchError,  # the same: of an image that LiteLLM fetches itself to send it on
    *(httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL),
    *(aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL),
)
"""Errors before the request left."""

_SENT = (
    *(ContentPolicyViolationError, MidStreamFallbackError),  # filters read the prompt, and some providers bill that
    *(httpx.RequestError, aiohttp.ClientError, asyncio.CancelledError),
)
"""Errors after the request may have left, unless they are among `_UNSENT`."""


def outcome_of(error: BaseException | None, *, earlier: int | None = None) -> Outcome:
    """Return "unbilled" if the error of an attempt proves that nothing was billed, "unknown" otherwise.

    Parameters
    ----------
    error : BaseException or None
        The error, as LiteLLM raised it; its causes and contexts are searched.
    earlier : int, optional
        The `id` of the error that was being handled when the attempt began: that of the attempt before it, which
        Python chains to all errors of this one.

    Notes
    -----
    One sign that the request may have reached the provider outweighs any number of others: LiteLLM's HTTP client sends
    a request again where a connection breaks, and an error of the second connection hides that of the first.

    Examples
    --------
    >>> outcome_of(httpx.ConnectError("refused")), outcome_of(httpx.ReadTimeout("no answer"))
    ('unbilled', 'unknown')
    """
    return "unbilled" if _verdicts(error, earlier) == {"unbilled"} else "unknown"


def shows_sent(error: BaseException | None, *, earlier: int | None = None) -> bool:
    """Return True if the error of an attempt shows that its request may have reached a provider that bills it.

    An error without a sign of either is no such error: LiteLLM may have failed while it built the request. Parameters
    as in `outcome_of`.

    Examples
    --------
    >>> shows_sent(httpx.ReadTimeout("no answer")), shows_sent(TypeError("'int' object is not iterable"))
    (True, False)
    """
    return "unknown" in _verdicts(error, earlier)


def _verdicts(error: BaseException | None, earlier: int | None) -> set[Outcome]:
    return {verdict for link in _chain(error, earlier) if (verdict := _verdict(link)) is not None}


def _chain(error: BaseException | None, earlier: int | None) -> Iterator[BaseException]:
    """Yield an error, its causes and its contexts, up to the error of the attempt before."""
    seen: set[int | None] = {earlier}
    rest = [error]
    while rest:
        link = rest.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        rest += [link.__cause__, link.__context__]


def _verdict(link: BaseException) -> Outcome | None:
    """Return the outcome that one error of a chain proves; None if it only reports another."""
    if isinstance(link, httpx.HTTPStatusError):
        return _of_status(link.response.status_code)
    if isinstance(link, aiohttp.ClientResponseError):
        return _of_status(link.status)
    if isinstance(link, openai.APIStatusError) and not _made_by_litellm(link):
        return _of_status(link.status_code)
    if isinstance(link, httpx.RequestError) and isinstance(link.__cause__, aiohttp.ClientError):
        return None  # LiteLLM's transport takes a connection that was reset for one that was never made
    if isinstance(link, _UNSENT):
        return "unbilled"
    return "unknown" if isinstance(link, _SENT) else None


def _of_status(status: int) -> Outcome:
    return "unbilled" if status in UNBILLED_STATUSES else "unknown"


def _made_by_litellm(link: BaseException) -> bool:
    return any(kind.__module__ == "litellm.exceptions" for kind in type(link).__mro__)
