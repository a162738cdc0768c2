"""The file of results: one parquet with the rows and the description of a bench, from which a report is made."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wiserouter.errors import LogError
from wiserouter.validation import write_whole

if TYPE_CHECKING:
    import polars as pl

_KEY = "wiserouter"
_WRITTEN_BY = "wiserouter bench TABLE --report out writes out/TABLE.parquet"


class About(NamedTuple):
    """The description of a bench.

    Attributes
    ----------
    table : str
        Name of the table.
    terms : str
        A paragraph on the table, the split, the seeds and the settings.
    methods : list of str
        In the order of the tables; oracles are the last.
    rivals : list of str
        The methods that compete for the best.
    shown_usd : list of float
        The budgets per query that tables show.
    notes : dict of str to str
        A remark on each method.
    origin : dict of str to str
        Versions, seeds, the hash of the data and the command.
    """

    table: str
    terms: str
    methods: list[str]
    rivals: list[str]
    shown_usd: list[float]
    notes: dict[str, str]
    origin: dict[str, str]


class Results(NamedTuple):
    """The rows of a bench, one per method, seed and budget, and its description."""

    rows: pl.DataFrame
    about: About

    def write(self, path: str | Path) -> None:
        """Write both to one parquet."""
        written = BytesIO()
        self.rows.write_parquet(written, metadata={_KEY: json.dumps(self.about._asdict())})
        write_whole(Path(path), written.getvalue())


def read_results(path: str | Path) -> Results:
    """Return the results in a file of `Results.write`.

    Raises
    ------
    LogError
        If the file is not a parquet of a bench.
    """
    import polars as pl

    try:
        metadata: dict[str, Any] = pl.read_parquet_metadata(path)
    except pl.exceptions.PolarsError as error:
        rule = "the rows of a bench must be a parquet file, and this is not one"
        raise LogError(f"{rule}: {_WRITTEN_BY}", file=Path(path)) from error
    if _KEY not in metadata:
        raise LogError(
            f"the rows of a bench must carry its description, and these do not: {_WRITTEN_BY}", file=Path(path)
        )
    return Results(pl.read_parquet(path), About(**json.loads(metadata[_KEY])))
