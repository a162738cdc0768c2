"""Many steps of a store at once: callers that wait at the same time share one exchange with its engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

CALLERS = 32
"""Steps that wait together; one transaction holds those of all."""

_CHUNK = 1_024

T = TypeVar("T")
R = TypeVar("R")


def together(step: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield the results of a step for each item, in order.

    Examples
    --------
    >>> list(together(lambda n: n * n, range(4)))
    [0, 1, 4, 9]
    """
    left = iter(items)
    with ThreadPoolExecutor(CALLERS) as callers:
        while chunk := list(islice(left, _CHUNK)):
            yield from callers.map(step, chunk)
