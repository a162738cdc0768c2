"""A section of a report: one table and its picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ReportSection(NamedTuple):
    """One table with its heading, explanation and picture.

    Attributes
    ----------
    name : str
        Its name in links and in the names of files.
    title, text : str
        A heading, and an explanation of the figures.
    head : sequence of str
        Headings of the columns; none where there is no table.
    rows : sequence of sequence of str
        Cells; the first of each row is its name, `**bold**` is emphasised.
    draw : callable, optional
        Draws the picture, if there is one.
    """

    name: str
    title: str
    text: str
    head: tuple[str, ...]
    rows: list[list[str]]
    draw: Callable[[], Figure] | None = None


def figure(value: float, sign: str = "", digits: int = 4) -> str:
    """Return a figure for a table; "-" for NaN.

    Examples
    --------
    >>> figure(0.25), figure(0.25, "+", 2), figure(float("nan"))
    ('0.2500', '+0.25', '-')
    """
    return "-" if math.isnan(value) else f"{value:{sign}.{digits}f}"


def with_error(value: float, error: float, sign: str = "") -> str:
    """Return a figure with its error, or without one if that is NaN (one seed)."""
    return figure(value, sign) if math.isnan(error) else f"{figure(value, sign)} ± {error:.4f}"
