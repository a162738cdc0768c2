"""`wiserouter log`: past calls: the check of a log before anything is fitted on it."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from wiserouter.cli.fit import names, read_models
from wiserouter.cli.log_import import import_log
from wiserouter.cli.log_options import (
    CostColumn,
    EffortColumn,
    Joined,
    LogArgument,
    ModelColumn,
    PromptColumn,
    RewardColumn,
    ScaleOption,
    read_log,
)
from wiserouter.cli.output import out, print_json, table
from wiserouter.fitting.log.scores import UNIT, Scale
from wiserouter.fitting.log.survey import LogSurvey, survey
from wiserouter.pricing.amounts import usd

app = typer.Typer(help="Logs of past calls: import them, and check how one is read.", no_args_is_help=True)
app.command("import")(import_log)

_FIELDS = (
    "prompt",
    "model",
    "effort",
    "reward",
    "cost_usd",
    "query_id",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
)


@app.command()
def check(
    file: LogArgument,
    prompt: PromptColumn = None,
    model: ModelColumn = None,
    effort: EffortColumn = None,
    reward: RewardColumn = None,
    cost: CostColumn = None,
    scale: ScaleOption = None,
    joined: Joined = None,
    prices: Annotated[Path | None, typer.Option(help="JSON: model -> Model fields, price in USD per token.")] = None,
    models: Annotated[str | None, typer.Option(help="Keep only these models, separated by commas.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show how a log is read, what it holds, and which rows would be refused; nothing is written.

    The exit code is 1 where a fit would refuse the log.

    Example: wiserouter log check calls.csv --reward rating --scale 1..5
    """
    priced = {one.name: one.price for one in read_models(prices) if one.price} if prices else {}
    log = read_log(
        file,
        models=names(models),
        prompt=prompt,
        model=model,
        effort=effort,
        reward=reward,
        cost=cost,
        scale=scale,
        joined=joined,
        prices=priced,
    )
    found = survey(log)
    print_json(_fields(file, found, log.scale)) if as_json else _show(file, found, log.scale)
    raise typer.Exit(int(found.is_refused))


def _fields(file: str, found: LogSurvey, scale: Scale) -> dict[str, object]:
    return {
        "file": file,
        "layout": found.layout,
        "columns": found.columns,
        "mapping": dict(found.places),
        "scale": [scale.worst, scale.best],
        "rows": found.rows,
        "calls": found.calls,
        "models": {
            name: {
                "calls": one.calls,
                "scores": one.scores,
                "costs": one.costs,
                "mean_reward": one.mean_reward,
                "mean_cost_usd": one.mean_cost_usd,
            }
            for name, one in found.models.items()
        },
        "refused": [
            {"column": one.column, "rule": one.rule, "rows": one.rows, "first": one.first} for one in found.refusals
        ],
        "unpriced": list(found.unpriced),
        "failed_lines": found.failed_lines,
    }


def _show(file: str, found: LogSurvey, scale: Scale) -> None:
    rows = [
        (name, found.places.get(name, "-"), _note(name, found, scale)) for name in _FIELDS if _is_shown(name, found)
    ]
    out.print(table(f"{Path(file).name}: {found.layout}, {found.rows:,} rows", ("field", "column", ""), rows, left=3))
    unused = [name for name in found.columns if not _is_used(name, found)] if found.layout == "long" else []
    if unused:
        out.print(f"Not used: {', '.join(unused[:20])}{', ...' if len(unused) > 20 else ''}", highlight=False)
    out.print()
    columns = ("model", "calls", "scores", "mean score", "costs", "mean cost", "")
    title = f"{found.calls:,} calls" + (", without the cells that are refused" if found.refusals else "")
    out.print(table(title, columns, _model_rows(found)))
    if found.failed_lines:
        out.print(f"Left out: {found.failed_lines:,} lines of the batch that failed or expired", highlight=False)
    for one in found.refusals:
        out.print(f"\nRefused, {one.rows:,} rows: {one.first}", highlight=False, soft_wrap=True)
    if scale == UNIT and found.scores is not None and not found.scores_are_rewards:
        low, high = found.scores
        suggested = found.suggested_scale
        remedy = f"try --scale {suggested}, if that is theirs" if suggested else "give theirs with --scale WORST..BEST"
        out.print(f"Scores go from {low:g} to {high:g}: {remedy}", highlight=False)
    if found.unpriced:
        out.print(f"\nTokens without a price: {', '.join(found.unpriced)}: give --prices FILE", highlight=False)
    elif found.without_costs:
        remedy = "give their costs, or token counts with --prices FILE; fit leaves models out with --models"
        out.print(f"\nNo cost of {', '.join(found.without_costs)}: {remedy}", highlight=False, soft_wrap=True)
    elif not found.is_refused:
        out.print(f"\nNext: wiserouter fit {quote(file)}, with the same options", highlight=False, soft_wrap=True)


def _is_used(column: str, found: LogSurvey) -> bool:
    """Return True where a field is a column, or lies within it."""
    return any(place == column or place.startswith(f"{column}.") for place in found.places.values())


def _is_shown(name: str, found: LogSurvey) -> bool:
    return name in found.places or (found.layout == "long" and name in {"reward", "cost_usd"})


def _note(name: str, found: LogSurvey, scale: Scale) -> str:
    if name == "reward":
        if name not in found.places:
            return "no scores: quality comes from priors"
        return "" if scale == UNIT else f"scale {scale.worst:g}..{scale.best:g}"
    if name == "cost_usd" and name not in found.places:
        return "from tokens and prices"
    return ""


def _model_rows(found: LogSurvey) -> list[tuple[str, ...]]:
    return [
        (
            name,
            f"{one.calls:,}",
            f"{one.scores:,} ({one.scores / max(one.calls, 1):.0%})",
            "" if one.mean_reward is None else f"{one.mean_reward:.4f}",
            f"{one.costs:,} ({one.costs / max(one.calls, 1):.0%})",
            "" if one.mean_cost_usd is None else usd(one.mean_cost_usd),
            "" if one.scores else "no score",
        )
        for name, one in found.models.items()
    ]
