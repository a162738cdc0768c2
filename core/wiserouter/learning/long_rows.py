"""Rows of many numbers as arrays of Python: the garbage collector goes through each element of a young list.

A decision keeps the figures of all models to explain it later. Where these are 200, a collection in the midst of a
decision took as long as five decisions.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

LONG_ROW = 64
"""Models beyond which the figures of a context are arrays: short lists are read faster, and take no time to collect."""


def kept_numbers(row: list[float]) -> Sequence[float]:
    """Return the numbers of a row, as they are kept.

    Examples
    --------
    >>> kept_numbers([0.5, 1.0])
    [0.5, 1.0]
    >>> kept_numbers([0.0] * 100)[:2]
    array('d', [0.0, 0.0])
    """
    return row if len(row) <= LONG_ROW else array("d", row)
