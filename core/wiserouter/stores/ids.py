"""Names that nobody can guess: of decisions, and of events that must count once."""

from __future__ import annotations

import os
from collections import deque

AT_ONCE = 256
"""The system is asked for so many at a time: a call per name costs a decision more than all else that names it."""

_HEX_DIGITS = 32

_drawn: deque[str] = deque()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)  # parent and child never use the same one


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
            digits = os.urandom(_HEX_DIGITS // 2 * AT_ONCE).hex()
            _drawn.extend([digits[at : at + _HEX_DIGITS] for at in range(0, len(digits), _HEX_DIGITS)])
