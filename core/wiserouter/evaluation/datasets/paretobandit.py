"""ParetoBandit's evaluation set (Apache-2.0): a jsonl file, one query per line, with reward and cost of every arm.

A line is `{"prompt": ..., "source": ..., "arms": {model: {"reward": 0.9, "cost": 0.0006}}}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wiserouter.errors import LogError
from wiserouter.evaluation.datasets.wide_table import WideTable, series, wide

if TYPE_CHECKING:
    import polars as pl

_FIELDS = ("reward", "cost")


class _ScoredQuery(NamedTuple):
    id: str
    source: str | None
    prompt: str
    arms: Mapping[str, Mapping[str, Any]]


def read(files: Iterable[Path], *, drop_faulty: bool = False) -> WideTable:
    """Return the table of one or more files.

    Parameters
    ----------
    files : iterable of Path
        Files of the set, such as `val_k4.jsonl` and `test_k4.jsonl`; a query's id is made of file and line.
    drop_faulty : bool, default False
        Leave out queries that lack an arm, instead of refusing the table.

    Raises
    ------
    LogError
        If a line has another structure, or a cell is missing or out of range.
    """
    named = list(files)
    lines = [line for file in named for line in _lines(file)]
    models = list(dict.fromkeys(model for line in lines for model in line.arms))
    if not models:
        raise LogError(f"no query was found in {', '.join(map(str, named)) or 'no file'}")
    columns = {model: (f"arms.{model}.reward", f"arms.{model}.cost") for model in models}
    file = named[0] if len(named) == 1 else None
    return wide(_frame(lines, columns, file), columns, file=file, drop_faulty=drop_faulty)


def _lines(file: Path) -> list[_ScoredQuery]:
    with file.open(encoding="utf-8", errors="replace") as text:
        return [_line(line, file, row) for row, line in enumerate((one for one in text if one.strip()), start=1)]


def _line(text: str, file: Path, row: int) -> _ScoredQuery:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise LogError(f"a line must be one JSON object, got {text[:80]!r}", file=file, row=row, value=text) from error
    for field, kind in (("prompt", str), ("arms", dict)):
        value = content.get(field) if isinstance(content, dict) else None
        if not isinstance(value, kind):
            raise LogError(f"a {kind.__name__} is wanted, got {value!r:.80}", file=file, row=row, column=field)
    for model, arm in content["arms"].items():
        for field in _FIELDS:
            if not isinstance(arm, dict) or field not in arm:
                raise LogError(f"{field} is missing", file=file, row=row, column=f"arms.{model}.{field}")
    return _ScoredQuery(f"{file.stem}-{row - 1:05d}", content.get("source"), content["prompt"], content["arms"])


def _frame(lines: list[_ScoredQuery], columns: Mapping[str, tuple[str, str]], file: Path | None) -> pl.DataFrame:
    import polars as pl

    texts = [series(name, [getattr(line, name) for line in lines], file) for name in ("id", "source", "prompt")]
    numbers = [
        series(column, [line.arms.get(model, {}).get(field) for line in lines], file)
        for model, pair in columns.items()
        for column, field in zip(pair, _FIELDS, strict=True)
    ]
    return pl.DataFrame([texts[0].rename("sample_id"), *texts[1:], *numbers])
