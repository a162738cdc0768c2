"""Rows of many numbers as arrays of Python: the garbage collector goes through each element of a young list.

A decision keeps the figures of all models to explain it later. Where these are 200, a collection in the midst of a
decision took as long as five decisions.
"""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence

import numpy as np

from wiserouter.types import FloatArray

LONG_ROW = 64
"""Models beyond which the figures of a context are arrays: short lists are read faster, and take no time to collect."""


def numbers(row: FloatArray) -> MutableSequence[float]:
    """Return the numbers of a row, as floats of Python.

    Examples
    --------
    >>> numbers(np.array([0.5, 1.0]))
    [0.5, 1.0]
    >>> numbers(np.zeros(100))[:2]
    array('d', [0.0, 0.0])
    """
    if len(row) <= LONG_ROW:
        short: list[float] = row.tolist()
        return short
    long = array("d")
    long.frombytes(np.ascontiguousarray(row, dtype=np.float64).data.cast("B"))
    return long
