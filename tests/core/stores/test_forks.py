import gc
import os
import threading
import time

import pytest

from wiserouter.stores.forks import held_at_fork

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def forking_until_it_holds(lock):
    thread = threading.Thread(target=fork, daemon=True)
    thread.start()
    while lock.acquire(blocking=False):
        lock.release()
        time.sleep(0.001)
    return thread


def test_threads_that_fork_at_the_same_time_release_the_locks_that_they_hold_and_no_others():
    busy, lock = held_at_fork(threading.RLock()), held_at_fork(threading.RLock())
    with busy:
        one = forking_until_it_holds(lock)  # and waits for the busy one
        later = held_at_fork(threading.RLock())
        other = forking_until_it_holds(later)  # and waits for the first thread
    for thread in (one, other):
        thread.join(30.0)
    assert not one.is_alive()
    assert not other.is_alive()
    assert all(each.acquire(blocking=False) for each in (busy, lock, later))
    for each in (busy, lock, later):
        each.release()


def test_locks_that_end_while_a_fork_lists_them_leave_the_others_acquired():
    kept = [held_at_fork(threading.RLock()) for _ in range(1_000)]
    thresholds = gc.get_threshold()
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            cycle = [held_at_fork(threading.RLock())]
            cycle.append(cycle)
        gc.set_threshold(gc.get_count()[0] + 200)  # collected among the items of the list
        gc.enable()
        fork()  # an error of its handlers is a warning, which fails the test
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    assert len(kept) == 1_000
