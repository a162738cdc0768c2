"""`wiserouter log import`: past calls and their scores from the systems that recorded them, as one log."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from wiserouter.cli.fit import read_former_prices, read_models
from wiserouter.cli.log_options import ScaleOption
from wiserouter.cli.output import check_no_input, check_writable, out, print_json, progress, reporter, table
from wiserouter.errors import InvalidInput
from wiserouter.fitting.imports.litellm import CUT
from wiserouter.fitting.imports.log_writer import ImportCounts, LogWriter
from wiserouter.fitting.imports.postgres import SpendTables
from wiserouter.fitting.imports.run_import import Wanted, import_files, import_pages, import_tables, request_of
from wiserouter.fitting.imports.scores import Scores
from wiserouter.fitting.imports.sources import SOURCES, source_of
from wiserouter.fitting.log.scores import UNIT, Scale
from wiserouter.fitting.platforms.call_pages import call_pages, check_has_pages, scores_of_platform
from wiserouter.fitting.platforms.score_pages import platform_of
from wiserouter.operating.since import age_s, start_s

_POSTGRES = ("postgresql://", "postgres://")
_HTTP = ("http://", "https://")


def import_log(
    source: Annotated[str, typer.Argument(help=f"The system: {', '.join(SOURCES)}.")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Exported files (jsonl, JSON, csv, parquet), for litellm its postgresql:// URL, or the address "
            "of Langfuse or LangSmith, whose keys are in their own variables."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The log to write, a .parquet file.")],
    scores: Annotated[
        list[Path] | None, typer.Option("--scores", help="A file of scores of these calls, joined by id; repeatable.")
    ] = None,
    score: Annotated[str | None, typer.Option("--score", help="The metric, where there are several.")] = None,
    scale: ScaleOption = None,
    since: Annotated[
        str | None, typer.Option(help="The earliest call: a date, or an age such as 30d, 12h, 4w.")
    ] = None,
    group: Annotated[str | None, typer.Option(help="Only calls that asked for this model or group.")] = None,
    prices: Annotated[
        Path | None, typer.Option(help="JSON: model -> Model fields; prices calls whose cost was not recorded.")
    ] = None,
    project: Annotated[str, typer.Option(help="With the address of LangSmith: the id of the project.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Import past calls with their prompts, costs, tokens and scores.

    An import from a database or an address that was stopped is resumed by the same
    command; one of files begins again.

    Example: wiserouter log import langfuse observations.jsonl --scores scores.jsonl --score helpful -o calls.parquet
    """
    check_writable(output)
    check_no_input(output, [*(Path(one) for one in inputs if "://" not in one), *(scores or ()), prices])
    wanted = Wanted(None if since is None else start_s(since, time.time()), group)
    reader = source_of(source)
    priced = {one.name: one.price for one in read_models(prices) if one.price} if prices else {}
    former = read_former_prices(prices) if prices else {}
    taken = Scores(score, UNIT if scale is None else Scale.parse(scale))
    asked = Wanted(wanted.since_s if since and age_s(since) is None else None, group)
    terms = {"score": score, "scale": scale, "scores": sorted(map(str, scores or ())), "project": project}
    if former:
        terms["former_prices"] = repr(former)
    request = request_of(source, inputs, asked, terms, priced)
    log = LogWriter(output, priced, CUT if source.startswith("litellm") else "", request=request, former=former)
    with progress(quiet=as_json) as bars:
        told = reporter(bars)
        if any(one.startswith(_POSTGRES) for one in inputs):
            tables = SpendTables(_only_url(source, inputs))
            try:
                counts = import_tables(reader, tables, scores or (), taken, wanted, log, told)
            finally:
                tables.close()
        elif any(one.startswith(_HTTP) for one in inputs):
            check_has_pages(source)
            platform = platform_of(source, os.environ, _only_address(inputs), project)
            since_s, until_s = wanted.since_s or 0.0, time.time()
            pages = call_pages(platform, since_s, until_s, log.cursor)
            found = scores_of_platform(platform, since_s)
            counts = import_pages(reader, pages, found, scores or (), taken, wanted, log, told)
        else:
            paths = [Path(one) for one in inputs]
            counts = import_files(reader, paths, scores or (), taken, wanted, log, told)
    notes = _notes(counts, taken, source)
    if not counts.calls:
        why = "; ".join(notes) or f"none is a call of {source}, check that they are its exports"
        got = f"got {counts.records:,} records"
        raise InvalidInput(f"an import must find a call to keep, {got}: {why}; {output} is as it was")
    if as_json:
        scored = {"refused_scores": taken.refused, "unread_scores": taken.unread}
        return print_json({**_fields(counts), **scored, "output": str(output)})
    return _show(counts, notes, output)


def _only_url(source: str, inputs: Sequence[str]) -> str:
    if source != "litellm" or len(inputs) != 1:
        raise InvalidInput(f"a database is read alone, as the source litellm; got {source} with {len(inputs)} inputs")
    return inputs[0]


def _only_address(inputs: Sequence[str]) -> str:
    if len(inputs) != 1:
        raise InvalidInput(f"an address is read alone, got {len(inputs)} inputs")
    return inputs[0]


def _fields(counts: ImportCounts) -> dict[str, object]:
    return {name: getattr(counts, name) for name in counts.__slots__}


def _show(counts: ImportCounts, notes: Sequence[str], output: Path) -> None:
    rows = [(name, f"{n:,}") for name, n in sorted(counts.models.items(), key=lambda one: -one[1])[:20]]
    out.print(table(f"{counts.calls:,} calls in {output}", ("model", "calls"), rows))
    for line in notes:
        out.print(line, highlight=False, soft_wrap=True)
    out.print(f"\nNext: wiserouter log check {quote(str(output))}", highlight=False, soft_wrap=True)


def _notes(counts: ImportCounts, scores: Scores, source: str) -> list[str]:
    hint = ": turn on store_prompts_in_spend_logs, or export the payloads of a logging callback"
    told = [
        (counts.cut_prompt, "with a prompt that was cut when it was stored"),
        (counts.priced, "priced by their tokens"),
        (counts.no_cost, "without a cost: give --prices FILE"),
        (counts.free, "with a cost of 0: give --prices FILE for models that are not free"),
        (counts.no_score, "without a score"),
        (counts.no_prompt, "left out: no stored prompt" + (hint if source == "litellm" else "")),
        (counts.no_model, "left out: no name of a model"),
        (counts.failed, "left out: failed, or answered from a cache"),
        (counts.older, "left out: from before --since"),
        (counts.no_time, "left out: no time to compare to --since, or none that can be read"),
        (counts.other_group, "left out: of other groups"),
        (counts.repeated, "left out: found once more"),
        (scores.refused, "scores refused: no verdict, and not on the scale (--scale)"),
        (scores.unread, "records of --scores left out: no id and score"),
    ]
    return [f"{n:,} {text}" for n, text in told if n]
