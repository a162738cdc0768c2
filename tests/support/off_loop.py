"""A shared store that records waits on an event loop, and that can be paused or fail."""

from __future__ import annotations

import asyncio
import threading
import traceback
from pathlib import Path

from wiserouter.errors import StoreUnavailable
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore


class OffLoop:
    """An engine that records exchanges on an event loop.

    Parameters
    ----------
    engine : SQLiteEngine
        The engine; where it belongs to a store, that very one, whose lock is older than the store's (`held_at_fork`).
    near : bool
        The value of its attribute `near`; False as for a server.

    Attributes
    ----------
    seen : list of str
        Stacks of exchanges on an event loop.
    open : threading.Event
        Exchanges wait until it is set.
    down : bool
        Whether exchanges fail.
    """

    def __init__(self, engine: SQLiteEngine, *, near: bool) -> None:
        self._engine, self.near = engine, near
        self.seen: list[str] = []
        self.open, self.down = threading.Event(), False
        self.open.set()

    def exchange(self, events, *reading_and_wait):
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            self.seen.append("".join(traceback.format_stack()))
        self.open.wait(10.0)
        if self.down:
            raise StoreUnavailable("the engine cannot be reached", store="test")
        return self._engine.exchange(events, *reading_and_wait)

    def close(self) -> None:
        self._engine.close()


def store_at(path: Path, *, near: bool = True, **settings: object) -> tuple[SharedStore, OffLoop]:
    """Return the store of one worker, and its engine; other workers can open the same file."""
    engine = OffLoop(SQLiteEngine(path), near=near)
    return SharedStore(engine, name="test", **settings), engine
