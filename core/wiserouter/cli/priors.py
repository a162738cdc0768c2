"""`wiserouter priors`: the prior qualities that come with the package, or those of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wiserouter.cli.output import out, print_json, table
from wiserouter.errors import InvalidInput
from wiserouter.pricing.prior_scores import PriorScores, published_scores


def priors(
    file: Annotated[Path | None, typer.Argument(help="A csv file of your own, to check it.")] = None,
    family: Annotated[str | None, typer.Option(help="Only this kind of task, such as code.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List prior qualities of models: published scores with their date, source and licence.

    Example: wiserouter priors --family code
    """
    rows = PriorScores.open(str(file)).rows if file is not None else published_scores()
    families = sorted({row.family for row in rows})
    if family is not None and family not in families:
        raise InvalidInput(f"--family must be one of {', '.join(families)}, got {family!r}", value=family)
    rows = [row for row in rows if family in (None, row.family)]
    if as_json:
        return print_json({"scores": [{**row._asdict(), "weight": row.weight} for row in rows]})
    cells = [
        (row.model, row.family, f"{row.score:.3f}", f"{row.standard_error:.3f}", row.benchmark, row.setting, row.date)
        for row in sorted(rows, key=lambda row: (row.family, -row.score))
    ]
    columns = ("model", "family", "score", "s.e.", "benchmark", "setting", "date")
    out.print(table("Prior qualities", columns, cells))
    for origin in sorted({f"{row.source} ({row.licence})" for row in rows if row.source}):
        out.print(origin, highlight=False, soft_wrap=True)
    return None
