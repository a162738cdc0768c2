"""LLMRouterBench (OpenRouterBench; MIT): one JSON file per data set, split and model, with a record per query.

A file is `results/bench/<data set>/<split>/<model>/<time>.json`: `{"dataset_name": ..., "split": ...,
"model_name": ..., "records": [{"index": 1, "origin_query": ..., "prompt": ..., "score": 1.0, "cost": 0.0001}]}`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from wiserouter.errors import LogError
from wiserouter.evaluation.datasets.wide_table import WideTable, series, wide


class _Results(NamedTuple):
    """The records of one model on one split of a data set."""

    dataset: str
    split: str
    model: str
    records: list[Any]
    file: Path


def read(
    paths: Iterable[Path],
    *,
    datasets: Collection[str] | None = None,
    models: Collection[str] | None = None,
    drop_faulty: bool = False,
) -> WideTable:
    """Return the table of the queries that all models answered.

    Parameters
    ----------
    paths : iterable of Path
        Result files, or folders with them; of several of one model on one split the last by name counts.
    datasets, models : collection of str, optional
        Those to keep; by default all.
    drop_faulty : bool, default False
        Leave out queries that a model did not answer, instead of refusing the table.

    Raises
    ------
    LogError
        If a file has another structure, or a cell is missing or out of range.
    """
    import polars as pl

    latest: dict[tuple[str, ...], _Results] = {}
    for results in _results(paths):
        if (datasets is None or results.dataset in datasets) and (models is None or results.model in models):
            latest[results[:3]] = results
    if not latest:
        raise LogError("no results were found: give the folder results/bench of LLMRouterBench")
    rows: dict[str, dict[str, Any]] = {}
    for results in latest.values():
        for place, record in enumerate(results.records, start=1):
            _add(rows, results, record, place)
    names = list(dict.fromkeys(results.model for results in latest.values()))
    columns = {name: (f"score|{name}", f"cost|{name}") for name in names}
    wanted = ["sample_id", "prompt", "dataset", "split", *(name for pair in columns.values() for name in pair)]
    frame = pl.DataFrame([series(name, [row.get(name) for row in rows.values()]) for name in wanted])
    return wide(frame, columns, drop_faulty=drop_faulty)


def _results(paths: Iterable[Path]) -> Iterator[_Results]:
    for path in paths:
        for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
                if not content.get("demo", False):
                    names = content["dataset_name"], content["split"], content["model_name"]
                    yield _Results(*names, content["records"], file)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                rule = "a file must hold one model's results of LLMRouterBench"
                raise LogError(f"{rule}, got {error!r}", file=file) from error


def _add(rows: dict[str, dict[str, Any]], results: _Results, record: Any, place: int) -> None:
    """Add the score and the cost of a record to the row of its query."""
    try:
        name = f"{results.dataset}/{results.split}/{record['index']}"
        text = record.get("origin_query") or record["prompt"]
        prompt = text if isinstance(text, str) else json.dumps(text)
        row = rows.setdefault(
            name, {"sample_id": name, "prompt": prompt, "dataset": results.dataset, "split": results.split}
        )
        row[f"score|{results.model}"], row[f"cost|{results.model}"] = record["score"], record["cost"]
    except (KeyError, TypeError, AttributeError) as error:
        rule = "a record must have index, prompt, score and cost"
        raise LogError(f"{rule}, got {error!r}", file=results.file, row=place) from error
