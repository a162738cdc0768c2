"""The options by which commands spread their work over workers."""

from __future__ import annotations

from typing import Annotated

import typer

from wiserouter.parallel.backends import CLUSTERS

Jobs = Annotated[int | None, typer.Option("--jobs", help="Number of workers, -1 for all; it changes no figure.")]
BackendOption = Annotated[
    str | None, typer.Option("--backend", help="Where workers run: loky (processes), threading, dask, ray or spark.")
]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="The cluster: scheduler of Dask, head of Ray or master of Spark; else a local one."),
]


def workers(jobs: int | None, backend: str | None, default: int | None) -> int | None:
    """Return the number of workers that the options ask for: on a cluster all, unless a number is given."""
    return (-1 if backend in CLUSTERS else default) if jobs is None else jobs
