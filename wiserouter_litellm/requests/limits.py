"""The limits of a request under a hard budget: read, checked, and written back into the request as whole numbers.

A hard budget bounds the cost of a call by the limits that the provider receives. So the limits that were read are the
limits that are sent: text such as "4096" becomes a number, and null is taken out, so that `cap_output_tokens` applies.
A parameter that is not known to be harmless is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from litellm.exceptions import BadRequestError

from wiserouter_litellm.requests.parameters import ANSWERS, CHAT, OUTPUT_LIMITS, broken_parameter

CHAT_LIMITS = OUTPUT_LIMITS[CHAT]
ALL_LIMITS = (*CHAT_LIMITS, "max_output_tokens")
ALL_ANSWERS = ("n", "best_of")
LIMIT_NAMES = frozenset({*ALL_LIMITS, *ALL_ANSWERS})

LEAST_OUTPUT_TOKENS = 16
"""LiteLLM raises a lower limit to this where it calls the responses API."""

MAX_OUTPUT_TOKENS = 10**9
"""A larger limit bounds nothing."""

MAX_ANSWERS = 1_024

_RANGES = {
    surface: dict.fromkeys(names, MAX_OUTPUT_TOKENS) | dict.fromkeys(ANSWERS[surface], MAX_ANSWERS)
    for surface, names in OUTPUT_LIMITS.items()
}
"""The largest value of each limit, by surface."""


def write_limits(group: str, kwargs: dict[str, Any], surface: str = CHAT, given: Collection[str] | None = None) -> None:
    """Replace the limits of a request by whole numbers, in place, and let streams report their usage.

    Parameters
    ----------
    group : str
        The model group, for the error.
    kwargs : dict
        The request's keyword arguments, as LiteLLM sends them on.
    surface : str, default "chat"
        "chat", "responses" or "messages".
    given : collection of str, optional
        The parameters that are the request's own, where the others are those of its deployment; all by default.

    Raises
    ------
    litellm.BadRequestError
        If a limit is no whole number in its range, or a parameter is not known to leave the cost as it is bounded. It
        names the parameter; nothing is changed.

    Examples
    --------
    >>> request = {"max_tokens": "60", "n": None}
    >>> write_limits("wise", request)
    >>> request
    {'max_tokens': 60}
    """
    ranges = _RANGES[surface]
    written = {name: _limit(group, name, kwargs[name], most) for name, most in ranges.items() if name in kwargs}
    checked = {name: value for name, value in kwargs.items() if name not in ranges and (given is None or name in given)}
    broken = broken_parameter(surface, checked)
    if broken is not None:
        raise _refused(group, *broken)
    for name, limit in written.items():
        if limit is None:
            del kwargs[name]
        else:
            kwargs[name] = limit
    if surface == CHAT and kwargs.get("stream"):
        kwargs["stream_options"] = {**(kwargs.get("stream_options") or {}), "include_usage": True}


def drop_null_limits(kwargs: dict[str, Any]) -> None:
    """Remove limits that are null from a request, in place: LiteLLM would let them replace `cap_output_tokens`."""
    for name in LIMIT_NAMES & kwargs.keys():
        if kwargs[name] is None:
            del kwargs[name]


def _limit(group: str, name: str, value: object, most: int) -> int | None:
    """Return a limit as a whole number; None for null."""
    if value is None:
        return None
    number = whole_number(value)
    if number is None or not 1 <= number <= most:
        raise _refused(group, name, f"must be a whole number from 1 to {most:,}, got {value!r:.60}")
    return number


def whole_number(value: object) -> int | None:
    """Return a whole number, also if it is written as text or as a float; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None


def _refused(group: str, name: str, rule: str) -> BadRequestError:
    return BadRequestError(
        f"group {group!r}: {name} {rule}; the budget is hard, so a call is bounded before it is sent",
        model=group,
        llm_provider="wiserouter",
    )
