"""A webhook: a POST of JSON, signed with a secret."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from hashlib import sha256
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from wiserouter.errors import InvalidInput
from wiserouter.operating.budget_warnings.delivery import DeliveryFailed
from wiserouter.operating.budget_warnings.notice import Notice

SIGNATURE = "X-WiseRouter-Signature"
"""The header of the signature: `t=<seconds since 1970>,v1=<HMAC-SHA256 of "<t>.<body>" in hexadecimal digits>`."""

_PASSING = frozenset({408, 425, 429, *range(500, 600)})


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirection: a warning goes where the operator said."""

    def redirect_request(self, *_: object) -> None:
        """Return no request."""


class Webhook:
    """Sends warnings to an address.

    Parameters
    ----------
    url : str
        An http or https address of ASCII characters, without user and password.
    secret : str, optional
        Signs each warning, so that the receiver knows who sent it and when; without one nothing is signed.
    timeout_s : float, default 10
        The longest wait for an answer.
    clock : callable returning float, optional
        Seconds since 1970.

    Raises
    ------
    InvalidInput
        If the address is none, or the secret is empty.
    """

    def __init__(
        self, url: str, secret: str | None = None, *, timeout_s: float = 10.0, clock: Callable[[], float] | None = None
    ) -> None:
        import time

        if secret == "":
            raise InvalidInput("the secret of a webhook must not be empty: anyone could sign; leave it out")
        url = url.strip()  # a secret that is read from a file often ends in a newline
        self.name = _place(url)
        self._url, self._secret, self._timeout_s = url, secret, timeout_s
        self._clock = clock or time.time
        self._opener = build_opener(_NoRedirects)

    def __call__(self, notice: Notice) -> None:
        """Send a warning.

        Raises
        ------
        DeliveryFailed
            If the receiver refuses it, or cannot be reached.
        """
        body = json.dumps(notice.as_dict()).encode()
        headers = {"content-type": "application/json", "user-agent": "wiserouter", "idempotency-key": notice.id}
        if self._secret is not None:
            headers[SIGNATURE] = signature(body, self._secret, int(self._clock()))
        request = Request(self._url, data=body, headers=headers, method="POST")  # noqa: S310 - the scheme is checked
        try:
            with self._opener.open(request, timeout=self._timeout_s):
                return
        except HTTPError as error:
            with error:
                status = error.code
            raise DeliveryFailed(f"{self.name} answered {status}", passing=status in _PASSING) from None
        except (OSError, HTTPException) as error:
            raise DeliveryFailed(f"{self.name} cannot be reached: {type(error).__name__}", passing=True) from None


def _place(url: str) -> str:
    """Return the scheme and the host of an address; errors leave the rest out, since paths are often secrets."""
    try:
        parts = urlsplit(url)
        scheme, host, _ = parts.scheme, parts.hostname, parts.port
    except ValueError:
        raise InvalidInput("the host and the port of a webhook cannot be read: give https://host:port/path") from None
    if scheme not in {"http", "https"} or not host:
        raise InvalidInput("the address of a webhook must begin with http:// or https://, got another one")
    if "@" in parts.netloc:
        raise InvalidInput(f"the address of the webhook at {host} must have no user and password: sign it by a secret")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidInput(
            "the address of a webhook must be of ASCII characters without spaces: percent-encode others, and write a "
            "host with them as xn--..."
        )
    return f"{scheme}://{host}"


def signature(body: bytes, secret: str, at_s: int) -> str:
    """Return the value of the header that signs a body."""
    digest = hmac.new(secret.encode(), f"{at_s}.".encode() + body, sha256).hexdigest()
    return f"t={at_s},v1={digest}"


def is_signed(body: bytes, header: str, secret: str, now_s: float, *, tolerance_s: float = 300.0) -> bool:
    """Return True if a body carries the signature of a secret, made lately: for receivers.

    Examples
    --------
    >>> header = signature(b"{}", "secret", 1_000)
    >>> is_signed(b"{}", header, "secret", 1_010.0), is_signed(b"{}", header, "secret", 9_999.0)
    (True, False)
    """
    at, _, _ = header.removeprefix("t=").partition(",")
    if not (at.isascii() and at.isdecimal() and len(at) < 12) or abs(now_s - int(at)) > tolerance_s:
        return False
    return hmac.compare_digest(header.encode(), signature(body, secret, int(at)).encode())
