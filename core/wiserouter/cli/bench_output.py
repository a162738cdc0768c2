"""The progress of a bench, and the origin of its rows."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wiserouter.cli.output import err
from wiserouter.evaluation.bench.code_digest import code_digest
from wiserouter.evaluation.datasets import LoadedTable

if TYPE_CHECKING:
    from rich.progress import Progress

_LIBRARIES = ("wiserouter", "numpy", "scikit-learn", "polars")


class Ticker:
    """Shows the number of finished rows: as a bar, or without a terminal as a line for every tenth.

    Parameters
    ----------
    total : int
        Number of rows.
    bars : rich.progress.Progress
        Where the bar is shown.
    """

    def __init__(self, total: int, bars: Progress) -> None:
        self._total, self._done, self._printed_tenths, self._bars = total, 0, 0, bars
        self._bar = bars.add_task("running", total=total)

    def __call__(self, rows: int) -> None:
        """Count some more rows."""
        self._done += rows
        self._bars.advance(self._bar, rows)
        tenth = 10 * self._done // self._total
        if not err.is_terminal and tenth > self._printed_tenths:
            err.print(f"{self._done:,} of {self._total:,} done", highlight=False)
            self._printed_tenths = tenth


def origin_of(tables: Sequence[LoadedTable], seeds: Sequence[int]) -> dict[str, str]:
    """Return the origin of the rows: command, data, seeds, code, versions and machine."""
    from importlib.metadata import version

    versions = [f"{name} {version(name)}" for name in _LIBRARIES]
    return {
        "command": shlex.join(["wiserouter", *sys.argv[1:]]),
        "table": "; ".join(f"{each.name}, SHA-256 of its content {each.sha256}" for each in tables),
        "seeds": ", ".join(map(str, seeds)),
        "code": f"SHA-256 of the package's sources {code_digest()}",
        "versions": ", ".join([*versions, f"Python {platform.python_version()}"]),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
    }
