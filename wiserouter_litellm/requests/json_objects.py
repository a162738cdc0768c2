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
    if value is None:
        return None
    if isinstance(value, dict):
        return value.get(name)
    extra = getattr(value, "__pydantic_extra__", _NOT_PYDANTIC)
    if extra is _NOT_PYDANTIC:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    fields = value.__dict__
    if name in fields:
        return fields[name]
    return extra.get(name) if extra else None


def fields_of(value: object) -> Mapping[str, Any]:
    """Return the fields of a mapping or an object, for where several are read; none of a value that has none.

    Examples
    --------
    >>> fields_of({"id": "a"}).get("id"), fields_of("text").get("id")
    ('a', None)
    """
    if isinstance(value, dict):
        return value
    extra = getattr(value, "__pydantic_extra__", _NOT_PYDANTIC)
    if extra is _NOT_PYDANTIC:
        return value if isinstance(value, Mapping) else getattr(value, "__dict__", _NOT_PYDANTIC)
    return {**extra, **value.__dict__} if extra else value.__dict__


def id_and_messages(answer: object) -> tuple[object, list[Mapping[str, Any]]]:
    """Return the id of an answer, and the fields of a chat's messages; no message of an answer of another kind.

    Examples
    --------
    >>> id_and_messages({"id": "a", "choices": [{"message": {"content": "hi"}}]})
    ('a', [{'content': 'hi'}])
    """
    fields = fields_of(answer)
    choices = fields.get("choices")
    messages = (
        [fields_of(field_of(choice, "message")) for choice in choices] if isinstance(choices, list | tuple) else []
    )
    return fields.get("id"), messages
