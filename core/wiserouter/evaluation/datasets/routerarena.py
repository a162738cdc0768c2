"""RouterArena's published answers (`cached_results/<model>.jsonl`): one line per query with score and cost.

The set is for evaluation only: routers that were trained, fitted or tuned on it are refused by its board. So the table
has a column `evaluation_only`, and `fit` and `bench` refuse it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wiserouter.errors import LogError
from wiserouter.evaluation.datasets.wide_table import WideTable, wide
from wiserouter.fitting.evaluation_only import MARK
from wiserouter.fitting.log.limits import text_lines


def read(files: Iterable[Path], *, drop_faulty: bool = False) -> WideTable:
    """Return the table of some models' answers to the queries that all of them answered.

    Parameters
    ----------
    files : iterable of Path
        Such as `gemini-2.0-flash-001.jsonl`; of several answers to a query the first counts.
    drop_faulty : bool, default False
        Leave out queries that a model did not answer, instead of refusing the table.

    Raises
    ------
    LogError
        If a line has another structure, or a cell is missing or out of range.
    """
    import polars as pl

    rows: dict[str, dict[str, Any]] = {}
    models: dict[str, None] = {}
    for file in files:
        for index, prompt, model, score, cost_usd in _answers(file):
            models[model] = None
            row = rows.setdefault(index, {"sample_id": index, "prompt": prompt, MARK: "RouterArena"})
            row.setdefault(f"score|{model}", score)
            row.setdefault(f"cost|{model}", cost_usd)
    if not models:
        raise LogError("no answer was found: give files of RouterArena's cached_results")
    frame = pl.DataFrame(list(rows.values()), infer_schema_length=None)
    columns = {model: (f"score|{model}", f"cost|{model}") for model in models}
    return wide(frame, columns, drop_faulty=drop_faulty)


def _answers(file: Path) -> Iterator[tuple[str, str, str, float | None, float | None]]:
    """Yield index, prompt, model, score and cost of each answer that was scored."""
    for row, line in enumerate((one for one in text_lines(file) if one.strip()), start=1):
        try:
            entry = json.loads(line)
            result = entry["evaluation_result"] or {}
            score, cost_usd = result.get("score"), result.get("inference_cost")
            yield entry["global_index"], entry["question"], entry["llm_selected"], score, cost_usd
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            rule = "a line must be one answer of RouterArena's cached_results"
            raise LogError(f"{rule}, got {error!r}", file=file, row=row) from error
