"""Texts in an SQLite store: a name with half of a surrogate pair, which UTF-8 does not hold, is kept as bytes.

A BLOB is equal to no TEXT, so that a name which is kept as bytes cannot be mistaken for another one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

_LOSSLESS = "surrogatepass"


class TextCursor(sqlite3.Cursor):
    """A cursor that takes every text of Python as a value."""

    def execute(self, statement: str, values: Any = ()) -> Self:
        """Execute one statement."""
        try:
            return super().execute(statement, values)
        except UnicodeEncodeError:  # raised before the statement runs; few texts need the second attempt
            return super().execute(statement, _bindable(values))

    def executemany(self, statement: str, rows: Iterable[Any]) -> Self:
        """Execute one statement for each row."""
        return super().executemany(statement, map(_bindable, rows))


def text_of(value: str | bytes) -> str:
    r"""Return a text as it was before it was kept.

    Examples
    --------
    >>> text_of("team"), text_of(b"\xed\xa0\xbd cut")
    ('team', '\ud83d cut')
    """
    return value if isinstance(value, str) else value.decode("utf-8", _LOSSLESS)


def _bindable(values: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any] | Mapping[str, Any]:
    if isinstance(values, Mapping):
        return {name: _kept(value) for name, value in values.items()}
    return [_kept(value) for value in values]


def _kept(value: object) -> object:
    """Return a value as SQLite takes it."""
    if not isinstance(value, str) or value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", _LOSSLESS)
    return value
