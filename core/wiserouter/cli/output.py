"""The output of the commands: tables, progress bars and JSON."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.outcome import Outcome
from wiserouter.fitting.fit import Progress as Report
from wiserouter.pricing.amounts import usd

Justify = Literal["left", "right"]

_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_REMEDIES = {
    errno.ENOENT: "correct the path",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "name a folder, or correct the path",
    errno.EACCES: "change who may use it, or name another one",
    errno.EPERM: "change who may use it, or name another one",
    errno.EROFS: "name another one",
}
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class _Console(Console):
    """A console that escapes the control characters of texts: names, reasons and tags are those of others."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects, texts without their control characters."""
        super().print(*(shown(one) if isinstance(one, str) else one for one in objects), **options)


out = _Console(markup=False)  # names, paths and hints may hold brackets
err = _Console(stderr=True, markup=False)


def shown(text: str) -> str:
    r"""Return a text whose control characters, other than ends of lines and tabs, are escaped.

    Examples
    --------
    >>> shown("team\x1b[31mred")
    'team\\x1b[31mred'
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def write_anything() -> None:
    """Let what is printed neither fail for a character that the terminal lacks, which is escaped, nor for a closed one.

    It concerns stdout and stderr of this process.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_json(value: Mapping[str, object]) -> None:
    """Print one JSON object on one line."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def check_writable(*paths: Path | None) -> None:
    """Raise `InvalidInput` if a file to write has no folder that can be written to, or is a folder; before any work."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise InvalidInput(f"{path} must be a file, got a folder: add a file name", value=path)
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise InvalidInput(f"{path} needs a folder that can be written to, {path.parent} is none", value=path)


def check_no_input(output: Path | None, inputs: Iterable[Path | None]) -> None:
    """Raise `InvalidInput` if a file to write is one that the command reads, also by a link."""
    for path in inputs:
        if output is not None and path is not None and output.exists() and path.exists() and output.samefile(path):
            raise InvalidInput(f"{output} must not be a file that is read, name another one", value=output)


def picture_file(path: Path) -> Path:
    """Return the file of a picture, with .png where its name has no ending; raises as `check_writable` does.

    Examples
    --------
    >>> picture_file(Path("curve")).name, picture_file(Path("curve.svg")).name
    ('curve.png', 'curve.svg')
    """
    if path.name and path.suffix in {"", "."}:
        path = path.with_name(path.name.rstrip(".") + ".png")
    check_writable(path)
    return path


def complain(error: BaseException) -> None:
    """Print an error in one line on stderr."""
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        remedy = _REMEDIES.get(error.errno or 0, "")
        text = f"{error.filename}: {error.strerror.lower()}" + (remedy and f": {remedy}")
    elif isinstance(error, OSError) and error.errno in _FULL:
        text = f"{os.strerror(error.errno).lower()}: free some space, or write to another disk"
    err.print(Text.assemble(("error:", "bold red"), f" {shown(text)}"), highlight=False, soft_wrap=True)


def shares(models: Mapping[str, float], most: int = 3) -> str:
    """Return the largest shares, such as `mini 60 %, max 40 %`."""
    used = sorted(((share, name) for name, share in models.items() if share >= 0.005), reverse=True)
    text = ", ".join(f"{name} {share:.0%}" for share, name in used[:most])
    return text + (", ..." if len(used) > most else "")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Table:
    """Return a table; the first `left` columns and the last are left-aligned, the others right-aligned.

    Where it is wider than the terminal, its columns have one space between them. It is at least as wide as its title.
    """
    grid_title = shown(title)
    grid = Table(title=grid_title, title_justify="left", title_style="bold", show_edge=False)
    for i, name in enumerate(columns):
        justify: Justify = "left" if i < left or i == len(columns) - 1 else "right"
        grid.add_column(name, justify=justify, overflow="fold")  # on a narrow terminal nothing is cut off
    for row in rows:
        grid.add_row(*map(shown, row))
    if Measurement.get(out, out.options.update(max_width=sys.maxsize), grid).maximum > out.width:
        grid.box, grid.padding = box.SIMPLE_HEAD, 0
    grid.min_width = min(out.width, cell_len(grid_title))
    return grid


def minute_of(at_s: float) -> str:
    """Return a time in UTC to the minute.

    Examples
    --------
    >>> minute_of(1_793_491_200.0)
    '2026-11-01 00:00Z'
    """
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%MZ")


def outcome_row(outcome: Outcome) -> tuple[str, ...]:
    """Return the cells of one outcome: method, quality, spend, spend over budget, served, models."""
    return (
        outcome.method,
        f"{outcome.quality:.4f}",
        usd(outcome.spend_usd),
        f"{outcome.spend_ratio:.3f}",
        f"{outcome.served / outcome.queries:.1%}",
        shares(outcome.models),
    )


OUTCOME_COLUMNS = ("method", "quality", "spend", "spend/budget", "served", "models")


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """Show progress bars on stderr if it is a terminal."""
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        disable=quiet or not err.is_terminal,
        transient=True,
    )
    with bars:
        yield bars


def reporter(bars: Progress) -> Report:
    """Return a callback that shows each step of a fit as a bar; the first pass finds the number of rows."""
    steps: dict[str, TaskID] = {}
    n_rows: float | None = None

    def report(step: str, rows: int) -> None:
        nonlocal n_rows
        if step not in steps:
            for task in bars.tasks:
                n_rows = n_rows or task.completed or None
                bars.update(task.id, total=task.completed)
            steps[step] = bars.add_task(step, total=n_rows if rows else None)
        bars.advance(steps[step], rows)

    return report
