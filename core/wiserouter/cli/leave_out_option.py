"""The option by which commands leave models of a table out."""

from __future__ import annotations

from typing import Annotated

import typer

from wiserouter.cli.fit import names

LeaveOut = Annotated[
    str | None,
    typer.Option(help="Models to leave out, separated by commas; '' for none. RouterBench: Yi-34B-Chat by default."),
]


def left_out(option: str | None) -> list[str] | None:
    """Return the models that the option names; None where a table has its default."""
    return None if option is None else names(option) or []
