"""Random names: ids of decisions and of events that must count once, and the name of a worker."""

from __future__ import annotations

import os
from collections import deque

IDS_PER_DRAW = 256
"""Number of ids that one call to the system's generator yields: a call per id would be the slowest step of naming."""

_HEX_DIGITS = 32
_WORKER_BYTES = 8

_drawn: deque[str] = deque()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)  # parent and child never use the same id


def fresh_id() -> str:
    """Return 128 random bits as 32 hexadecimal digits; safe among threads and after a fork.

    Examples
    --------
    >>> len(fresh_id()), fresh_id() == fresh_id()
    (32, False)
    """
    while True:
        try:
            return _drawn.popleft()
        except IndexError:
            digits = os.urandom(_HEX_DIGITS // 2 * IDS_PER_DRAW).hex()
            _drawn.extend([digits[at : at + _HEX_DIGITS] for at in range(0, len(digits), _HEX_DIGITS)])


class WorkerIdentity:
    """The random name of a worker process; a forked process notices that the name belongs to its parent.

    Attributes
    ----------
    name : str
        64 random bits as hexadecimal digits.

    Examples
    --------
    >>> identity = WorkerIdentity()
    >>> len(identity.name), identity.is_current, identity.renew_after_fork()
    (16, True, False)
    """

    __slots__ = ("_process", "name")

    def __init__(self) -> None:
        self._draw()

    @property
    def is_current(self) -> bool:
        """Whether this process is the one that drew the name."""
        return self._process == os.getpid()

    def renew_after_fork(self) -> bool:
        """Draw another name if this process was forked from the one that drew it; return True if so."""
        if self.is_current:
            return False
        self._draw()
        return True

    def _draw(self) -> None:
        self.name, self._process = os.urandom(_WORKER_BYTES).hex(), os.getpid()
