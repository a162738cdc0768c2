"""Files as streams of frames: opened by their ending, read in batches, errors wrapped once (polars)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from wiserouter.errors import LogError

if TYPE_CHECKING:
    import polars as pl

_ENDINGS = (".parquet", ".csv", ".csv.gz", ".jsonl", ".ndjson")


def scan(path: Path) -> pl.LazyFrame:
    """Return a file as a lazy frame; csv and jsonl keep every column as text, so that bad numbers can be named.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    LogError
        If the ending is unknown or the file cannot be read.
    """
    import polars as pl  # noqa: PLC0415

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    name = path.name.lower()
    with reading(path):
        if name.endswith(".parquet"):
            return pl.scan_parquet(path, glob=False)
        if name.endswith((".csv", ".csv.gz")):
            return pl.scan_csv(path, infer_schema=False, empty_string_is_null=False, glob=False)
        if name.endswith((".jsonl", ".ndjson")):
            columns = pl.scan_ndjson(path).collect_schema().names()
            return pl.scan_ndjson(path, schema_overrides=dict.fromkeys(columns, pl.String))
    raise LogError(f"a log's name must end in {', '.join(_ENDINGS)}, got {path.name!r}", file=path, value=path.name)


def column_names(frame: pl.LazyFrame, path: Path | None) -> list[str]:
    """Return the names of the columns."""
    with reading(path):
        return frame.collect_schema().names()


def batches(frame: pl.LazyFrame, columns: Sequence[str], rows: int, path: Path | None) -> Iterator[pl.DataFrame]:
    """Yield the rows in order, at most `rows` at a time and never more than some batches in memory."""
    with reading(path):
        stream = iter(frame.select(columns).collect_batches(chunk_size=rows, maintain_order=True))
        while (batch := next(stream, None)) is not None:
            for start in range(0, batch.height, rows):
                yield batch.slice(start, rows)


@contextmanager
def reading(path: Path | None) -> Iterator[None]:
    """Say which file it was, where polars cannot read one."""
    import polars as pl  # noqa: PLC0415

    try:
        yield
    except pl.exceptions.PolarsError as error:
        first = str(error).split("\n", maxsplit=1)[0]
        raise LogError(f"the file is damaged or malformed: {first}", file=path) from error
