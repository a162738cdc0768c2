"""A value that all tasks of a run need: pickled once here, and restored once in each worker."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

V = TypeVar("V")
Bytes = NDArray[np.uint8]
"""A pickle as an array: joblib gives a large one to the processes of a machine through one file in memory."""

_MOST_KEPT = 2


class Shared(Generic[V]):
    """A value for many tasks, such as a fitted encoder; in this process it is not copied.

    Parameters
    ----------
    value : object
        The value; functions defined anywhere can be part of it.

    Examples
    --------
    >>> copy = pickle.loads(pickle.dumps(Shared([1, 2])))
    >>> copy.value
    [1, 2]
    """

    def __init__(self, value: V) -> None:
        self.value = value
        self._parts: tuple[str, Bytes] | None = None

    def __reduce__(self) -> tuple[Callable[[str, Bytes], Shared[Any]], tuple[str, Bytes]]:
        if self._parts is None:
            import cloudpickle

            pickled = cloudpickle.dumps(self.value)
            self._parts = blake2b(pickled).hexdigest(), np.frombuffer(pickled, dtype=np.uint8)
        return _restored, self._parts


_kept: dict[str, Shared[Any]] = {}
"""The values that this process has restored last."""


def _restored(digest: str, pickled: Bytes) -> Shared[Any]:
    """Return the value of a run; the same one for all its tasks in this process."""
    if digest not in _kept:
        while len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept)))
        _kept[digest] = Shared(pickle.loads(pickled.data))  # noqa: S301 - sent by the process that began the run
    return _kept[digest]
