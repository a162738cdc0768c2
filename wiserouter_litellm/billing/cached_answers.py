"""Answers that LiteLLM's cache gives in place of a provider: free, however they end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter_litellm.requests.json_objects import field_of


def is_replay(request_data: Mapping[str, Any]) -> bool:
    """Return True if the cache answers a request to the proxy, as the object that logs the request knows.

    Examples
    --------
    >>> is_replay({})
    False
    """
    details = field_of(request_data.get("litellm_logging_obj"), "caching_details")
    return field_of(details, "cache_hit") is True


def is_of_cache(event: Mapping[str, Any]) -> bool:
    """Return True if a log event says that the cache gave the answer.

    Examples
    --------
    >>> is_of_cache({"standard_logging_object": {"cache_hit": True}})
    True
    """
    return bool(event.get("cache_hit") or (event.get("standard_logging_object") or {}).get("cache_hit"))
