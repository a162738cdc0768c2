"""Streams that are dropped before their end: a thread ends their calls.

Python collects a dropped stream at any moment, also while the same thread holds a lock of the router. So nothing is
settled there: it is handed to a thread. A generator to which nothing refers ends at once, as one that is closed does;
one within a cycle of references, as a kept exception makes it, is left to the garbage collector.
"""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread, get_ident
from typing import Any

logger = logging.getLogger("wiserouter.langchain")

_ends: SimpleQueue[Callable[[], object]] = SimpleQueue()
_threads: list[Thread] = []
_collecting: set[int] = set()
"""The threads in which the garbage collector is at work."""


def when_dropped(stream: object, end: Callable[[], object]) -> None:
    """Let a thread run a step once a stream is collected.

    Parameters
    ----------
    stream : object
        The stream.
    end : callable
        The step; it must not refer to the stream.
    """
    prepare_for_drops()
    weakref.finalize(stream, _ends.put, end).atexit = False


def prepare_for_drops() -> None:
    """Start the thread that ends dropped streams, unless it runs: no thread can be started during a collection."""
    if not any(thread.is_alive() for thread in _threads):  # none at first, nor after a fork
        _threads[:] = [Thread(target=_run_each, name="wiserouter-dropped-streams", daemon=True)]
        _threads[0].start()
    if _note_collection not in gc.callbacks:
        gc.callbacks.append(_note_collection)


def end_generator(end: Callable[[], object]) -> None:
    """Run the step that ends a generator: at once, or in the thread where the garbage collector ends the generator."""
    if get_ident() in _collecting:
        _ends.put(end)
    else:
        end()


def _note_collection(phase: str, _: dict[str, Any]) -> None:
    (_collecting.add if phase == "start" else _collecting.discard)(get_ident())


def _run_each() -> None:
    while True:
        try:
            _ends.get()()
        except Exception:
            logger.exception("the call of a stream that was dropped could not be settled")
