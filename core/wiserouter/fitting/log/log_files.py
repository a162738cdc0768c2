"""The files of a log: one, those of a folder, of a pattern or of an object store, each with its place in the log."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from wiserouter.errors import InvalidInput, LogError, MissingExtra
from wiserouter.fitting.log import files

if TYPE_CHECKING:
    import polars as pl

PART_ROWS = 131_072
"""Rows of a file with random access that one task reads."""

MOST_PARTS = 1_024
"""About the largest number of tasks; larger logs have larger parts."""

LogPath = str | Path
"""A file, a folder, a pattern such as `calls/*.parquet`, or a URL such as `s3://bucket/calls`."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """The rows of a file, or some of them.

    Attributes
    ----------
    frame : polars.LazyFrame
        The rows.
    path : Path or None
        The file, named in errors.
    in_memory : bool
        True where the rows were collected: they are not read from the file.
    first : int
        Number of the first row in the file, from 0.
    before : int
        Rows of the log in the files before this one.
    url : str or None
        That of a remote file, of which each process makes a copy of its own.
    rows : int or None
        Number of rows; None for all.
    """

    frame: pl.LazyFrame
    path: Path | None = None
    in_memory: bool = False
    first: int = 0
    before: int = 0
    url: str | None = None
    rows: int | None = None

    @property
    def read_from(self) -> Path | None:
        """The file that the rows are read from."""
        return None if self.in_memory else self.path

    def height(self) -> int:
        """Return the number of rows: of a parquet from its footer, of a text file after a pass over it."""
        import polars as pl

        with files.reading(self.path):
            return int(self.frame.select(pl.len()).collect().item())

    def joined(self, others: Sequence[Path], *, alone: bool) -> LogFile:
        """Return the rows with the columns of other files of the same calls, in memory."""
        frame = files.joined(self.frame, self.path or Path(), others, alone=alone)
        return replace(self, frame=frame, in_memory=True, url=None)

    def piece(self, start: int, rows: int) -> LogFile:
        """Return some of the rows."""
        frame = self.frame.slice(start, rows)
        own = frame.collect().lazy() if self.read_from is None else frame  # a task is sent its own rows only
        return replace(self, frame=own, first=start, rows=rows)

    def __reduce__(self) -> tuple[Callable[..., LogFile], tuple[object, ...]]:
        if self.url is not None:
            return _remote, (self.url, self.first, self.before, self.rows)
        return LogFile, tuple(getattr(self, one.name) for one in fields(self))


def parts_of(each: Sequence[LogFile], *, numbered: bool) -> list[LogFile]:
    """Return the files in parts that tasks read: row ranges of a parquet or of a table in memory, whole text files.

    Parameters
    ----------
    each : sequence of LogFile
        The files of a log, in order.
    numbered : bool
        Whether queries are known by the number of their row, for which the rows of text files are counted as well.

    Notes
    -----
    The parts depend on the files alone, so that sums of parts are the same for any number of workers.
    """
    whole = [one.read_from is not None and files.is_text(one.read_from) for one in each]
    counted = numbered and len(each) > 1
    heights = [0 if text and not counted else one.height() for one, text in zip(each, whole, strict=True)]
    rows = max(PART_ROWS, -(-sum(heights) // MOST_PARTS))
    parts: list[LogFile] = []
    before = 0
    for one, height, text in zip(each, heights, whole, strict=True):
        placed = replace(one, before=before)
        starts = range(0, height, rows)
        parts += [placed] if text or len(starts) < 2 else [placed.piece(start, rows) for start in starts]
        before += height
    return parts


def open_files(path: LogPath | Iterable[LogPath]) -> list[LogFile]:
    """Return the files of a log.

    Parameters
    ----------
    path : str, Path, or iterable of them
        A file; a folder or a pattern, whose files are read in alphabetical order and whose folders `name=value` are
        columns (hive partitions); or such a URL, which fsspec reads.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    LogError
        If a folder or a pattern has no log, or a file cannot be read.
    MissingExtra
        If a URL is given, and fsspec or the package of its store is not installed.
    """
    if not isinstance(path, str | Path):
        each = list(path) if isinstance(path, Iterable) and not hasattr(path, "columns") else []  # no data frame
        if each:
            return [one for given in each for one in open_files(given)]
    if not isinstance(path, str | Path) or not path:
        rule = "a log must be named by the path of a file, a folder or a pattern, or a list of them"
        raise InvalidInput(f"{rule}, got {path if isinstance(path, str) else type(path).__name__!r}", value=path)
    if "://" in str(path):
        return [_remote(url) for url in _urls(str(path))]
    file = Path(path)
    if file.is_dir():
        return [_opened(one, one.relative_to(file)) for one in _logs(file.rglob("*"), file)]
    if file.exists() or not glob.has_magic(str(path)):
        return [LogFile(files.scan(file), file)]
    found = (Path(one) for one in glob.glob(str(path), recursive=True))  # noqa: PTH207 - the pattern may be absolute
    return [_opened(one, one) for one in _logs(found, file)]


def _logs(found: Iterable[Path], where: Path) -> list[Path]:
    logs = sorted(one for one in found if one.is_file() and files.is_log(one))
    if not logs:
        raise LogError(f"no file here is a log ({', '.join(files.ENDINGS)})", file=where)
    return logs


def _opened(file: Path, named: PurePosixPath | Path) -> LogFile:
    """Return a file with the columns that its folders name."""
    import polars as pl

    frame = files.scan(file)
    known = files.column_names(frame, file)
    pairs = dict(part.split("=", 1) for part in named.parts[:-1] if "=" in part)
    return LogFile(frame.with_columns(pl.lit(v).alias(k) for k, v in pairs.items() if k not in known), file)


def _remote(url: str, first: int = 0, before: int = 0, rows: int | None = None) -> LogFile:
    """Return a remote file, or some of its rows, from the copy of this process."""
    whole = replace(_opened(_fetched(url), PurePosixPath(url)), url=url, before=before)
    return whole if rows is None else whole.piece(first, rows)


def _urls(url: str) -> list[str]:
    """Return the URLs of the logs that a URL stands for, in alphabetical order."""
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url)
    except ImportError as error:
        raise MissingExtra(f"a log at {url.partition('://')[0]}://", "fsspec and its package", "remote") from error
    named = system.glob(path) if glob.has_magic(path) else system.find(path)
    urls = sorted(system.unstrip_protocol(one) for one in named if files.is_log(Path(one)))
    if not urls:
        raise FileNotFoundError(f"{url}: no such file, or none that is a log ({', '.join(files.ENDINGS)}): correct it")
    return urls


@cache
def _fetched(url: str) -> Path:
    """Return a copy of a remote file, made once in each process and kept until it ends."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    copy = Path(_folder()) / f"{blake2b(url.encode(), digest_size=8).hexdigest()}-{Path(path).name}"
    system.get_file(path, str(copy))
    return copy


@cache
def _folder() -> str:
    import atexit
    import shutil

    folder = mkdtemp(prefix="wiserouter-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
