"""Requests that carry a key: where an answer sends them elsewhere, the key does not go along."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

_HARMLESS = frozenset({"Accept"})
"""The headers that another server may see."""


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


def opened(request: Request, timeout_s: float) -> Any:
    """Return the answer to a request; raises as `urllib.request.urlopen` does.

    Raises
    ------
    urllib.error.HTTPError
        If it is refused, or if it has a body and is sent elsewhere.
    """
    return build_opener(_KeepsKeys).open(request, timeout=timeout_s)


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
