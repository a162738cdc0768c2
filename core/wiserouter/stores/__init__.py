"""Stores: where budgets and decisions live."""

from wiserouter.stores.base import Health, Record, Store
from wiserouter.stores.memory import MemoryStore
from wiserouter.stores.open import open_store

__all__ = ["Health", "MemoryStore", "Record", "Store", "open_store"]
