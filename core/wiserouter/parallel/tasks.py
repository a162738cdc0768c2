"""Tasks over workers, by joblib: on its own processes (loky), or on the backend of its `parallel_config`.

A worker that is lost takes its tasks with it; they are run again. The results depend neither on the backend, nor on the
number of workers, nor on those that were lost, if the function depends on its task alone.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from multiprocessing import current_process, resource_tracker
from threading import Thread, current_thread, main_thread
from typing import Any, TypeVar

from wiserouter.errors import InvalidInput, WorkersLost

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger("wiserouter")

MOST_LOSSES = 3
"""Losses of workers in a row, with no task done in between, after which a run ends."""

_LOSSES = frozenset(
    {
        *("BrokenProcessPool", "TerminatedWorkerError"),
        *("KilledWorker", "FutureCancelledError"),
        *("RayActorError", "ActorDiedError", "WorkerCrashedError"),
    }
)
"""The errors by which loky, Dask and Ray report a lost worker, by name: none of them needs to be installed."""

_ROUND = 4
"""Tasks per worker in a round, on backends that return all results of a round at once."""


def run_each(function: Callable[[T], R], tasks: Sequence[T], *, n_jobs: int | None = None) -> Generator[tuple[int, R]]:
    """Yield the place and the result of each task as it is done.

    Parameters
    ----------
    function : callable
        Called with one task, in any process.
    tasks : sequence
        Its arguments.
    n_jobs : int, optional
        Number of workers, or -1 for all; by default that of `joblib.parallel_config`, else this process.

    Raises
    ------
    InvalidInput
        If `n_jobs` is 0 or no integer.
    WorkersLost
        If workers are lost `MOST_LOSSES` times in a row.
    """
    n_workers = count_workers(n_jobs)
    left = dict(enumerate(tasks))
    losses = 0
    while left:
        try:
            for place, result in _run(function, left, n_jobs, n_workers):
                del left[place]
                losses = 0
                yield place, result
        except Exception as error:
            if not _is_loss(error):
                raise
            losses += 1
            if losses >= MOST_LOSSES:
                raise WorkersLost(
                    f"workers were lost {losses} times in a row, with {len(left)} of {len(tasks)} tasks left: give "
                    f"each worker more memory, or use fewer (n_jobs)"
                ) from error
            logger.warning("a worker was lost: %d of %d tasks are run again (%r)", len(left), len(tasks), error)


def run_in_order(function: Callable[[T], R], tasks: Sequence[T], *, n_jobs: int | None = None) -> Generator[R]:
    """Yield the result of each task, in the order of the tasks; parameters and errors are those of `run_each`.

    Examples
    --------
    >>> list(run_in_order(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    waiting: dict[int, R] = {}
    due = 0
    for place, result in run_each(function, tasks, n_jobs=n_jobs):
        waiting[place] = result
        while due in waiting:
            yield waiting.pop(due)
            due += 1


def count_workers(n_jobs: int | None) -> int:
    """Return the number of workers that `n_jobs` stands for; 1 is this process, whatever the backend.

    Raises
    ------
    InvalidInput
        If it is 0 or no integer.
    """
    if n_jobs is not None and (not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs == 0):
        raise InvalidInput(f"n_jobs must be a number of workers, or -1 for all, got {n_jobs!r}", value=n_jobs)
    import joblib

    return int(joblib.effective_n_jobs(n_jobs))


def _run(function: Callable[[T], R], left: dict[int, T], n_jobs: int | None, n_workers: int) -> Iterator[tuple[int, R]]:
    """Yield place and result of the tasks that are left, as they are done."""
    if n_workers == 1:
        yield from ((place, function(task)) for place, task in list(left.items()))
        return
    import joblib
    from joblib.parallel import get_active_backend

    backend = get_active_backend()[0]
    streams = backend.supports_return_generator
    held = _interrupts_held if streams and not getattr(backend, "supports_sharedmem", False) else nullcontext
    with joblib.Parallel(n_jobs, batch_size=1, return_as="generator_unordered" if streams else "list") as parallel:
        waiting, every = list(left.items()), len(left) if streams else _ROUND * n_workers
        for start in range(0, len(waiting), every):
            some = waiting[start : start + every]
            with held():
                results = parallel(joblib.delayed(_placed)(function, place, task) for place, task in some)
            yield from results


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold a Ctrl-C back for a moment: the processes that begin in it hold it back for good, also while they import."""
    if not hasattr(signal, "pthread_sigmask"):  # as on Windows
        yield
        return
    resource_tracker.ensure_running()  # where it has to be started, Python 3.11 lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _placed(function: Callable[[T], R], place: int, task: T) -> tuple[int, R]:
    """Return the result of a task, and its place."""
    is_worker = current_process().name.startswith("LokyProcess") and current_thread() is main_thread()
    if is_worker:  # Ctrl-C reaches all; the program that it interrupts ends these
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _end_with_program()
    return place, function(task)


@cache
def _end_with_program() -> None:
    """End this worker when the program that began it is killed; loky lets it work on, and wait for minutes."""
    Thread(target=_wait_for_end, args=(os.getppid(),), daemon=True).start()


def _wait_for_end(program: int) -> None:
    while os.getppid() == program:
        time.sleep(1.0)
    os._exit(1)


def _is_loss(error: BaseException | None) -> bool:
    """Return True if an error, or its cause, reports that a worker was lost."""
    seen: set[Any] = set()
    while error is not None and error not in seen:
        if any(kind.__name__ in _LOSSES for kind in type(error).__mro__):
            return True
        seen.add(error)
        error = error.__cause__
    return False
