"""JSON objects and lists as LiteLLM passes them: as dicts and lists, as other mappings, or as pydantic objects.

Almost every one is a dict, a list or a pydantic object, so these are tested first: the abstract types behind them take
four times as long, and an attribute that a pydantic object lacks ten times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAPPING = (dict, Mapping)
"""Any mapping, for `isinstance`."""

SEQUENCE = (list, Sequence)
"""Any sequence, for `isinstance`."""

_NOT_PYDANTIC: Mapping[str, Any] = {}


def field_of(value: object, name: str) -> Any:
    """Return a field of a mapping or an object; None where it has no such field.

    Examples
    --------
    >>> field_of({"id": "a"}, "id"), field_of("text", "id")
    ('a', None)
    """
    if isinstance(value, dict):
        return value.get(name)
    extra = getattr(value, "__pydantic_extra__", _NOT_PYDANTIC)
    if extra is _NOT_PYDANTIC:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    fields = value.__dict__
    if name in fields:
        return fields[name]
    return extra.get(name) if extra else None
