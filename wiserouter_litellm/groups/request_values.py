"""The values of requests: by what the proxy knows of the caller, or by the client's word where a setting allows it.

The value of a request multiplies its reward when the budget is divided: see `WiseRouter.decide`. A client could claim
any value, so that the proxy reads none unless `values.claims_up_to` is set, and then none above it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.integration import check_value
from wiserouter_litellm.errors import bad_value
from wiserouter_litellm.groups.scopes import ids_of_key

VALUE = "wiserouter_value"
"""Key of the metadata by which a program, or a client that may, states the value of a call."""

VALUE_HEADER = "x-wiserouter-value"

ValueRule = Callable[[Mapping[str, Any], Mapping[str, Any]], float | None]
"""Returns the value of a request from its keyword arguments and LiteLLM's metadata; None for 1."""


def value_in_metadata(_: Mapping[str, Any], metadata: Mapping[str, Any]) -> float | None:
    """Return the value that the program itself states in the metadata of its call; None where it states none."""
    value: float | None = metadata.get(VALUE)
    return value


def value_of(group: str, rule: ValueRule, kwargs: Mapping[str, Any], metadata: Mapping[str, Any]) -> float | None:
    """Return the value of a request by a rule; None for 1. Raises `litellm.BadRequestError` for one that is none."""
    value = rule(kwargs, metadata)
    try:
        return None if value is None else check_value(value)
    except InvalidInput as error:
        raise bad_value(group, error) from error


@dataclass(frozen=True)
class CallerValues:
    """The values of the requests of a proxy.

    Attributes
    ----------
    by : str
        The field that identifies a caller: "team", "organization", "user", "key", "tag" or "metadata.<field>".
    known : mapping of str to float
        The values of callers by id.
    claims_up_to : float or None
        The most that a client may state by header or metadata, where its key has no value; None reads no claim.
    """

    by: str = "team"
    known: Mapping[str, float] = field(default_factory=dict)
    claims_up_to: float | None = None

    def __call__(self, kwargs: Mapping[str, Any], metadata: Mapping[str, Any]) -> float | None:
        """Return the value of a request: that of its key, else the client's claim, else None."""
        stated = next((self.known[id_] for id_ in ids_of_key(metadata, self.by) if id_ in self.known), None)
        if stated is not None or self.claims_up_to is None:
            return stated
        claim = _claim_of(kwargs, metadata)
        return None if claim is None else min(claim, self.claims_up_to)


def _claim_of(kwargs: Mapping[str, Any], metadata: Mapping[str, Any]) -> float | None:
    """Return the value that a client states; None where it states none, or no number of at least 0.001."""
    request = kwargs.get("proxy_server_request")
    headers = request.get("headers") if isinstance(request, Mapping) else None
    claim = headers.get(VALUE_HEADER) if isinstance(headers, Mapping) else None
    for source in (metadata, metadata.get("requester_metadata")):
        if claim is None and isinstance(source, Mapping):
            claim = source.get(VALUE)
    try:
        value = float(claim)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return value if value >= 1e-3 else None  # NaN is not
