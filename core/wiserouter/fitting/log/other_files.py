"""What is no log as it is: files with other endings, and how they become logs; files that hold nothing."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from wiserouter.errors import LogError

_CONVERSIONS = {
    ".tsv": "convert it, such as with polars.read_csv(file, separator='\\t').write_csv(new)",
    ".json": "convert it, such as with polars.read_json(file).write_ndjson(new)",
    ".txt": "give it the ending of what it holds",
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "export it as csv, in UTF-8 and with commas"),
    **dict.fromkeys((".arrow", ".feather"), "convert it, such as with polars.read_ipc(file).write_parquet(new)"),
    **dict.fromkeys((".gz", ".zst", ".bz2", ".xz", ".zip"), "unpack it"),
}


def conversion_of(name: str) -> str:
    """Return the way to make a log of a file with this name.

    Examples
    --------
    >>> conversion_of("calls.JSONL.gz"), conversion_of("calls")
    ('unpack it', 'export it so, or correct the name')
    """
    return _CONVERSIONS.get(Path(name).suffix.lower(), "export it so, or correct the name")


def check_filled(path: Path) -> None:
    """Raise `LogError` if a file is empty."""
    if not path.stat().st_size:
        refuse_empty(path)


def refuse_empty(path: Path | None) -> NoReturn:
    """Raise `LogError` for a file without any content."""
    raise LogError("the log must hold at least one row, got an empty file: was it written to its end?", file=path)
