"""Locks that a fork waits for.

A forked process has only the thread that forked it: a lock that another thread holds at that moment, such as the one of
a store that sends in the background, would never be released there. So each lock is acquired before a fork, the latest
first, since a router is made after its store and locks it while it is locked itself, and released on both sides. Those
within which no other is acquired come last.
"""

from __future__ import annotations

import atexit
import logging  # noqa: F401  # registers its handler before ours: a fork then acquires its lock after ours
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeVar


class _Lock(Protocol):
    def acquire(self) -> bool: ...

    def release(self) -> None: ...


class _Closable(Protocol):
    def close(self) -> None: ...


L = TypeVar("L", bound=_Lock)

MAX_ROUNDS = 8
"""How often a fork acquires all locks again since others were made meanwhile, as of a store that a thread opens."""


class _Terms(NamedTuple):
    closed: weakref.ref[Any] | None
    innermost: bool


_Known = dict[weakref.ref[Any], _Terms]

_known: _Known = {}


class _LocksOfThread(threading.local):
    """The locks of each fork that a thread is at: others may fork at the same time, and so may handlers of signals."""

    def __init__(self) -> None:
        self.forks: list[list[_Lock]] = []


_held = _LocksOfThread()


def held_at_fork(lock: L, closed: _Closable | None = None, *, innermost: bool = False) -> L:
    """Return a lock that no other thread holds when a process is forked.

    `closed` is closed before each fork, while the lock is held: it opens again what a child must not inherit.
    An `innermost` lock is acquired last, whenever it was made: it is held within others, and none within it. A lock is
    reentrant, since the handler of a signal may fork in a thread that holds it.

    Examples
    --------
    >>> from threading import RLock
    >>> with held_at_fork(RLock()):
    ...     pass
    """
    terms = _Terms(None if closed is None else weakref.ref(closed), innermost)
    _known[weakref.ref(lock, lambda gone: _known.pop(gone, None))] = terms
    return lock


_imports = held_at_fork(threading.RLock(), innermost=True)


def import_between_forks(*names: str) -> None:
    """Import modules, in this order, while no process is forked: a child would wait for a module for ever.

    It has the lock of one that another thread of its parent was importing, and no thread that would release it.
    """
    if not sys.modules.keys() >= {*names}:
        with _imports:
            for name in names:
                import_module(name)


_ending = held_at_fork(threading.RLock(), innermost=True)
_closed_at_end: weakref.WeakKeyDictionary[_Closable, None] = weakref.WeakKeyDictionary()
_ends_of: list[int] = []  # the process that closes them at its end


def close_at_end(one: _Closable) -> None:
    """Close an object when this process ends, the latest first; one that is gone by then leaves nothing behind.

    Also at the end of a process that `multiprocessing` has forked, which ends without `atexit`: it closes what it has
    named itself. One that is killed, or ends by `os._exit`, closes nothing.
    """
    with _ending:
        if _ends_of != [os.getpid()]:
            _ends_of[:] = [os.getpid()]
            _closed_at_end.clear()
            atexit.register(_close_each)
            call_before_multiprocessing_ends(_close_each)
        _closed_at_end[one] = None


def _close_each() -> None:
    with _ending:
        named = list(_closed_at_end)
    with ExitStack() as last_first:  # goes on after an error
        for one in named:
            last_first.callback(one.close)


def call_before_multiprocessing_ends(step: Callable[..., object], *args: object) -> None:
    """Call a function before this process ends where `multiprocessing` has started it."""
    multiprocessing, util = sys.modules.get("multiprocessing"), sys.modules.get("multiprocessing.util")
    if multiprocessing is not None and util is not None and multiprocessing.parent_process() is not None:
        util.Finalize(None, _call_after_threads, (step, *args), exitpriority=-1)  # after those of the program


def _call_after_threads(step: Callable[..., object], *args: object) -> None:
    """Call a function once the threads have ended for which a process waits after its finalizers: they may charge."""
    this = threading.current_thread()
    threads = [one for one in threading.enumerate() if one is not this and not one.daemon]
    if not threads:
        step(*args)
        return

    def call() -> None:
        for one in threads:
            one.join()
        step(*args)

    threading.Thread(target=call, name="wiserouter-end", daemon=False).start()


def _acquire(rounds: int = MAX_ROUNDS) -> None:
    known = _known.copy()
    _held.forks.append([])
    try:
        _acquire_each(known, _held.forks[-1])
    finally:
        if rounds > 1 and _known.copy().keys() - known.keys():  # locks made meanwhile are later than those held now
            _release()
            _acquire(rounds - 1)


def _acquire_each(known: _Known, held: list[_Lock]) -> None:
    innermost_first = sorted(known.items(), key=lambda one: not one[1].innermost)
    with ExitStack() as last_first:  # goes on after an error, such as one that the handler of a signal raises
        for each, (closed, _) in innermost_first:
            lock, closable = each(), None if closed is None else closed()
            if closable is not None:
                last_first.callback(closable.close)
            if lock is not None:
                last_first.callback(_hold, lock, held)


def _hold(lock: _Lock, held: list[_Lock]) -> None:
    """Acquire a lock, also where the handler of a signal raises meanwhile: the fork goes on all the same."""
    try:
        lock.acquire()
    except BaseException:
        _hold(lock, held)
        raise
    held.append(lock)


def _release() -> None:
    locks = _held.forks.pop()
    while locks:
        locks.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
