"""A pool of worker processes that ends at once, and without a word, where the user interrupts the program."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any

Submit = Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], list[Future[Any]]]
"""Starts a function once for each tuple of arguments, and returns the futures in that order."""


@contextmanager
def worker_processes(n: int, initializer: Callable[..., object] | None = None, *initargs: Any) -> Iterator[Submit]:
    """Open a pool of processes; an error or an interrupt within the block ends them at once.

    Parameters
    ----------
    n : int
        The most processes.
    initializer : callable, optional
        Called with `initargs` in each process before its first task.

    Notes
    -----
    An interrupt from the terminal reaches all processes of the program. The workers never see it: they are started
    while it is blocked, and keep it blocked. In this process it ends the block, which terminates them.
    """
    others = set(active_children())
    pool = ProcessPoolExecutor(n, get_context("spawn"), initializer, initargs)

    def submit(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Future[Any]]:
        with _interrupts_blocked():
            return [pool.submit(function, *each) for each in arguments]  # starts the processes

    try:
        yield submit
    except BaseException:
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Hold interrupts back from this thread, and from the processes that it starts, until the end of the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
