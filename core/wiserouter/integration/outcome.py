"""The outcome of a failed call: whether its error proves that the provider billed nothing.

A provider may have billed a call that timed out, was cancelled, lost its connection or ended in a server error. Only
three kinds of errors prove the opposite: an answer that refuses the request (4xx), a connection that was never made,
and an argument that the client does not take.
A content filter reads the prompt before it refuses it, and some providers, such as Azure, bill that. Errors are told
apart by their status code and by the names of their classes, so that no client needs to be imported.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from typing import Any

_UNCERTAIN_STATUSES = frozenset({408, 424, 499})
"""Client errors by which the provider, or a proxy before it, may have begun to answer."""

_ABOUT_THE_REQUEST = frozenset({400, 409, 413, 414, 415, 422})

_NEVER_SENT = frozenset(
    {
        *("httpx.ConnectError", "httpx.ConnectTimeout", "httpx.PoolTimeout", "httpx.ProxyError"),
        *("httpx.UnsupportedProtocol", "httpx.InvalidURL"),
        *("httpcore.ConnectError", "httpcore.ConnectTimeout", "httpcore.PoolTimeout", "httpcore.ProxyError"),
        *("aiohttp.ClientConnectorError", "aiohttp.ConnectionTimeoutError", "aiohttp.InvalidURL"),
        *("urllib3.NewConnectionError", "urllib3.ConnectTimeoutError", "requests.ConnectTimeout"),
        *("botocore.EndpointConnectionError", "botocore.ConnectTimeoutError", "botocore.NoCredentialsError"),
        *("builtins.ConnectionRefusedError", "socket.gaierror", "ssl.SSLCertVerificationError"),
    }
)
"""Errors before the request left; versions in the name of a package, as in `httpx2`, do not count."""

_MAYBE_ANSWERED = frozenset(
    {
        *("httpx.ReadTimeout", "httpx.WriteTimeout", "httpx.ReadError", "httpx.WriteError"),
        *("httpcore.ReadTimeout", "httpcore.WriteTimeout", "httpcore.ReadError", "httpcore.WriteError"),
        *("httpx.RemoteProtocolError", "httpcore.RemoteProtocolError", "requests.ReadTimeout"),
        *("aiohttp.ServerDisconnectedError", "aiohttp.SocketTimeoutError", "aiohttp.ClientPayloadError"),
        *("urllib3.ReadTimeoutError", "urllib3.ProtocolError"),
        *("builtins.ConnectionResetError", "builtins.BrokenPipeError"),
        *("litellm.MidStreamFallbackError", "litellm.GuardrailRaisedException", "litellm.BlockedPiiEntityError"),
        "litellm.ContentPolicyViolationError",
    }
)
"""Errors after the request left, whatever status they bring."""

_REFUSED_BY_CLIENT = re.compile(
    r"(Async)?((Completions|Responses|Messages)\.(create|parse|stream)|Client\.chat)"
    r"\(\) got an unexpected keyword argument "
)
"""Python's message where the method by which OpenAI's, Anthropic's or Ollama's client sends refuses an argument."""

_CLIENTS = frozenset({"openai", "anthropic"})

_FILTERED = frozenset({"content_filter", "content_policy_violation"})
"""The codes in the errors of providers whose content filter refused a request."""


def proves_unbilled(error: BaseException | None) -> bool:
    """Return True if the error of a call proves that the provider billed nothing for it.

    Parameters
    ----------
    error : BaseException or None
        The error as the caller sees it, before any part of an answer arrived. Its causes are read from the outside in:
        the first one that says how far the request came decides, where a server error, a timeout without further
        cause and an unknown error say nothing.

    Examples
    --------
    >>> proves_unbilled(ConnectionRefusedError("nothing listens")), proves_unbilled(TimeoutError("no answer yet"))
    (True, False)
    """
    if isinstance(error, BaseExceptionGroup):
        return all(map(proves_unbilled, error.exceptions))
    return next((verdict for each in _chain(error) if (verdict := _verdict(each)) is not None), False)


def refuses_request(error: BaseException | None) -> bool:
    """Return True if an error is about the request itself, which says nothing about the state of the model.

    Examples
    --------
    >>> refuses_request(ConnectionRefusedError("nothing listens"))
    False
    """
    return any(_status_code(each) in _ABOUT_THE_REQUEST or _is_refused_by_client(each) for each in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, the outermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _verdict(error: BaseException) -> bool | None:
    """Return True if one error proves that nothing was billed, False if it does not, None if its cause decides."""
    names = {_name(kind) for kind in type(error).__mro__}
    if not isinstance(error, Exception) or names & _MAYBE_ANSWERED or str(getattr(error, "code", "")) in _FILTERED:
        return False
    if names & _NEVER_SENT or _is_refused_by_client(error):
        return True
    status = _status_code(error)
    if status is None or status >= 500 or status in _UNCERTAIN_STATUSES:  # clients wrap any error in a server error
        return None
    return status >= 400


def _is_refused_by_client(error: BaseException) -> bool:
    """Return True if a client refuses an argument of an adapter: callbacks have clients too, after the request."""
    if not isinstance(error, TypeError) or not _REFUSED_BY_CLIENT.match(str(error)):
        return False
    frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    callers = [package for name in frames if (package := name.partition(".")[0]) not in _CLIENTS]
    return bool(callers) and callers[-1].startswith(("langchain_", "litellm"))


def _status_code(error: BaseException) -> int | None:
    """Return the HTTP status that an error carries, or None."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):  # as botocore has it
        return _whole((response.get("ResponseMetadata") or {}).get("HTTPStatusCode"))
    carriers = ((error, "status_code"), (response, "status_code"), (error, "code"), (error, "status"))
    return next((status for where, name in carriers if (status := _whole(getattr(where, name, None)))), None)


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _name(kind: type) -> str:
    """Return the name of a class behind that of its package, without the package's version."""
    package = kind.__module__.partition(".")[0].rstrip("0123456789")
    return f"{package.removeprefix('_')}.{kind.__qualname__}"
