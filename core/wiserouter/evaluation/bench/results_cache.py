"""What has been done: one row for each table, method, seed and budget, kept in files so that a bench goes on.

A file holds the rows of one method and seed, and is moved into place when they are complete. A row is known by the hash
of all that it depends on: the table's content, encoder and contexts, method, seed, budget and the code. What has been
run with other code or settings stays in the folder and is not looked at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from wiserouter.evaluation.bench.metrics import ResultRow

if TYPE_CHECKING:
    import polars as pl

_READERS = ("cli", "evaluation/report", "evaluation/studies", "evaluation/plots.py")
"""Parts of the package that no row depends on."""


class ResultsCache:
    """A folder of finished rows.

    Parameters
    ----------
    folder : str or Path
        Made if it is not there.
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
        """Keep some rows; either all or none of them are there afterwards."""
        import polars as pl

        part = self._folder / f"{uuid4().hex}.part"
        pl.DataFrame(rows).write_parquet(part)
        part.rename(part.with_suffix(".parquet"))

    def read(self, keys: Iterable[str]) -> pl.DataFrame:
        """Return the rows of these keys, each once."""
        import polars as pl

        asked = set(keys)
        frames = [pl.read_parquet(each).filter(pl.col("key").is_in(asked)) for each in self._files()]
        return pl.concat([frame for frame in frames if frame.height]).unique("key", keep="first", maintain_order=True)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.parquet"))


def key_of(*parts: object) -> str:
    """Return the hash of what a row depends on.

    Examples
    --------
    >>> key_of("table", 1) == key_of("table", 1), key_of("table", 1) == key_of("table", 2)
    (True, False)
    """
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


@cache
def code_digest() -> str:
    """Return the hash of the package's sources, without those that only read results, and of library versions."""
    import numpy as np
    import sklearn

    import wiserouter

    root = Path(wiserouter.__file__).parent
    digest = hashlib.sha256(f"{np.__version__} {sklearn.__version__}".encode())
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root).as_posix()
        if not name.startswith(_READERS):
            digest.update(name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
