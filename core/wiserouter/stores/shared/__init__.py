"""The store that several workers share."""

from wiserouter.stores.shared.store import SharedStore

__all__ = ["SharedStore"]
