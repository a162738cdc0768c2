"""The calls of a log that a judge can score, each with what names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wiserouter.errors import LogError
from wiserouter.fitting.log.cell_texts import cell_text
from wiserouter.fitting.log.files import IDS, ROW, reading, scan, schema_of

if TYPE_CHECKING:
    import polars as pl


class CallToJudge(NamedTuple):
    """A call with all that a judge needs; `id` is a row number where the log has no id."""

    id: str | int
    model: str
    prompt: str
    answer: str


class JudgedLog(NamedTuple):
    """A log to judge.

    Attributes
    ----------
    key : str
        The column whose values name its calls, or `ROW`.
    calls : list of CallToJudge
        Those with a prompt, an answer and a model.
    incomplete : int
        Number of the others.
    """

    key: str
    calls: list[CallToJudge]
    incomplete: int


def judged_log(path: Path, prompt: str, answer: str, model: str) -> JudgedLog:
    """Return the calls of a log.

    Raises
    ------
    LogError
        If a column is missing, or the file cannot be read.
    """
    frame = scan(path)
    schema = schema_of(frame, path)
    for column in (prompt, answer, model):
        if column not in schema:
            raise LogError(
                f"a log to judge needs a column {column!r}, got {', '.join(schema)}", file=path, column=column
            )
    ids = [name for name in IDS if name in schema and not schema[name].is_nested()]
    with reading(path):
        table = frame.select(list(dict.fromkeys([prompt, answer, model, *ids]))).collect()
    key = next((name for name in ids if _names_rows(table[name])), ROW)
    found = _calls(table, key, (model, prompt, answer))
    calls = [call for call in found if call.model and call.prompt and call.answer]
    return JudgedLog(key, calls, table.height - len(calls))


def _names_rows(column: pl.Series) -> bool:
    """Return True if each row has a value of its own."""
    import polars as pl

    return not column.null_count() and column.cast(pl.String).n_unique() == column.len()


def _calls(table: pl.DataFrame, key: str, columns: tuple[str, ...]) -> Iterator[CallToJudge]:
    for number, row in enumerate(table.iter_rows(named=True), start=1):
        model, prompt, answer = (cell_text(row[name]) for name in columns)
        yield CallToJudge(number if key == ROW else str(row[key]), model, prompt, answer)
