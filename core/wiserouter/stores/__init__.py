"""Stores: where budgets and decisions live."""

from __future__ import annotations

from wiserouter.errors import InvalidInput
from wiserouter.stores.base import Record, Store
from wiserouter.stores.memory import MemoryStore

__all__ = ["MemoryStore", "Record", "Store", "open_store"]


def open_store(
    url: str | Store = "memory://", *, reservation_ttl_s: float = 900.0, decision_ttl_s: float = 7 * 86_400.0
) -> Store:
    """Return the store that a URL names; a store passes through.

    Parameters
    ----------
    url : str or Store, default "memory://"
        `memory://` keeps everything in this process.
    reservation_ttl_s : float, default 900
        After this long an unsettled reservation is given back; longer than the longest call.
    decision_ttl_s : float, default 7 days
        How long a settled decision can be rewarded.

    Raises
    ------
    InvalidInput
        If no store has this scheme.

    Examples
    --------
    >>> type(open_store("memory://")).__name__
    'MemoryStore'
    """
    if not isinstance(url, str):
        return url
    if url.partition("://")[0] == "memory":
        return MemoryStore(reservation_ttl_s=reservation_ttl_s, decision_ttl_s=decision_ttl_s)
    raise InvalidInput(f"store must be a URL that starts with memory://, got {url!r}", value=url)
