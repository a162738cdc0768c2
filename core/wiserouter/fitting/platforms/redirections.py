"""Requests that carry a key: where an answer sends them elsewhere, the key does not go along."""

from __future__ import annotations

import re
from http.client import HTTPException, InvalidURL, RemoteDisconnected
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from wiserouter.errors import InvalidInput

_HARMLESS = frozenset({"Accept"})
"""The headers that another server may see."""

_UNSENDABLE = re.compile("[\r\n]|[^\0-\xff]")


class _KeepsKeys(HTTPRedirectHandler):
    """Follows the redirection of a GET, to another server without headers, and that of no other request.

    A POST would arrive as a GET without its body.
    """

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        """Return the request to send, or None for none."""
        if req.data is not None:
            return None
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        if found is not None and not _is_same_server(req.full_url, newurl):
            found.headers = {name: value for name, value in found.headers.items() if name in _HARMLESS}
        return found

    def http_error_302(self, req: Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Return the answer from elsewhere; the first one is closed also where that address cannot be read."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def opened(request: Request, timeout_s: float) -> Any:
    """Return the answer to a request.

    Raises
    ------
    urllib.error.HTTPError
        If it is refused, or if it has a body and is sent elsewhere.
    OSError
        If the server cannot be reached, or answers otherwise than by HTTP.
    InvalidInput
        If a header or the address cannot be sent, or the address to which the server sends the request.
    """
    for name, text in request.header_items():
        if _UNSENDABLE.search(text):
            rule = f"the header {name} must be one line of Latin letters and signs, got another text"
            raise InvalidInput(f"{rule}: check its key for line breaks and signs that were pasted with it", value=name)
    place = request.host.rpartition("@")[2]
    try:
        return build_opener(_KeepsKeys).open(request, timeout=timeout_s)
    except HTTPError:
        raise
    except URLError as error:
        rule = f"{place} cannot be reached: {error.reason}"
        raise ConnectionError(f"{rule}; check the address, and that a server runs there") from error
    except (InvalidURL, ValueError) as error:
        rule = f"{place} must be an address, or lead to one, whose host and port can be read, got {error}"
        raise InvalidInput(f"{rule}: correct it, or ask where the server leads", value=place) from error
    except RemoteDisconnected as error:
        raise ConnectionError(f"{place} closed the connection without an answer: try again") from error
    except HTTPException as error:
        raise ConnectionError(f"{place} must answer by HTTP, got {error!r:.100}: check its port") from error


def check_address(url: str) -> None:
    """Raise `InvalidInput` unless an address is one of http or https, with a host and a port that can be read.

    Examples
    --------
    >>> check_address("http://localhost:4000")
    >>> check_address("localhost:4000")
    Traceback (most recent call last):
    ...
    wiserouter.errors.InvalidInput: an address must begin with http:// or https:// and name a host, got 'localhost:4000'
    """
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in {"http", "https"} and parts.hostname is not None and parts.port != 0
    except ValueError as error:
        rule = f"an address must be http(s)://host:port/path, got {url!r:.200}: {error}"
        raise InvalidInput(rule, value=url) from error
    if not is_one:
        rule = f"an address must begin with http:// or https:// and name a host, got {url!r:.200}"
        raise InvalidInput(rule, value=url)


def _is_same_server(url: str, other: str) -> bool:
    """Return True if two addresses are of one server, or the other one is its encrypted one.

    Examples
    --------
    >>> _is_same_server("http://a.org/x", "https://a.org/y"), _is_same_server("https://a.org", "http://a.org")
    (True, False)
    """
    one, two = urlsplit(url), urlsplit(other)
    is_upgrade = (one.scheme, one.port, two.scheme, two.port) == ("http", None, "https", None)
    return one.hostname == two.hostname and (is_upgrade or (one.scheme, one.port) == (two.scheme, two.port))
