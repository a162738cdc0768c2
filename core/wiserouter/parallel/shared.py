"""A value that all tasks of a run need: pickled once here, and restored once in each worker."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

V = TypeVar("V")


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
        self._pickled: bytes | None = None

    def __reduce__(self) -> tuple[Callable[[bytes], Shared[Any]], tuple[bytes]]:
        if self._pickled is None:
            import cloudpickle

            self._pickled = bytes(cloudpickle.dumps(self.value))
        return _restored, (self._pickled,)


@lru_cache(maxsize=2)
def _restored(pickled: bytes) -> Shared[Any]:
    """Return the value of a run; the same one for all its tasks in this process."""
    return Shared(pickle.loads(pickled))  # noqa: S301 - sent by the process that began the run
