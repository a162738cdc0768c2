"""Stores: where budgets and decisions live."""

from __future__ import annotations

from wiserouter.errors import InvalidInput
from wiserouter.stores.base import Record, Store
from wiserouter.stores.memory import MemoryStore

__all__ = ["MemoryStore", "Record", "Store", "open_store"]


def open_store(url: str | Store = "memory://") -> Store:
    """Return the store that a URL names; a store passes through.

    Parameters
    ----------
    url : str or Store, default "memory://"
        `memory://` keeps everything in this process.

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
        return MemoryStore()
    raise InvalidInput(f"store must be a URL that starts with memory://, got {url!r}", value=url)
