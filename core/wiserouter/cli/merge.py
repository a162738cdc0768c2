"""`wiserouter merge`: the sum of artifacts fitted on parts of a log."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from wiserouter.artifacts import merge as merging
from wiserouter.artifacts.file import check_target
from wiserouter.artifacts.parts import RouterParts
from wiserouter.artifacts.save_load import load, save
from wiserouter.cli.output import check_writable, out, print_json, table


def merge(
    artifacts: Annotated[list[Path], typer.Argument(help="Two or more artifacts with the same contexts.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The artifact to write.")] = Path("merged.wise"),
    prices_from: Annotated[
        Path | None, typer.Option(help="The artifact to take prices and limits from, if those of a model differ.")
    ] = None,
    means_only: Annotated[
        bool, typer.Option("--means-only", help="Leave out estimates of single queries, which do not add.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Add up artifacts fitted on parts of a log; the result equals a fit on the whole log.

    Example: wiserouter merge a.wise b.wise -o all.wise

    Fit the first part as usual, and the others in its contexts: wiserouter fit b.parquet --contexts-of a.wise -o b.wise
    """
    check_writable(output)
    check_target(output)
    merging.check_distinct(artifacts)
    parts = [(str(path), load(path)) for path in artifacts]
    merged = merging.merge(parts, None if prices_from is None else load(prices_from), means_only=means_only)
    digest = save(merged, output)
    counts = [_counts(*part) for part in parts]
    total = _counts(str(output), merged)
    if as_json:
        names = [model.name for model in merged.models]
        return print_json({**total, "sha256": digest, "models": names, "parts": counts})
    rows = [(str(one["artifact"]), *(_figure(value) for value in list(one.values())[1:])) for one in (*counts, total)]
    out.print(table(f"{output}: {len(parts)} artifacts added up", ("artifact", *list(total)[1:]), rows))
    out.print(f"\nsha256 {digest}", highlight=False, soft_wrap=True)
    out.print(f"Next: wiserouter plan {quote(str(output))}", highlight=False, soft_wrap=True)
    return None


def _counts(artifact: str, parts: RouterParts) -> dict[str, str | int | None]:
    """Return the number of queries, costs and rewards that an artifact was fitted on."""
    return {
        "artifact": artifact,
        "queries": parts.contexts.n_queries,
        "costs": round(parts.estimates.calls.sum()),
        "rewards": round(parts.estimates.labels.sum()),
    }


def _figure(value: str | int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
