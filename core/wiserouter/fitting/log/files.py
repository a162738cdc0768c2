"""Files of logs as streams of frames: opened by their ending, read in batches, errors wrapped once (polars).

Parquet is read in slices, whose memory is bounded: `collect_batches` decodes ahead of a slow consumer
(pola-rs/polars#28569). Csv and jsonl have no random access and are streamed; every cell stays text until it is checked.
"""

from __future__ import annotations

import glob
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from wiserouter.errors import LogError
from wiserouter.fitting.log.cell_texts import DIGEST_OF, cell_text, digest
from wiserouter.fitting.log.jsonl import check_numbers, keys_of
from wiserouter.fitting.log.limits import check_columns, check_csv, marked_content, row_with_too_many_cells
from wiserouter.fitting.log.other_files import check_filled, conversion_of

if TYPE_CHECKING:
    import polars as pl

SLICE_ROWS = 32_768
"""Rows of a table with random access to decode at once."""

SLICE_BYTES = 64_000_000
"""Largest number of bytes of texts to decode at once; longer texts make slices of fewer rows."""

_PROBED_ROWS = 64
_SHOWN_CHARS = 200
_TOO_MANY_CELLS = "found more fields than defined"  # of polars

IDS = ("custom_id", "query_id", "request_id", "call_id", "id")
"""Columns to join by, the surest first."""

ROW = "log_row"
"""The column by which scores of a log without ids name its rows, counted from 1."""

_OF_SCORES = ("score", "source", "judged_by")
"""Columns in which scores may differ from the log."""

_CSV = (".csv", ".csv.gz")
JSONL = (".jsonl", ".ndjson")
ENDINGS = (".parquet", *_CSV, *JSONL)
"""How the name of a log ends."""


def scan(path: Path) -> pl.LazyFrame:
    """Return a file as a lazy frame.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    LogError
        If the ending is unknown, a csv has a column twice, the file cannot be read, or it exceeds a limit.

    Notes
    -----
    In a csv an empty cell is missing and `""` is an empty text; a line that is too short lacks its last cells. A csv or
    jsonl is read once to check its limits, a jsonl also to find its columns: a key may appear in its last line only.
    """
    import polars as pl

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file: correct the path")
    if not is_log(path):
        rule = f"a log's name must end in {', '.join(ENDINGS)}, got {path.name!r}"
        raise LogError(f"{rule}: {conversion_of(path.name)}", file=path, value=path.name)
    check_filled(path)
    with reading(path):
        if _is(path, _CSV):
            return _scan_csv(path)
        if _is(path, JSONL):
            return _scan_jsonl(path)
        return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def schema_of(frame: pl.LazyFrame, path: Path | None) -> pl.Schema:
    """Return the names and types of the columns."""
    with reading(path):
        schema = frame.collect_schema()
    check_columns(path, len(schema))
    return schema


def column_names(frame: pl.LazyFrame, path: Path | None) -> list[str]:
    """Return the names of the columns."""
    return schema_of(frame, path).names()


def columns(names: Iterable[str]) -> list[pl.Expr]:
    """Return the expressions of some columns."""
    import polars as pl

    return [pl.col(name) for name in names]


def joined(frame: pl.LazyFrame, path: Path, others: Sequence[Path], *, alone: bool = True) -> pl.LazyFrame:
    """Return a file's rows with the columns of other files, in memory, joined by an id that both have.

    Where several of them have a column, such as the scores of a day each, the first that has a value gives it; the
    columns of the file itself stay as they are. A file with the column `ROW` and no id of the log is joined by the
    number of the row, if the log is one file.

    Raises
    ------
    LogError
        If two files share no column to join by, an id comes twice in a file that is joined, its rows are not those
        of this log, or none of its ids is one of a log of one file.
    """
    import polars as pl

    own = set(schema_of(frame, path).names())
    for other in others:
        right = scan(other)
        key = _shared_key(frame, path, schema_of(right, other).names(), other)
        with reading(other):
            found = right.with_columns(_as_text(right, key, other)).collect()
        repeated = found[key].is_duplicated() & found[key].is_not_null()
        if repeated.any():
            row = int(repeated.arg_max() or 0)
            rule = f"an id to join by must come once, got {found[key][row]!r} again: keep one row of each"
            raise LogError(rule, file=other, row=row + 1, column=key, value=found[key][row])
        if key == ROW:
            frame = frame.with_columns(pl.int_range(1, pl.len() + 1).alias(ROW))
        frame = frame.with_columns(_as_text(frame, key, path))
        known = set(schema_of(frame, path).names()) - {key}
        if key == ROW:
            _check_rows(frame, found, path, other, alone=alone)
        elif alone:
            _check_ids(frame, found[key].drop_nulls(), path, other)
        left_out = [name for name in found.columns if name in own - {key} or name.startswith(DIGEST_OF)]
        shared = {name: f"{name} of {other}" for name in found.columns if name in known - own}
        right = found.lazy().drop(left_out).rename(shared)
        frame = frame.join(right, on=key, how="left", maintain_order="left").drop(ROW, strict=False)
        types = schema_of(frame, path)
        filled = [_first_filled(name, more, types) for name, more in shared.items()]
        frame = frame.with_columns(filled).drop(shared.values())
    with reading(path):
        return frame.collect().lazy()


def batches(
    frame: pl.LazyFrame, columns: Sequence[str] | Sequence[pl.Expr], rows: int, path: Path | None
) -> Iterator[pl.DataFrame]:
    """Yield the rows in order, at most `rows` at a time, with at most some batches in memory."""
    streamed = path is not None and is_text(path)
    for part in _streamed(frame, columns, rows, path) if streamed else _sliced(frame.select(columns), rows, path):
        yield from part.iter_slices(rows)


@contextmanager
def reading(path: Path | None) -> Iterator[None]:
    """Raise `LogError` with the file where it cannot be read or unpacked."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, OSError, EOFError, zlib.error) as error:
        if isinstance(error, FileNotFoundError):
            raise
        first = str(error).split("\n", maxsplit=1)[0][:_SHOWN_CHARS]
        if path is not None and first.startswith(_TOO_MANY_CELLS) and _is(path, _CSV):
            _refuse_cells(path, error)
        if path is not None and "InvalidNumber" in first:
            check_numbers(path)
        rule = "the file cannot be read" if isinstance(error, PermissionError) else "the file is damaged or malformed"
        raise LogError(f"{rule}: {first}", file=path) from error


def _refuse_cells(path: Path, error: Exception) -> None:
    """Raise `LogError` that names the row with more cells than the header, where it can be told."""
    found = row_with_too_many_cells(path)
    if found is not None:
        row, n_cells, n_columns = found
        rule = f"a row of a csv must have at most the {n_columns:,} cells of its header, got {n_cells:,}"
        remedy = "quote texts that hold commas, or drop the cells that are too many"
        raise LogError(f"{rule}: {remedy}", file=path, row=row, value=n_cells) from error


def _shared_key(frame: pl.LazyFrame, path: Path, others: Sequence[str], file: Path) -> str:
    """Return the column to join by: the first shared one that names an id, `ROW`, or the only one, if it is an id."""
    shared = [name for name in column_names(frame, path) if name in others and not _is_of_a_judge(name)]
    found = next((name for name in IDS if name in shared), None)
    if found is not None or ROW in others:
        return found or ROW
    if len(shared) == 1 and _is_unique(frame, path, shared[0]):
        return shared[0]
    has = f"both have {', '.join(shared)}, which is none" if shared else "they share no column"
    raise LogError(f"files are joined by an id that both have ({', '.join(IDS)}), and {has}: add one", file=file)


def _as_text(frame: pl.LazyFrame, key: str, path: Path) -> pl.Expr:
    """Return ids as texts; numbers that were kept as floats, as pandas does where some are missing, as whole ones."""
    import polars as pl

    ids = pl.col(key)
    if not schema_of(frame, path)[key].is_float():
        return ids.cast(pl.String)
    ids = ids.fill_nan(None)
    whole = ids.cast(pl.Int64, strict=False)
    return pl.when(whole == ids).then(whole.cast(pl.String)).otherwise(ids.cast(pl.String)).alias(key)


def _first_filled(name: str, more: str, types: pl.Schema) -> pl.Expr:
    """Return one of two columns of one name, filled from the other one; both as texts where their types differ."""
    import polars as pl

    one, other = types[name], types[more]
    if one == other or (one.is_numeric() and other.is_numeric()) or pl.Null in {one, other}:
        return pl.coalesce(name, more)
    if one.is_nested() or other.is_nested():
        return pl.col(name)
    return pl.coalesce(pl.col(name).cast(pl.String), pl.col(more).cast(pl.String))


def _check_ids(frame: pl.LazyFrame, ids: pl.Series, path: Path, file: Path) -> None:
    """Raise `LogError` if a file has ids, and none is in the log: all that it holds would be lost."""
    import polars as pl

    with reading(path):
        own = frame.select(pl.col(ids.name).drop_nulls()).collect()[ids.name]
    if len(ids) and not ids.is_in(own.implode()).any():
        other = f", where the first is {own[0]!r}" if len(own) else ""
        rule = f"a file to join must have ids of the log, got {ids[0]!r} first and none of {path.name}{other}"
        raise LogError(f"{rule}: write them alike, or give the file of these calls", file=file, column=ids.name)


def _is_of_a_judge(name: str) -> bool:
    """Return True if a column says by whom or of which texts a score is."""
    return name == "judged_by" or name.startswith(DIGEST_OF)


def _is_unique(frame: pl.LazyFrame, path: Path, column: str) -> bool:
    """Return True if a value comes in one row at most."""
    import polars as pl

    with reading(path):
        return not frame.select(pl.col(column).drop_nulls().is_duplicated().any()).collect().item()


def _check_rows(frame: pl.LazyFrame, found: pl.DataFrame, path: Path, file: Path, *, alone: bool) -> None:
    """Raise `LogError` unless the rows that a file numbers are those of the log: their other columns agree."""
    import polars as pl

    if not alone:
        raise LogError(f"rows are joined by {ROW} to a log of one file, got several: fit that file alone", file=file)
    frame = _with_digests(frame, found, path)
    names = set(column_names(frame, path)).intersection(found.columns).difference(_OF_SCORES)
    left = frame.select(pl.col(sorted(names)).cast(pl.String))
    with reading(path):
        strange = found.lazy().select(pl.col(sorted(names)).cast(pl.String)).join(left, on=sorted(names), how="anti")
        first = strange.select(pl.col(ROW).head(1)).collect()[ROW].to_list()
    if first:
        rule = f"a score must be of a row of the log, row {first[0]} is another one or missing"
        raise LogError(f"{rule}: judge this log", file=file, column=ROW, value=first[0])


def _with_digests(frame: pl.LazyFrame, found: pl.DataFrame, path: Path) -> pl.LazyFrame:
    """Return the rows that a file numbers, with the digests of the texts of which it has some."""
    import polars as pl

    digests = {name: name.removeprefix(DIGEST_OF) for name in found.columns if name.startswith(DIGEST_OF)}
    with reading(path):
        rows = frame.join(found.lazy().select(ROW), on=ROW, how="semi").collect()
    texts = {name: rows[column] for name, column in digests.items() if column in rows.columns}
    own = {name: [digest(cell_text(cell)) for cell in cells.to_list()] for name, cells in texts.items()}
    return rows.with_columns(pl.Series(name, values, dtype=pl.String) for name, values in own.items()).lazy()


def is_log(path: Path) -> bool:
    """Return True if the name of a file is that of a log."""
    return _is(path, ENDINGS)


def is_text(path: Path) -> bool:
    """Return True if a file is a csv or a jsonl, which can only be read from its beginning."""
    return _is(path, (*_CSV, *JSONL))


def _is(path: Path, endings: tuple[str, ...]) -> bool:
    return path.name.lower().endswith(endings)


def _scan_csv(path: Path) -> pl.LazyFrame:
    import polars as pl

    check_csv(path)
    header = pl.scan_csv(path, has_header=False, n_rows=1, infer_schema=False, glob=False).collect().row(0)
    for name, count in Counter(header).items():
        if name is not None and count > 1:
            raise LogError("a column must come once, got it twice: rename or drop one", file=path, column=name)
    return pl.scan_csv(path, infer_schema=False, glob=False)


def _scan_jsonl(path: Path) -> pl.LazyFrame:
    import polars as pl

    schema = dict.fromkeys(keys_of(path), pl.String)
    content = marked_content(path)  # polars does not skip a byte order mark
    return pl.scan_ndjson(glob.escape(str(path)) if content is None else content, schema=schema)


def _streamed(
    frame: pl.LazyFrame, columns: Sequence[str] | Sequence[pl.Expr], rows: int, path: Path | None
) -> Iterator[pl.DataFrame]:
    """Yield batches with every column parsed, so that a csv line with too many cells is an error and not cut off."""
    import polars as pl

    whole = pl.QueryOptFlags(projection_pushdown=False)
    with reading(path):
        stream = iter(frame.collect_batches(chunk_size=rows, maintain_order=True, optimizations=whole))
        while (batch := next(stream, None)) is not None:
            yield batch.select(columns)


def _sliced(frame: pl.LazyFrame, rows: int, path: Path | None) -> Iterator[pl.DataFrame]:
    import polars as pl

    with reading(path):
        height = frame.select(pl.len()).collect().item()
        start, part = 0, frame.slice(0, _PROBED_ROWS).collect()
        while start < height:
            part = frame.slice(start, _slice_rows(part, rows)).collect()
            start += part.height
            yield part


def _slice_rows(part: pl.DataFrame, rows: int) -> int:
    """Return the number of rows like those of `part` to decode at once: whole batches of `rows`, if texts are short."""
    import polars as pl

    lengths = part.select(pl.col(pl.String).str.len_bytes().sum())
    n_bytes = sum(lengths.row(0)) if lengths.width else 0
    fitting = max(SLICE_BYTES * part.height // max(n_bytes, 1), 1)
    return fitting if fitting < rows else max(rows, min(SLICE_ROWS, fitting) // rows * rows)
