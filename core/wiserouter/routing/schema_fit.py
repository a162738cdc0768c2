"""Whether an answer fits the JSON schema that was asked for, in bounded time.

A client may choose both. So no reference is fetched, no regular expression is run, and a comparison ends after
`MOST_STEPS`. What is not read says nothing against an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

MOST_STEPS = 50_000
"""Most parts of schemas that are compared with a value; where there are more, the answer counts as fitting."""

_TYPES = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class _TooLong(Exception):
    """The comparison has taken all its steps."""


def fits(value: object, schema: object) -> bool:
    """Return False if a value certainly misses a schema.

    Examples
    --------
    >>> schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    >>> fits({"n": 1}, schema), fits({"n": "one"}, schema), fits({}, schema)
    (True, False, False)
    """
    try:
        return _Comparison(schema).fits(value, schema)
    except (_TooLong, RecursionError):
        return True


class _Comparison:
    """The comparison of one value with one schema."""

    def __init__(self, root: object) -> None:
        self._root, self._steps = root, 0
        self._named: dict[str, object] = {}

    def fits(self, value: object, schema: object) -> bool:
        self._step(1)
        if not isinstance(schema, Mapping):
            return schema is not False
        self._step(sum(len(part) for part in (schema, *schema.values()) if isinstance(part, list | Mapping)))
        if "$ref" in schema:
            return self.fits(value, self._referred(schema["$ref"]))
        return (
            _has_type(value, schema)
            and _is_listed(value, schema)
            and all(self.fits(value, one) for one in _list(schema.get("allOf")))
            and (not (some := _list(schema.get("anyOf"))) or any(self.fits(value, one) for one in some))
            and (not isinstance(value, dict) or self._fits_object(value, schema))
            and (not isinstance(value, list) or self._fits_array(value, schema))
        )

    def _step(self, parts: int) -> None:
        self._steps += parts
        if self._steps > MOST_STEPS:
            raise _TooLong

    def _referred(self, reference: object) -> object:
        """Return the part that a reference names, which is looked up once: a text may be as long as its schema."""
        if not isinstance(reference, str):
            return True
        if reference not in self._named:
            self._named[reference] = _part_named(self._root, reference)
        return self._named[reference]

    def _fits_object(self, value: dict[str, Any], schema: Mapping[str, Any]) -> bool:
        properties, others = _mapping(schema.get("properties")), schema.get("additionalProperties")
        if not all(name in value for name in _list(schema.get("required")) if isinstance(name, str)):
            return False
        if others is False and "patternProperties" not in schema and not value.keys() <= properties.keys():
            return False
        return all(self.fits(value[name], properties[name]) for name in value.keys() & properties.keys())

    def _fits_array(self, value: list[Any], schema: Mapping[str, Any]) -> bool:
        if "prefixItems" in schema or not isinstance(schema.get("items"), Mapping):
            return True
        return all(map(self.fits, value, repeat(schema["items"])))


def _part_named(root: object, reference: str) -> object:
    """Return the part of a schema that a reference names; True, which everything fits, where it names no part of it."""
    if not f"{reference}/".startswith("#/"):
        return True
    found = root
    for name in reference.split("/")[1:]:
        found = found.get(name.replace("~1", "/").replace("~0", "~"), True) if isinstance(found, Mapping) else True
    return found


def _has_type(value: object, schema: Mapping[str, Any]) -> bool:
    """Return True if a value has one of the types of a schema, or these are unknown."""
    names = schema.get("type")
    asked = [names] if isinstance(names, str) else _list(names)
    known = [_TYPES.get(name) if isinstance(name, str) else None for name in asked]
    if not asked or None in known or (value is None and schema.get("nullable")):
        return True
    return any(_is_of(value, name) for name in asked)


def _is_of(value: object, name: str) -> bool:
    if isinstance(value, bool):  # also an int, in Python
        return name == "boolean"
    return isinstance(value, _TYPES[name]) and (
        name != "integer" or isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    )


def _is_listed(value: object, schema: Mapping[str, Any]) -> bool:
    """Return True if a text or a number is among the values that a schema lists, where it lists some."""
    listed = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    return not listed or isinstance(value, dict | list) or value in listed


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
