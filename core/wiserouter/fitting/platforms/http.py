"""JSON over HTTP with retries: a request that fails for a passing reason is sent again, later each time.

One that is refused with `Retry-After` waits as long as the platform says. Langfuse lets 30 requests a minute pass on
its free plan, so that a long import meets that often.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import IncompleteRead
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from wiserouter.errors import InvalidInput, WiseRouterError
from wiserouter.fitting.platforms.redirections import check_address, opened

TIMEOUT_S = 30.0
ATTEMPTS = 5
MAX_BYTES = 64 * 2**20
"""Most bytes of an answer."""

MOST_WAIT_S = 300.0
"""Longest time that a platform may ask to wait; limits of a day or a month are refused at once."""

_PASSING = frozenset(
    {408, 425, 429, 500, 502, 503, 504, *range(520, 530)}
)  # from 520 on: Cloudflare's; 529: overloaded


class HttpRefused(WiseRouterError):
    """A platform answered a request with an error.

    Attributes
    ----------
    status : int
        The HTTP status.
    wait_s : float, seconds, or None
        The time after which the request may be sent again, where the platform says so.
    """

    def __init__(self, status: int, url: str, body: str, wait_s: float | None = None) -> None:
        later = "" if wait_s is None else f" (again after {wait_s:,.0f} s)"
        super().__init__(f"{urlsplit(url).netloc}{urlsplit(url).path} answered {status}{later}: {body:.200}")
        self.status, self.wait_s = status, wait_s


def refusal_of(error: HTTPError, url: str) -> HttpRefused:
    """Return the error of a request that was refused, with what the platform said; of a redirection, where it leads."""
    with error:
        place = _place(error.headers.get("location") or "")
        if 300 <= error.code < 400 and place:
            said = f"it moved to {place}: give that address"
        else:
            said = error.read(2_000).decode("utf-8", "replace")
        wait_s = _seconds_of((error.headers.get("retry-after") or "").strip(), error.headers.get("date") or "")
    return HttpRefused(error.code, url, said, wait_s)


def _seconds_of(wait: str, now: str) -> float | None:
    """Return a time to wait in seconds, given so or as a date, which counts from the server's own.

    Examples
    --------
    >>> _seconds_of("41", ""), _seconds_of("Fri, 27 Nov 2026 12:01:00 GMT", "Fri, 27 Nov 2026 12:00:30 GMT")
    (41.0, 30.0)
    """
    if _SECONDS.fullmatch(wait):
        return float(wait)
    with suppress(ValueError, OverflowError):
        return max(_at_s(wait) - (_at_s(now) if now else time.time()), 0.0)
    return None


def _at_s(date: str) -> float:
    """Return the time of a date of HTTP, which is GMT also where it does not say so."""
    at = parsedate_to_datetime(date)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def _place(url: str) -> str:
    """Return the scheme, the host and the port of an address, "" where they cannot be read."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc and parts.port != 0 else ""
    except ValueError:
        return ""


def request_json(
    url: str,
    *,
    query: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    body: object = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Any:
    """Return the JSON that answers a request: a GET, or a POST where there is a body.

    Parameters
    ----------
    url : str
        An http or https address.
    query, headers : mapping, optional
        Parameters and headers; a parameter that is None is left out.
    body : object, optional
        Sent as JSON.
    sleep : callable
        Waits between attempts.

    Raises
    ------
    HttpRefused
        If it is refused, at once or at the last attempt.
    OSError
        If the server cannot be reached.
    InvalidInput
        If the address is none, or the answer is no JSON.
    """
    check_address(url)
    kept = {name: value for name, value in (query or {}).items() if value is not None}
    address = f"{url}?{urlencode(kept, doseq=True)}" if kept else url
    data = None if body is None else json.dumps(body).encode()
    sent = {"accept": "application/json", **({} if data is None else {"content-type": "application/json"})}
    request = Request(address, data=data, headers={**sent, **(headers or {})})  # noqa: S310 - the scheme is checked
    retrying = Retrying(
        stop=stop_after_attempt(ATTEMPTS),
        wait=_wait_s,
        retry=retry_if_exception(_passes),
        reraise=True,
        sleep=sleep,
    )
    return retrying(_sent, request, url)


def _sent(request: Request, url: str) -> Any:
    try:
        with opened(request, TIMEOUT_S) as answer:
            text = answer.read(MAX_BYTES)
            is_cut = len(text) < MAX_BYTES and bool(answer.length)  # what is still to come
    except HTTPError as error:
        raise refusal_of(error, url) from None
    except IncompleteRead:
        is_cut = True
    if is_cut:
        raise ConnectionError(f"{urlsplit(url).netloc} closed the connection in the middle of its answer: try again")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{urlsplit(url).netloc} must answer with JSON, got {text[:80]!r}") from error


_backoff = wait_random_exponential(multiplier=0.5, max=20.0)


def _wait_s(state: RetryCallState) -> float:
    """Return the time until the next attempt: what the platform says, at least, and a random one."""
    error = state.outcome.exception() if state.outcome else None
    return _backoff(state) + (getattr(error, "wait_s", None) or 0.0)


def _passes(error: BaseException) -> bool:
    if isinstance(error, HttpRefused):
        return error.status in _PASSING and (error.wait_s or 0.0) <= MOST_WAIT_S
    return isinstance(error, TimeoutError | ConnectionError)
