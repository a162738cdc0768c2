"""The options by which commands read a log whose columns have other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from wiserouter.fitting.log import LogColumns, RoutingLog, Scale
from wiserouter.fitting.log.scores import UNIT
from wiserouter.pricing.prices import Price

PromptColumn = Annotated[
    str | None, typer.Option("--prompt", help="Column of the prompts, or a path such as body.messages.")
]
ModelColumn = Annotated[str | None, typer.Option("--model", help="Column of the model names.")]
EffortColumn = Annotated[
    str | None, typer.Option("--effort", help="Column of the reasoning efforts: a model of each, such as gpt-5@low.")
]
RewardColumn = Annotated[str | None, typer.Option("--reward", help="Column of the scores.")]
CostColumn = Annotated[str | None, typer.Option("--cost", help="Column of the costs in USD.")]
ScaleOption = Annotated[
    str | None, typer.Option("--scale", help="Worst and best score, such as 1..5, 0..100 or -1..1.")
]
Joined = Annotated[
    list[Path] | None,
    typer.Option("--with", help="A file with more columns of the same calls, joined by their id; repeatable."),
]


LogArgument = Annotated[
    str, typer.Argument(help="Past calls: parquet, csv or jsonl, wide or long; a file, a folder, a pattern or a URL.")
]


def read_log(
    path: str | Path,
    *,
    models: Sequence[str] | None = None,
    prompt: str | None = None,
    model: str | None = None,
    effort: str | None = None,
    reward: str | None = None,
    cost: str | None = None,
    scale: str | None = None,
    joined: Sequence[Path] | None = None,
    prices: Mapping[str, Price] | None = None,
    read: Callable[..., RoutingLog] = RoutingLog.read,
) -> RoutingLog:
    """Return the log that the options describe."""
    return read(
        path,
        models=models,
        columns=LogColumns(prompt=prompt, model=model, reward=reward, cost_usd=cost, effort=effort),
        scale=UNIT if scale is None else Scale.parse(scale),
        prices=prices,
        joined=joined or (),
    )
