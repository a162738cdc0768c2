"""Runs of SWE-bench: for every instance its resolution and the cost of the whole run in USD.

Three JSON structures are read, as published:

- the leaderboard, `{"leaderboards": [{"name": ..., "results": [{"name", "tags", "per_instance_details": RUN}]}]}`;
- one run, `{instance: {"resolved": true, "cost": 0.18, "api_calls": 12}}`, named by its folder;
- several runs by model, `{model: RUN}`.

None of them contains the problem statements: without a file of these the prompt is the id of the instance, which only
identifies its repository.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wiserouter.errors import LogError
from wiserouter.evaluation.datasets.wide_table import WideTable, series, wide

if TYPE_CHECKING:
    import polars as pl

AgentRun = Mapping[str, Mapping[str, Any]]
"""Maps an instance to `resolved` and `cost`."""

BOARD = "bash-only"
"""The leaderboard on which one agent ran all models: mini-SWE-agent."""

_FOLDER = re.compile(r"^\d{8}_(mini-v[\d.]+_)?")


def read(
    paths: Iterable[Path],
    *,
    board: str = BOARD,
    models: Sequence[str] | None = None,
    problems: Path | None = None,
    drop_faulty: bool = False,
) -> WideTable:
    """Return the table of several runs.

    Parameters
    ----------
    paths : iterable of Path
        JSON files, or folders that contain a `per_instance_details.json` for each run.
    board : str, default "bash-only"
        The leaderboard to read from a file with several.
    models : sequence of str, optional
        Models to keep, in this order.
    problems : Path, optional
        A parquet, csv or jsonl with `instance_id` and `problem_statement`, and `repo` and `difficulty` if it has them.
    drop_faulty : bool, default False
        Leave out instances missing from a run, instead of refusing the table.

    Raises
    ------
    LogError
        If a file has another structure, or a cell is missing, repeated or out of range.
    """
    runs: dict[str, AgentRun] = {}
    files = [file for path in paths for file in _files(path)]
    for file in files:
        for name, run in _runs(_json(file), file, board):
            if name in runs:
                raise LogError(f"a run must come once, got {name!r} again: name fewer files", file=file, value=name)
            runs[name] = run
    if models is not None:
        runs = {name: _chosen(runs, name) for name in models}
    if not runs:
        raise LogError(f"no run with results per instance was found in {', '.join(map(str, files)) or 'no file'}")
    columns = {name: (f"score|{name}", f"cost|{name}") for name in runs}
    return wide(_frame(runs, problems), columns, file=files[0] if len(files) == 1 else None, drop_faulty=drop_faulty)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder: correct the path")
    return sorted(path.rglob("per_instance_details.json")) if path.is_dir() else [path]


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except ValueError as error:
        raise LogError(f"the file is damaged or not JSON: {error}", file=file) from error


def _runs(content: Any, file: Path, board: str) -> Iterator[tuple[str, AgentRun]]:
    """Yield the runs of a file by name."""
    if isinstance(content, dict) and isinstance(content.get("leaderboards"), list):
        yield from _board(content["leaderboards"], file, board)
    elif _is_run(content):
        yield _FOLDER.sub("", file.parent.name), content
    elif isinstance(content, dict) and content and all(_is_run(run) for run in content.values()):
        yield from content.items()
    else:
        shapes = "a leaderboard, a run {instance: {resolved, cost}}, or runs by model"
        raise LogError(f"the file must hold {shapes}", file=file)


def _board(boards: Sequence[Any], file: Path, wanted: str) -> Iterator[tuple[str, AgentRun]]:
    """Yield the runs of a leaderboard that publish results per instance, by model where that is unique."""
    results = {one.get("name"): one.get("results") for one in boards if isinstance(one, dict)}
    entries = results.get(wanted)
    if not isinstance(entries, list):
        raise LogError(f"board must be one of {', '.join(map(str, results))}, got {wanted!r}", file=file, value=wanted)
    detailed = [one for one in entries if isinstance(one, dict) and _is_run(one.get("per_instance_details"))]
    names = [(_model(one), str(one.get("name")), str(one.get("folder"))) for one in detailed]
    for k, one in enumerate(detailed):
        unique = [name for i, name in enumerate(names[k]) if [other[i] for other in names].count(name) == 1]
        yield unique[0] if unique else names[k][0], one["per_instance_details"]


def _model(entry: Mapping[str, Any]) -> str:
    tags = [str(tag) for tag in entry.get("tags") or ()]
    models = [tag.removeprefix("Model:").strip() for tag in tags if tag.startswith("Model:")]
    return models[0] if models else str(entry.get("name"))


def _is_run(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and bool(content)
        and all(isinstance(one, dict) and "resolved" in one for one in content.values())
    )


def _chosen(runs: Mapping[str, AgentRun], name: str) -> AgentRun:
    if name not in runs:
        raise LogError(f"a run must be one of {', '.join(runs)}; got {name!r}", value=name)
    return runs[name]


def _frame(runs: Mapping[str, AgentRun], problems: Path | None) -> pl.DataFrame:
    import polars as pl

    ids = sorted({instance for run in runs.values() for instance in run})
    parts = [
        series(f"{column}|{name}", [run.get(instance, {}).get(field) for instance in ids])
        for name, run in runs.items()
        for column, field in (("score", "resolved"), ("cost", "cost"))
    ]
    texts = pl.DataFrame({"sample_id": ids, "source": ["swe-bench"] * len(ids)})
    return texts.hstack(_problems(problems, ids)).hstack(parts)


def _problems(file: Path | None, ids: Sequence[str]) -> pl.DataFrame:
    """Return the prompts of the instances, with their `repo` and `difficulty` if the file has them."""
    import polars as pl

    if file is None:
        return pl.DataFrame({"prompt": list(ids)})
    from wiserouter.fitting.log import files

    lazy = files.scan(file)
    found = files.column_names(lazy, file)
    for needed in ("instance_id", "problem_statement"):
        if needed not in found:
            raise LogError(f"the column is missing; found: {', '.join(found)}", file=file, column=needed)
    extra = [name for name in ("repo", "difficulty") if name in found]
    with files.reading(file):
        known = lazy.select("instance_id", *extra, prompt="problem_statement").collect().unique("instance_id")
    return pl.DataFrame({"instance_id": list(ids)}).join(known, on="instance_id", how="left").drop("instance_id")
