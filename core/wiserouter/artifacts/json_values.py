"""Checks of JSON values from a file: numbers that sums can hold, text that can be printed, and no deep nesting."""

from __future__ import annotations

from collections.abc import Iterable

MAX_NUMBER = 1e30
"""Largest magnitude of a number in an artifact, so that products and squares of sums stay finite."""

MAX_DEPTH = 32
"""Deepest nesting of the manifest."""


def check_json(value: object) -> None:
    """Raise `ValueError` if a number is too large or not finite, text has half a character, or nesting is too deep.

    Examples
    --------
    >>> check_json({"models": [{"name": "gpt-mini", "price": None}]})
    >>> check_json([float("nan")])
    Traceback (most recent call last):
    ValueError: a number of the manifest must be finite and at most 1e+30, got nan
    """
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        for one in level:
            _check_scalar(one)
        level = [inner for one in level for inner in _inner(one)]
    if level:
        raise ValueError(f"the manifest must be nested at most {MAX_DEPTH} deep")


def _check_scalar(value: object) -> None:
    if isinstance(value, int | float) and not abs(value) <= MAX_NUMBER:
        shown = f"{value}" if isinstance(value, float) else f"an integer of {value.bit_length()} bits"
        raise ValueError(f"a number of the manifest must be finite and at most {MAX_NUMBER:g}, got {shown}")
    if isinstance(value, str):
        value.encode()


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else ()
