"""Event streams that are dropped before their end: a thread ends their calls.

Python collects a dropped stream at any moment, also while the same thread holds a lock of the router. So nothing is
settled there: it is handed to a thread.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

logger = logging.getLogger("wiserouter.langchain")

_ends: SimpleQueue[Callable[[], object]] = SimpleQueue()
_threads: list[Thread] = []


def when_dropped(stream: object, end: Callable[[], object]) -> None:
    """Let a thread run a step once a stream is collected.

    Parameters
    ----------
    stream : object
        The stream.
    end : callable
        The step; it must not refer to the stream.
    """
    if not any(thread.is_alive() for thread in _threads):  # none at first, nor after a fork
        _threads[:] = [Thread(target=_run_each, name="wiserouter-dropped-streams", daemon=True)]
        _threads[0].start()
    weakref.finalize(stream, _ends.put, end).atexit = False


def _run_each() -> None:
    while True:
        try:
            _ends.get()()
        except Exception:
            logger.exception("the call of a stream that was dropped could not be settled")
