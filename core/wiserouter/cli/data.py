"""`wiserouter data`: public routing tables as one wide parquet file each, and the summary of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from wiserouter.cli.fit import names
from wiserouter.cli.output import check_no_input, err, out, print_json, table
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.datasets import TableSummary, summary
from wiserouter.evaluation.datasets.open_table import tables_folder
from wiserouter.evaluation.datasets.wide_table import WideTable, write
from wiserouter.pricing.amounts import usd

app = typer.Typer(help="Public routing tables: download or convert them, and check a table.", no_args_is_help=True)

Output = Annotated[Path | None, typer.Option("--output", "-o", help="The parquet file to write; by default in data/.")]
DropFaulty = Annotated[
    bool,
    typer.Option("--drop-faulty", help="Leave out rows with an empty cell or a repeated id instead of refusing them."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def routerbench(
    file: Annotated[
        Path | None, typer.Option("--from", help="A local file of the set; by default it is downloaded.")
    ] = None,
    output: Output = None,
    release: Annotated[str, typer.Option(help="5shot, or 0shot.")] = "5shot",
    sha256: Annotated[str | None, typer.Option(help="The required hash of the file.")] = None,
    drop_faulty: DropFaulty = False,
    as_json: AsJson = False,
) -> None:
    """Download RouterBench from the Hugging Face Hub and convert it; no code in its pickle is run.

    Example: wiserouter data routerbench && wiserouter replay data/routerbench_5shot.parquet --budget 5
    """
    from wiserouter.evaluation.datasets import routerbench as loader

    if release not in loader.RELEASES:
        raise InvalidInput(f"--release must be one of {', '.join(loader.RELEASES)}, got {release!r}", value=release)
    if file is None:
        err.print(f"Downloading {release} of {loader.REPOSITORY}; its card states no licence.", highlight=False)
        file = loader.download(release)
        output = output or tables_folder() / f"routerbench_{release}.parquet"
    converted = loader.read(file, sha256=sha256, drop_faulty=drop_faulty)
    _finish(converted, [file], output or tables_folder() / f"{file.stem}.parquet", as_json=as_json)


@app.command()
def swebench(
    runs: Annotated[list[Path], typer.Argument(help="leaderboards.json, files of runs, or folders with runs.")],
    output: Output = None,
    board: Annotated[str, typer.Option(help="The leaderboard of the file.")] = "bash-only",
    models: Annotated[str | None, typer.Option(help="Keep only these models, separated by commas.")] = None,
    problems: Annotated[
        Path | None, typer.Option(help="Parquet, csv or jsonl with instance_id and problem_statement.")
    ] = None,
    drop_faulty: DropFaulty = False,
    as_json: AsJson = False,
) -> None:
    """Convert runs of SWE-bench: resolution and cost in USD of every instance.

    Example: wiserouter data swebench leaderboards.json --problems verified.parquet
    """
    from wiserouter.evaluation.datasets import swebench as loader

    if problems is None:
        err.print("Without --problems a prompt is the id of its instance, which only identifies its repository.")
    chosen = names(models)
    converted = loader.read(runs, board=board, models=chosen, problems=problems, drop_faulty=drop_faulty)
    _finish(converted, [*runs, problems], output or tables_folder() / "swebench.parquet", as_json=as_json)


@app.command()
def paretobandit(
    files: Annotated[list[Path], typer.Argument(help="Such as val_k4.jsonl and test_k4.jsonl.")],
    output: Output = None,
    drop_faulty: DropFaulty = False,
    as_json: AsJson = False,
) -> None:
    """Convert ParetoBandit's evaluation set.

    Example: wiserouter data paretobandit val_k4.jsonl
    """
    from wiserouter.evaluation.datasets import paretobandit as loader

    converted = loader.read(files, drop_faulty=drop_faulty)
    _finish(converted, files, output or tables_folder() / "paretobandit.parquet", as_json=as_json)


@app.command()
def routerarena(
    files: Annotated[list[Path], typer.Argument(help="Files of RouterArena's cached_results, one per model.")],
    output: Output = None,
    drop_faulty: DropFaulty = False,
    as_json: AsJson = False,
) -> None:
    """Convert RouterArena's published answers into a table for evaluation only: fit and bench refuse it.

    Example: wiserouter data routerarena RouterArena/cached_results/gemini-2.0-flash-001.jsonl
    """
    from wiserouter.evaluation.datasets import routerarena as loader

    converted = loader.read(files, drop_faulty=drop_faulty)
    _finish(converted, files, output or tables_folder() / "routerarena.parquet", as_json=as_json)


@app.command()
def llmrouterbench(
    results: Annotated[list[Path], typer.Argument(help="Its folder results/bench, or files of it.")],
    output: Output = None,
    datasets: Annotated[str | None, typer.Option(help="Keep only these data sets, separated by commas.")] = None,
    models: Annotated[str | None, typer.Option(help="Keep only these models, separated by commas.")] = None,
    drop_faulty: DropFaulty = False,
    as_json: AsJson = False,
) -> None:
    """Convert results of LLMRouterBench: score and cost of each model on each query.

    Example: wiserouter data llmrouterbench results/bench --models gpt-5,gemini-2.5-flash --drop-faulty
    """
    from wiserouter.evaluation.datasets import llmrouterbench as loader

    converted = loader.read(results, datasets=names(datasets), models=names(models), drop_faulty=drop_faulty)
    _finish(converted, results, output or tables_folder() / "llmrouterbench.parquet", as_json=as_json)


@app.command()
def twinrouterbench(
    files: Annotated[list[Path], typer.Argument(help="Such as data/static/question_bank.jsonl.")],
    output: Output = None,
    drop_faulty: DropFaulty = False,
    as_json: AsJson = False,
) -> None:
    """Convert TwinRouterBench's static track: steps of agents, with tiers as models and their nominal costs.

    Example: wiserouter data twinrouterbench TwinRouterBench/data/static/question_bank.jsonl
    """
    from wiserouter.evaluation.datasets import twinrouterbench as loader

    converted = loader.read(files, drop_faulty=drop_faulty)
    _finish(converted, files, output or tables_folder() / "twinrouterbench.parquet", as_json=as_json)


@app.command()
def check(
    file: Annotated[str, typer.Argument(help="A log in any layout, or the name of a table in data/.")],
    as_json: AsJson = False,
) -> None:
    """Check every cell of a table, and print a summary.

    Example: wiserouter data check data/routerbench_5shot.parquet
    """
    _show(file, summary(file), as_json=as_json)


def _finish(converted: WideTable, read: Sequence[Path | None], output: Path, *, as_json: bool) -> None:
    check_no_input(output, read)
    write(converted, output)
    _show(str(output), summary(output), as_json=as_json, left_out=(converted.incomplete, converted.repeated))


def _show(title: str, found: TableSummary, *, as_json: bool, left_out: tuple[int, int] | None = None) -> None:
    if as_json:
        dropped = {} if left_out is None else dict(zip(("incomplete", "repeated"), left_out, strict=True))
        return print_json({"file": title, **_fields(found), **dropped})
    columns = ("model", "mean score", "mean cost", "no score", "no cost", "note")
    out.print(table(f"{title}: {found.queries:,} queries, {found.rows:,} rows", columns, _rows(found)))
    if left_out is not None and any(left_out):
        out.print(f"Left out: {left_out[0]} rows with an empty cell, {left_out[1]} with a repeated id.")
    out.print(f"Content: {found.sha256}", highlight=False)
    return None


def _rows(found: TableSummary) -> list[tuple[str, ...]]:
    return [
        (
            name,
            "" if math.isnan(found.mean_reward[k]) else f"{found.mean_reward[k]:.4f}",
            "" if math.isnan(found.mean_cost_usd[k]) else usd(found.mean_cost_usd[k]),
            f"{found.missing_reward[k]:,}",
            f"{found.missing_cost[k]:,}",
            "the same cost in every row: was it measured?" if name in found.flat_cost else "",
        )
        for k, name in enumerate(found.models)
    ]


def _fields(found: TableSummary) -> dict[str, object]:
    models = {
        name: {
            "mean_score": _number(found.mean_reward[k]),
            "mean_cost_usd": _number(found.mean_cost_usd[k]),
            "missing_scores": int(found.missing_reward[k]),
            "missing_costs": int(found.missing_cost[k]),
            "flat_cost": name in found.flat_cost,
        }
        for k, name in enumerate(found.models)
    }
    return {"queries": found.queries, "rows": found.rows, "sha256": found.sha256, "models": models}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
