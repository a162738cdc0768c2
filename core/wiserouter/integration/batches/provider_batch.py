"""A batch of a provider with OpenAI's routes: its mark, whether it has ended, its results, and why it was refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
"""The states of a batch that has no more results to come."""


def mark_of(path: Path) -> str:
    """Return the mark of a batch file, by which its batch is found: the custom id of the first request."""
    with path.open(encoding="utf-8") as lines:
        return str(json.loads(lines.readline())["custom_id"])


def result_files(batch: Mapping[str, Any], stem: str) -> Iterator[tuple[str, str]]:
    """Yield the ids of the files of results, with the names that they get.

    Examples
    --------
    >>> list(result_files({"output_file_id": "file-1", "error_file_id": None}, "small-1"))
    [('file-1', 'small-1-output.jsonl')]
    """
    for kind in ("output", "error"):
        if batch.get(f"{kind}_file_id"):
            yield str(batch[f"{kind}_file_id"]), f"{stem}-{kind}.jsonl"


def refusal_of(batch: Mapping[str, Any]) -> str:
    """Return why the provider has refused a file; "" where it has not.

    Examples
    --------
    >>> refusal_of({"errors": {"data": [{"message": "too long"}, {"code": "bad_line"}]}}), refusal_of({})
    ('too long; bad_line', '')
    """
    errors = (batch.get("errors") or {}).get("data") or ()
    return "; ".join(str(one.get("message") or one.get("code")) for one in errors)
