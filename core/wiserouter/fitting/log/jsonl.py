"""The keys of a jsonl, and the checks of its lines: each must be one JSON object that is not nested too deep."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, NoReturn

from wiserouter.errors import LogError
from wiserouter.fitting.log.limits import check_columns, text_lines

MAX_DEPTH = 100
"""Deepest nesting of a line of a jsonl; polars ends the process at some thousands."""

MAX_DIGITS = 38
"""Most digits of a whole number of a jsonl; polars reads no longer ones."""

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)
_NO_BRACKET = re.compile(r"[^\[\]{}]+")


def keys_of(path: Path) -> list[str]:
    """Return the keys of all lines, in the order of their first appearance.

    Raises
    ------
    LogError
        If a line is not a JSON object, is nested deeper than `MAX_DEPTH`, or there are too many keys. Blank lines are
        not counted.
    """
    keys: dict[str, None] = {}
    filled = (line for line in text_lines(path) if line.strip())
    for row, line in enumerate(filled, start=1):
        if line.count("[") + line.count("{") > MAX_DEPTH and _depth(line) > MAX_DEPTH:
            raise LogError(f"a line must be nested at most {MAX_DEPTH} deep: flatten it", file=path, row=row)
        keys.update(dict.fromkeys(_object(path, row, line)))
        check_columns(path, len(keys))
    return list(keys)


def check_numbers(path: Path) -> None:
    """Raise `LogError` for the first number that is beyond any float, or has more digits than polars reads."""
    filled = (line for line in text_lines(path) if line.strip())
    for row, line in enumerate(filled, start=1):
        found: list[str] = []
        json.loads(line, parse_int=found.append, parse_float=found.append)
        for text in found:
            if (text.lstrip("-").isdigit() and len(text) > MAX_DIGITS) or math.isinf(float(text)):
                rule = f"a number must be at most 1.8e308, and have at most {MAX_DIGITS} digits where it is whole"
                got = text if len(text) <= MAX_DIGITS else f"{text[:20]}... of {len(text):,} characters"
                raise LogError(f"{rule}, got {got}: correct it, or write null", file=path, row=row, value=text)


def _depth(line: str) -> int:
    """Return the depth of nesting, without brackets in strings; a string that is not closed ends with the line.

    Examples
    --------
    >>> _depth('{"a": [[1], {"b": "[[[["}]}')
    3
    """
    deepest = depth = 0
    for bracket in _NO_BRACKET.sub("", _STRING.sub("", line)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
        if deepest > MAX_DEPTH:
            break
    return deepest


def _object(path: Path, row: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line, parse_constant=_no_constant)
        if isinstance(value, dict):
            return value
        raise ValueError(f"a {type(value).__name__}")
    except ValueError as error:
        rule = "the file is damaged or malformed: a line must be one JSON object, with null for NaN and infinities"
        is_list = row == 1 and line.lstrip().startswith("[")
        remedy = ": convert the list, such as with polars.read_json(file).write_ndjson(new)" if is_list else ""
        raise LogError(f"{rule}, got {line[:80]!r}{remedy}", file=path, row=row, value=line) from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")
