"""Stores of budgets and decisions: in memory, in a file, or on a server."""

from wiserouter.stores.base import Health, Record, Store
from wiserouter.stores.memory import MemoryStore
from wiserouter.stores.open import open_store

__all__ = ["Health", "MemoryStore", "Record", "Store", "open_store"]
