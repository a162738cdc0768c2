"""The locks and imports that a fork waits for."""

import pytest

from support.fork_programs import NEEDS_FORK, run

pytestmark = NEEDS_FORK


def test_threads_that_fork_at_the_same_time_release_the_locks_that_they_hold_and_no_others():
    run("""
def forking_until_it_holds(lock):
    thread = threading.Thread(target=fork)
    thread.start()
    while lock.acquire(blocking=False):
        lock.release()
        time.sleep(0.001)
    return thread

busy, lock = held_at_fork(threading.RLock()), held_at_fork(threading.RLock())
with busy:
    one = forking_until_it_holds(lock)  # and waits for the busy one
    later = held_at_fork(threading.RLock())
    other = forking_until_it_holds(later)  # and waits for the first thread
for thread in (one, other):
    thread.join()
assert all(each.acquire(blocking=False) for each in (busy, lock, later))
""")


def test_locks_that_end_while_a_fork_lists_them_leave_the_others_acquired():
    run("""
kept = [held_at_fork(threading.RLock()) for _ in range(1_000)]
gc.collect()
gc.disable()
for _ in range(50):
    cycle = [held_at_fork(threading.RLock())]
    cycle.append(cycle)
gc.set_threshold(gc.get_count()[0] + 200)  # collected among the items of the list
gc.enable()
fork()
assert len(kept) == 1_000
""")


@pytest.mark.parametrize("first", ["wiserouter.stores", "wiserouter.parallel.forks", "wiserouter.stores.memory"])
def test_a_thread_that_logs_while_it_holds_a_lock_ends_while_a_fork_waits_for_it(first):
    program = """
import logging

lock = held_at_fork(threading.RLock())
held, ended = threading.Event(), []

def logs():
    with lock:
        held.set()
        time.sleep(0.5)  # the fork waits
        logging.getLogger("wiserouter").isEnabledFor(logging.ERROR)  # acquires logging's own lock the first time
        ended.append(True)

threading.Thread(target=logs, daemon=True).start()
held.wait()
fork()
assert ended
"""
    run(program, first)


def test_an_error_while_a_fork_acquires_the_locks_leaves_none_out():
    run("""
import sys

class Failing:
    def close(self):
        raise OSError("no space left")

class Late(Exception):
    pass

def late(*_):
    raise Late

failing = Failing()
old, busy = held_at_fork(threading.RLock()), held_at_fork(threading.RLock())
newer = held_at_fork(threading.RLock(), failing)
held = threading.Event()

def decides():
    with busy:
        held.set()
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGUSR1)  # the fork waits for this lock
        time.sleep(0.5)
    while True:
        with old:
            time.sleep(0.01)

signal.signal(signal.SIGUSR1, late)
sys.unraisablehook = lambda error: errors.append(error.exc_type)
errors = []
threading.Thread(target=decides, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    os._exit(sum(not lock.acquire(blocking=False) for lock in (old, busy, newer)))
assert os.waitpid(child, 0)[1] == 0
assert errors == [Late], errors
assert all(lock.acquire(timeout=5.0) for lock in (old, busy, newer))
""")


def test_a_fork_holds_the_locks_that_are_made_while_it_waits_for_others():
    run("""
old, busy = held_at_fork(threading.RLock()), held_at_fork(threading.RLock())
held, made = threading.Event(), []

def opens():
    with busy:
        held.set()
        time.sleep(0.5)  # the fork waits for this lock
        made.append(held_at_fork(threading.RLock()))
        made[0].acquire()
    time.sleep(0.5)
    made[0].release()

thread = threading.Thread(target=opens)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    os._exit(sum(not lock.acquire(blocking=False) for lock in (old, busy, *made)))
assert os.waitpid(child, 0)[1] == 0
thread.join()
assert all(lock.acquire(blocking=False) for lock in (old, busy, *made))
""")


def test_a_fork_ends_while_threads_go_on_making_locks():
    run("""
stop = threading.Event()

def opens():
    while not stop.is_set():
        with held_at_fork(threading.RLock()):
            pass

threads = [threading.Thread(target=opens) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    fork()
stop.set()
for thread in threads:
    thread.join()
""")


def test_an_innermost_lock_is_acquired_after_all_others():
    run("""
outer, inner = held_at_fork(threading.RLock()), held_at_fork(threading.Lock(), innermost=True)
held, ended = threading.Event(), []

def decides():
    with outer:
        held.set()
        time.sleep(0.5)  # the fork waits for this lock
        with inner:
            ended.append(True)

threading.Thread(target=decides, daemon=True).start()
held.wait()
assert in_child(lambda: outer.acquire() and inner.acquire()) == 0
assert ended and inner.acquire(blocking=False)
""")


FIRST_USE = {
    "sklearn.cluster": "from wiserouter import Contexts; Contexts.fit([[0.0], [1.0]], 2)",
    "tiktoken.model": "from wiserouter.pricing.tokens import count_tokens; count_tokens('hello', 'gpt-4o')",
    "tenacity": """
    import asyncio

    from wiserouter.judging.paid_questions import PaidQuestions
    from wiserouter.judging.settings import JudgeSettings

    asyncio.run(PaidQuestions(JudgeSettings(), None).answered(str, read=lambda text: (text, 0.0), bound_usd=0.0))
""",
}


@pytest.mark.parametrize("module", FIRST_USE)
def test_a_child_imports_what_a_thread_of_its_parent_was_importing(module):
    run(f"""
import importlib, sys

class Slow:  # an import that takes long, as that of scikit-learn does
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            importing.set()
            time.sleep(0.5)

importing = threading.Event()
sys.meta_path.insert(0, Slow())

def uses():
    {FIRST_USE[module]}

used = threading.Thread(target=uses)
used.start()
importing.wait()
assert in_child(lambda: importlib.import_module({module!r})) == 0
used.join()
""")


def test_the_handler_of_a_signal_forks_while_a_fork_waits_for_a_lock():
    run("""
faulthandler.dump_traceback_later(10, exit=True)
busy = held_at_fork(threading.RLock())
router, forked = routed(), []
signal.signal(signal.SIGALRM, lambda *_: (fork(), forked.append(True)))
holding(busy)
signal.setitimer(signal.ITIMER_REAL, 0.2)  # the fork holds the locks of the router, and waits for the busy one
fork()
decides = threading.Thread(target=router.decide, args=("hello",), daemon=True)
decides.start()
decides.join(5)
assert forked and not decides.is_alive()
""")
