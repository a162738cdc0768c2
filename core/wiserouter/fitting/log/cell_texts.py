"""Cells of a log as texts, and their digests, by which a file of scores knows the texts that were judged."""

from __future__ import annotations

import hashlib
import json
from typing import Any

DIGEST_OF = "sha256 of "
"""How the name of a column of digests begins; the name of the column with the texts follows."""


def cell_text(value: Any) -> str:
    """Return a cell as text, empty where it holds nothing; lists and objects are JSON, as in a jsonl.

    Examples
    --------
    >>> cell_text(None), cell_text([]), cell_text([{"role": "user", "content": "hi"}])
    ('', '', '[{"role": "user", "content": "hi"}]')
    """
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str) if value else ""
    return "" if value is None else str(value)


def digest(text: str) -> str:
    """Return a short digest of a text.

    Examples
    --------
    >>> digest("2 + 2?")
    '70b499c547e0a11f'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
