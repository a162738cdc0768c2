"""Requests that bring a router of their own (`user_config`): refused where it sends a call to one of our groups.

LiteLLM makes a router of it for the one request, with deployments, ids and prices as the client states them. By a name,
an alias, a wildcard or a fallback they would join the group, in place of its own where the ids are the same, and be
reserved and charged at those prices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litellm.exceptions import BadRequestError


def refuse_client_router(group: str, kwargs: Mapping[str, Any]) -> None:
    """Refuse a call for `group` whose deployments are those of a router that the client has brought.

    Raises
    ------
    litellm.BadRequestError
        Naming the parameter.

    Examples
    --------
    >>> refuse_client_router("wise", {"proxy_server_request": {"body": {"model": "wise", "user_config": None}}})
    """
    if brings_router(kwargs):
        raise BadRequestError(
            f"group {group!r}: user_config must send no call to it: its deployments and prices would take the place of "
            "those of the group; give its model another name",
            model=group,
            llm_provider="wiserouter",
        )


def brings_router(kwargs: Mapping[str, Any]) -> bool:
    """Return True if the deployments of a call are those of a router that the client has brought."""
    body = (kwargs.get("proxy_server_request") or {}).get("body")
    return isinstance(body, Mapping) and body.get("user_config") is not None
