"""The command line, `wiserouter COMMAND`: one file per command. The commands take a while to load, `main` at once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wiserouter.cli.commands import app

_INTERRUPTED = 130  # the exit code of shells for a program that Ctrl-C has ended


def main() -> None:
    """Load the commands and run the command line; Ctrl-C meanwhile ends it without a traceback."""
    try:
        from wiserouter.cli.commands import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("Aborted.\n")
        sys.exit(_INTERRUPTED)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from wiserouter.cli.commands import app

    return app


__all__ = ["app", "main"]
