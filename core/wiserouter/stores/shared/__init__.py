"""The store that several workers share; a router in memory does not import it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wiserouter.stores.shared.store import SharedStore

__all__ = ["SharedStore"]


def __getattr__(name: str) -> object:
    """Import `SharedStore` at its first use."""
    if name != "SharedStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from wiserouter.stores.shared.store import SharedStore

    return SharedStore
