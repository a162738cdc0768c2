"""Data that is for evaluation only: a router fitted on it could not be compared with others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wiserouter.errors import LogError

MARK = "evaluation_only"
"""The column that marks such a table; its cells name the set."""

_OF_ROUTERARENA = ("global_index", "global index")
"""Columns by which RouterArena's own files are known."""


def check_trainable(columns: Sequence[str], file: Path | None) -> None:
    """Raise `LogError` if a table with these columns is for evaluation only."""
    found = [name for name in (MARK, *_OF_ROUTERARENA) if name in columns]
    if found:
        raise LogError(
            "RouterArena's data is for evaluation only: its board refuses routers that were trained, fitted or tuned "
            "on it; fit on another log, and evaluate by `wiserouter arena`",
            file=file,
            column=found[0],
        )
