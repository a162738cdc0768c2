"""The cache of finished rows, one per table, method, seed and budget, from which an interrupted bench resumes.

A file holds the rows of one method and seed, and is moved into place when they are complete. The key of a row is the
hash of everything that it depends on: the table's content, encoder and contexts, method, seed, budget and its code
(`code_digest`).
Rows of other code or settings stay in the folder and are ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from wiserouter.evaluation.bench.metrics import ResultRow
from wiserouter.validation import write_whole

if TYPE_CHECKING:
    import polars as pl


class ResultsCache:
    """A folder of finished rows.

    Parameters
    ----------
    folder : str or Path
        Created if it does not exist.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def done(self) -> set[str]:
        """Return the keys of all finished rows."""
        import polars as pl

        files = self._files()
        return set() if not files else set(pl.concat([pl.read_parquet(each, columns=["key"]) for each in files])["key"])

    def add(self, rows: Sequence[ResultRow]) -> None:
        """Add some rows, all of them or, after a failure, none."""
        import polars as pl

        written = BytesIO()
        pl.DataFrame(rows).write_parquet(written)
        write_whole(self._folder / f"{uuid4().hex}.parquet", written.getvalue())

    def read(self, keys: Iterable[str]) -> pl.DataFrame:
        """Return the rows of these keys, each once."""
        import polars as pl

        asked = set(keys)
        frames = [pl.read_parquet(each).filter(pl.col("key").is_in(asked)) for each in self._files()]
        return pl.concat([frame for frame in frames if frame.height]).unique("key", keep="first", maintain_order=True)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.parquet"))


def key_of(*parts: object) -> str:
    """Return the hash of everything that a row depends on.

    Examples
    --------
    >>> key_of("table", 1) == key_of("table", 1), key_of("table", 1) == key_of("table", 2)
    (True, False)
    """
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
