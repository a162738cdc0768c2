"""TwinRouterBench's static track (Apache-2.0): steps of agents, each with the cheapest tier of models that is enough.

A line of `question_bank.jsonl` is `{"id": ..., "benchmark": ..., "instance_id": ..., "step_index": 1,
"messages": [...], "target_tier": "mid", "target_tier_id": 1}`. The tiers are the models of the table: one that is at
least the target has score 1, else 0. The costs are nominal, at the board's prices of output per tier and its count of
output tokens where none is known, so that they are comparable with one another alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wiserouter.errors import LogError
from wiserouter.evaluation.datasets.wide_table import WideTable, series, wide
from wiserouter.fitting.log.limits import text_lines
from wiserouter.prompts.messages import question_text

OUTPUT_USD_PER_MTOK = {"low": 0.5, "mid": 2.0, "mid_high": 5.0, "high": 25.0}
"""The board's nominal prices, cheapest tier first; the place of a tier is its id."""

OUTPUT_TOKENS = 500
"""The board's count for a step whose output is not known."""

_TEXTS = ("sample_id", "prompt", "benchmark", "instance_id", "step_index")


def read(files: Iterable[Path], *, drop_faulty: bool = False) -> WideTable:
    """Return the table of one or more question banks.

    Parameters
    ----------
    files : iterable of Path
        Such as `question_bank.jsonl`.
    drop_faulty : bool, default False
        Leave out rows with a repeated id, instead of refusing the table.

    Raises
    ------
    LogError
        If a line has another structure.
    """
    import polars as pl

    steps = [step for file in files for step in _steps(file)]
    if not steps:
        raise LogError("no step was found: give TwinRouterBench's data/static/question_bank.jsonl")
    texts = [series(name, [step[name] for step in steps]) for name in _TEXTS]
    columns, numbers = {}, []
    for tier, (name, usd_per_mtok) in enumerate(OUTPUT_USD_PER_MTOK.items()):
        columns[name] = (f"score|{name}", f"cost|{name}")
        numbers.append(series(f"score|{name}", [float(tier >= step["target"]) for step in steps]))
        numbers.append(series(f"cost|{name}", [usd_per_mtok * OUTPUT_TOKENS / 1e6] * len(steps)))
    return wide(pl.DataFrame([*texts, *numbers]), columns, drop_faulty=drop_faulty)


def _steps(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the texts of each step, its question, and the id of its target tier."""
    for row, line in enumerate((one for one in text_lines(file) if one.strip()), start=1):
        try:
            step = json.loads(line)
            target, question = step["target_tier_id"], question_text(step["messages"])
            if isinstance(target, bool) or target not in range(len(OUTPUT_USD_PER_MTOK)) or question is None:
                raise ValueError(f"target_tier_id {target!r}, messages {str(step['messages'])[:80]!r}")
            name, place = str(step["id"]), str(step.get("step_index", 1))
            told = (name, question, step["benchmark"], str(step.get("instance_id", name)), place)
            yield {**dict(zip(_TEXTS, told, strict=True)), "target": target}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            rule = "a line must be one step of TwinRouterBench's question bank"
            raise LogError(f"{rule}, got {error!r}", file=file, row=row) from error
