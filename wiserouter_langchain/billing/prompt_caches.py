"""Requests for a prompt cache of a provider: which are kept for longer than the price of a cache write pays for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

CACHES = ("cache_control", "cachePoint", "cache_point", "prompt_cache_breakpoint", "prompt_cache_options")
"""The names by which a setting, a content block or a tool asks for a cache."""

_SHORT_CACHES = ("5m", "30m", None)
"""The times for which a cache has the price of a cache write: the shortest ones of Anthropic and of OpenAI."""

LONG_CACHE = "must be kept for 5 minutes, or 30 minutes with OpenAI: a longer time has a price of its own"


def is_long(cache: object) -> bool:
    """Return True where the terms of a cache ask for a longer time than the shortest one of a provider."""
    return isinstance(cache, Mapping) and cache.get("ttl") not in _SHORT_CACHES


def is_of_an_hour(cache: object) -> bool:
    """Return True where the terms of a cache ask for an hour, as Anthropic has it."""
    return isinstance(cache, Mapping) and cache.get("ttl") == "1h"


def long_cache(value: object, is_meant: Callable[[object], bool] = is_long) -> str | None:
    """Return the name by which a content block or a tool, or anything within it, asks for a long cache, if one does.

    Parameters
    ----------
    value : object
        The block, or a list of them.
    is_meant : callable, default is_long
        Returns True for the terms of a cache that is meant.

    Examples
    --------
    >>> long_cache([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}])
    'cache_control'
    """
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, Mapping):
            if name := next((name for name in CACHES if is_meant(one.get(name))), None):
                return name
            pending += one.values()
        elif isinstance(one, list | tuple):
            pending += one
    return None
