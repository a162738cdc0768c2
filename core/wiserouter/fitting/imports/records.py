"""The records of an exported file, one after the other: jsonl, JSON, csv and parquet, compressed by gzip or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wiserouter.errors import LogError
from wiserouter.fitting.imports.calls import Recorded
from wiserouter.fitting.log.files import batches, column_names, scan
from wiserouter.fitting.log.limits import text_lines

MAX_DOCUMENT_CHARS = 2**28
"""Most characters of a file that is one JSON document, which is held in memory: 256 Mi."""

ROWS = 5_000
"""Rows of a table that are read at once."""

_TABLES = (".parquet", ".csv", ".csv.gz")
_LISTS = ("data", "runs", "traces", "spans", "observations", "scores", "feedback", "items", "results")
"""Keys under which a document keeps the list of its records."""


def records_of(path: Path) -> Iterator[Recorded]:
    """Yield the records of a file.

    Raises
    ------
    LogError
        If it cannot be read; the error names the file, and the line where there is one.
    FileNotFoundError
        If there is none.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file: correct the path")
    return _table(path) if path.name.lower().endswith(_TABLES) else _json(path)


def _json(path: Path) -> Iterator[Recorded]:
    """Yield one record per line, or those of one document of several lines."""
    lines = text_lines(path)
    first = next((line for line in lines if line.strip()), "")
    record = _parsed(path, first)
    if record is None:  # a document that does not end with its first line
        yield from _document(path)
        return
    yield from _in(record)
    for row, line in enumerate(lines, start=2):
        if line.strip():
            found = _parsed(path, line)
            if found is None:
                raise LogError("a line must be one JSON object", file=path, row=row, value=line[:80])
            yield from _in(found)


def _document(path: Path) -> Iterator[Recorded]:
    parts, size = [], 0
    for line in text_lines(path):
        parts.append(line)
        size += len(line)
        if size > MAX_DOCUMENT_CHARS:
            rule = f"a JSON document must have at most {MAX_DOCUMENT_CHARS:,} characters, got more"
            raise LogError(f"{rule}: export it as jsonl", file=path)
    document = _parsed(path, "\n".join(parts))
    if document is None:
        raise LogError("an export must be JSON or jsonl, got neither: check that it is whole", file=path)
    yield from _in(document)


def _in(value: Any) -> Iterator[Recorded]:
    """Yield the records of a value: of a list, of the list that an object holds, else the object."""
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict))
        return
    held = next((value[key] for key in _LISTS if isinstance(value.get(key), list)), None) if len(value) <= 5 else None
    yield from [value] if held is None else (one for one in held if isinstance(one, dict))


def _parsed(path: Path, text: str) -> Any:
    """Return the object or list of a text; None where it is neither."""
    try:
        value = json.loads(text) if text.strip() else []
    except RecursionError as error:
        raise LogError("JSON must not be nested this deep: flatten it", file=path) from error
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _table(path: Path) -> Iterator[Recorded]:
    frame = scan(path)
    for batch in batches(frame, column_names(frame, path), ROWS, path):
        yield from batch.iter_rows(named=True)
