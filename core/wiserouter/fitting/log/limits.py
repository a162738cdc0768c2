"""Limits of a text log, and its lines read within them: nothing of a file is held but one line.

The limits are listed in docs/fitting.md. A file that exceeds one is refused before polars reads it.
"""

from __future__ import annotations

import gzip
import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

from wiserouter.errors import LogError
from wiserouter.fitting.log.other_files import refuse_empty

MAX_ROW_BYTES = 2**23
"""Most bytes of one row of a csv or jsonl, and of one text of any log: 8 MiB."""

MAX_HEADER_BYTES = 2**20
"""Most bytes of the header of a csv: 1 MiB."""

MAX_COLUMNS = 5_000
"""Most columns of a log, or different keys of a jsonl."""

MAX_MODELS = 1_000
"""Most models of a log."""

MAX_COST_USD = 1e9
"""Highest cost of one call, in USD, so that sums of costs and of their squares stay within what an artifact holds."""

MAX_UNPACKING = 200
"""Most bytes that a compressed log may unpack to for each of its own, beyond the first `FREE_UNPACKED_BYTES`."""

FREE_UNPACKED_BYTES = 2**26
"""Bytes that a compressed log may unpack to whatever its size: 64 MiB."""

_SEPARATORS = {"semicolons": ";", "tabs": "\t", "vertical bars": "|"}
_BUFFER_BYTES = 2**20
_QUOTED = re.compile(r'"[^"]*"')
_DAMAGED = "the file is damaged or malformed"
_UTF_16 = "it seems to be UTF-16; convert it to UTF-8 with `iconv -f UTF-16 -t UTF-8`"
_ONE_BYTE = "it seems to be Latin-1 or Windows-1252; convert it to UTF-8 with `iconv -f WINDOWS-1252 -t UTF-8`"
_OTHER_FILES = {
    b"PAR1": "a parquet file: give its name the ending .parquet",
    b"PK\x03\x04": "a spreadsheet or a zip archive: export it as csv, or unpack it",
    b"SQLite format 3": "a database: export its table as csv",
}
_OTHER_PACKING = (b"\x28\xb5\x2f\xfd", b"x\x01", b"x\x9c", b"x\xda")  # zstandard, zlib


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text log, compressed by gzip or not, without a byte order mark; blank ones are empty.

    Raises
    ------
    LogError
        If it is not UTF-8, a line exceeds `MAX_ROW_BYTES`, or it unpacks to too much.
    """
    with _opened(path) as file:
        most = _most_bytes(path)
        number, n_bytes = 0, 0
        while line := file.readline(MAX_ROW_BYTES + 1):
            number, n_bytes = number + 1, n_bytes + len(line)
            if number == 1:
                _check_kind(path, line)
            if number == 1 and (line.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in line[:200]):
                raise LogError(f"{_DAMAGED}: {_UTF_16}", file=path)
            if len(line) > MAX_ROW_BYTES:
                refuse_row(path, number)
            if n_bytes > most:
                rule = f"a compressed log may unpack to at most {MAX_UNPACKING} times its size, got more"
                raise LogError(f"{rule}: unpack it, and check what it holds", file=path)
            yield _decoded(path, number, line.removeprefix(BOM_UTF8) if number == 1 else line)


def _check_kind(path: Path, begins: bytes) -> None:
    """Refuse a file of another kind that has the name of a text."""
    for mark, kind in _OTHER_FILES.items():
        if begins.startswith(mark):
            raise LogError(f"a file of this name must hold text, got {kind}", file=path)


def marked_content(path: Path) -> bytes | None:
    """Return the content of a file that begins with a byte order mark, without it; None of one that does not."""
    with _opened(path) as file:
        return file.read() if file.read(len(BOM_UTF8)) == BOM_UTF8 else None


def check_csv(path: Path) -> None:
    """Refuse a csv whose header is too long, lacks commas or has too many columns, or one of whose rows is too long.

    A row goes on over the next lines while a quote is open.
    """
    n_bytes, number, begins, is_open = 0, 0, 1, False
    for number, line in enumerate(text_lines(path), start=1):
        if number == 1 and len(line.encode()) > MAX_HEADER_BYTES:
            raise LogError(f"a header must have at most {MAX_HEADER_BYTES:,} bytes, got more: drop columns", file=path)
        if number == 1:
            _check_mark_of_excel(path, line)
            _check_line_ends(path, line)
            _check_separator(path, line)
            check_columns(path, 1 + line.count(","))
        is_open ^= line.count('"') % 2 == 1
        n_bytes += len(line)
        if n_bytes > MAX_ROW_BYTES:
            refuse_row(path, begins)
        if not is_open:
            n_bytes, begins = 0, number + 1
    if not number:
        refuse_empty(path)
    if is_open and begins < number:  # a quote in the last line alone may be read as it is
        rule = f"each quote must be closed, got one that is open from line {begins} to the end"
        raise LogError(f"{rule}: close it, and write quotes within a text twice", file=path)


def _check_mark_of_excel(path: Path, header: str) -> None:
    """Refuse a first line such as `sep=;`, which tells Excel the separator."""
    if header[:4].lower() == "sep=" and len(header.strip()) <= len("sep=;"):
        raise LogError(f"the first line must name the columns, got {header.strip()!r}: delete that line", file=path)


def _check_line_ends(path: Path, header: str) -> None:
    """Refuse lines that end with a carriage return alone, as old programs of the Mac write them."""
    if "\r" in _QUOTED.sub("", header):
        command = "`tr '\\r' '\\n' < file > new`"
        raise LogError(f"lines must end with a line feed, got carriage returns alone: use {command}", file=path)


def row_with_too_many_cells(path: Path) -> tuple[int, int, int] | None:
    """Return the first row of a csv with more cells than the header, from 1, its cells, and those of the header."""
    counts = _cells_of_rows(path)
    n_columns = next(counts, 0)
    return next(((row, n, n_columns) for row, n in enumerate(counts, start=1) if n > n_columns), None)


def _cells_of_rows(path: Path) -> Iterator[int]:
    """Yield the number of cells of each row of a csv, the header first."""
    lines: list[str] = []
    is_open = False
    for line in text_lines(path):
        lines.append(line)
        is_open ^= line.count('"') % 2 == 1
        if not is_open:
            yield 1 + _QUOTED.sub("", "\n".join(lines)).count(",")
            lines = []


def _check_separator(path: Path, header: str) -> None:
    """Refuse a header without a comma that other separators divide, as spreadsheets write it in many countries."""
    found = next((name for name, sign in _SEPARATORS.items() if sign in header and "," not in header), None)
    if found is not None:
        sign = _SEPARATORS[found]
        command = f"polars.read_csv(file, separator={sign!r}, decimal_comma=True).write_csv(new)"
        rule = f"a csv must have commas between its columns and points in its decimals, got {found}"
        raise LogError(f"{rule}: export it so, or convert it, such as with {command}", file=path, value=sign)


def check_columns(path: Path | None, n_columns: int) -> None:
    """Raise `LogError` if there are more than `MAX_COLUMNS`."""
    if n_columns > MAX_COLUMNS:
        rule = f"a log must have at most {MAX_COLUMNS:,} columns, got {n_columns:,}"
        raise LogError(f"{rule}: drop those that hold neither prompt, score nor cost", file=path, value=n_columns)


def check_models(path: Path | None, n_models: int, row: int | None = None) -> None:
    """Raise `LogError` if there are more than `MAX_MODELS`."""
    if n_models > MAX_MODELS:
        rule = f"a log must have at most {MAX_MODELS:,} models, got {'more' if row else f'{n_models:,}'}"
        raise LogError(f"{rule}: check that the column of models holds names, or split it", file=path, row=row)


def refuse_row(path: Path, line: int) -> NoReturn:
    """Raise `LogError` for a row that begins in this line."""
    rule = f"a row must have at most {MAX_ROW_BYTES:,} bytes, got more from line {line} on"
    raise LogError(f"{rule}: shorten its texts, or close the quote that it leaves open", file=path)


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        head = file.read(4)
    if head.startswith(_OTHER_PACKING):
        raise LogError("a log must be compressed by gzip or not at all: unpack it", file=path)
    if not head.startswith(b"\x1f\x8b"):
        return path.open("rb")
    return io.BufferedReader(gzip.open(path, "rb"), _BUFFER_BYTES)


def _most_bytes(path: Path) -> int:
    """Return the most bytes that the file may unpack to; one that is not compressed has fewer."""
    return FREE_UNPACKED_BYTES + MAX_UNPACKING * path.stat().st_size


def _decoded(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        where = f"line {number} has a byte that is no UTF-8, {line[error.start]:#04x}"
        raise LogError(f"{_DAMAGED}: {where}; {_ONE_BYTE}", file=path) from error
