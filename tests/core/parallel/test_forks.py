"""Forks of a process that has several threads; each in a process of its own, which shows where it is if it hangs."""

import os
import subprocess
import sys

import pytest

from support.redis_servers import MISSING, RedisServer, redis_server

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

PROLOGUE = """
import faulthandler, gc, os, signal, threading, time, warnings

from wiserouter.parallel.forks import held_at_fork

faulthandler.dump_traceback_later(60, exit=True)
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)

def holding(lock):  # by another thread, while this one forks
    def hold():
        with lock:
            held.set()
            time.sleep(0.5)

    held = threading.Event()
    threading.Thread(target=hold, daemon=True).start()
    held.wait()

def in_child(step):  # returns the status of the child, which a signal ends where it hangs
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            step()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]

def routed(store="memory://"):
    from wiserouter import Budget, Model, Price, WiseRouter

    models = [Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))]
    router = WiseRouter(models, seed=0, store=store)
    router.start(Budget(1.0, 1_000))
    return router
"""


def run(program, first="wiserouter.parallel.forks"):
    """Run a program, which must show no error: those of the handlers of a fork end nothing, and are printed.

    The module `first` is imported before all others.
    """
    command = [sys.executable, "-c", f"import {first}\n{PROLOGUE}{program}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


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


def test_a_child_offers_calls_to_a_judge_whose_lock_another_thread_held():
    run("""
router = routed()
judge = router.judge_with(lambda prompt, answer: 0.5, share=1.0)
decision = router.decide("hello")
holding(judge._lock)
assert in_child(lambda: judge.offer(decision, "What is 2 + 2?", "4")) == 0
""")


@pytest.mark.skipif(redis_server() is None, reason=MISSING)
@pytest.mark.parametrize("how", ["Process", "ProcessPoolExecutor"])
def test_processes_that_multiprocessing_forks_send_what_they_charged_before_they_end(tmp_path, how):
    server = RedisServer(tmp_path)
    server.start()
    try:
        run(f"""
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def charges(_=None):
    for _ in range(10):
        router.charge(router.decide("hello"), 0.001)

fork, router = multiprocessing.get_context("fork"), routed("{server.url}?lease_share=0.1&flush_s=5")
router.charge(router.decide("hello"), 0.001)
router.refresh()
if "{how}" == "Process":
    children = [fork.Process(target=charges) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
else:
    with ProcessPoolExecutor(3, fork) as pool:
        list(pool.map(charges, range(3)))
router.close()
(account,) = routed("{server.url}").account().each
assert round(account.spent_usd, 9) == 0.031, account
assert (account.reserved_usd, account.leased_usd) == (0.0, 0.0), account
""")
    finally:
        server.stop()


@pytest.mark.parametrize("how", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("thread", ["Thread(target=charges)", "ThreadPoolExecutor().submit(charges)"])
def test_processes_of_multiprocessing_send_what_threads_charge_after_their_function_returned(tmp_path, how, thread):
    (tmp_path / "program.py").write_text(f"""{PROLOGUE}
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

path = {str(tmp_path / "journal.jsonl")!r}

def works():
    def charges():
        for _ in range(5):
            time.sleep(0.1)
            router.charge(router.decide("hello"), 0.001)

    router = routed("sqlite:///{tmp_path}/budget.db?lease_share=0.1&flush_s=5")
    router.journal_to(path)
    router.charge(router.decide("hello"), 0.001)
    started = {thread}
    if isinstance(started, Thread):
        started.start()

if __name__ == "__main__":
    child = multiprocessing.get_context("{how}").Process(target=works)
    child.start()
    child.join()
    (account,) = routed("sqlite:///{tmp_path}/budget.db").account().each
    assert (round(account.spent_usd, 9), account.leased_usd) == (0.006, 0.0), account
    assert len(open(path).readlines()) == 12
""")
    command = [sys.executable, str(tmp_path / "program.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


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


@pytest.mark.parametrize(
    ("made", "lock", "step"),
    [
        ("", "router._days._lock", "router.spend(0.001)"),
        ("", "router._days._lock", "router.sums_of_days([20_000])"),
        ("router = routed(f'sqlite:///{folder}/store.db')", "router._days._reading", "router.sums_of_days([20_000])"),
        ("signals = Signals(['all'], time.monotonic)", "signals._lock", "signals.answered('a call', 'hello')"),
        ("queue = AdmissionQueue(router)", "queue._lock", "queue.n_waiting"),
    ],
)
def test_a_child_goes_on_with_what_another_thread_was_at(tmp_path, made, lock, step):
    run(f"""
from wiserouter.integration.waiting import AdmissionQueue
from wiserouter.routing.signals import Signals

folder, router = {str(tmp_path)!r}, routed()
{made}
holding({lock})
assert in_child(lambda: {step}) == 0
""")


def test_a_child_counts_tokens_where_a_thread_of_the_parent_was_reading_their_encoding(tmp_path):
    run(f"""
from wiserouter.pricing import tokens

os.environ["TIKTOKEN_CACHE_DIR"] = {str(tmp_path)!r}
tokens._cache_path({str(tmp_path)!r}, "o200k_base").write_bytes(b"of another one")
holding(tokens._LOCK)
assert in_child(lambda: tokens.count_tokens("hello")) == 0
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


def test_children_write_their_own_events_into_the_journal_and_none_of_their_parent(tmp_path):
    run(f"""
import multiprocessing

path, router = {str(tmp_path / "journal.jsonl")!r}, routed()
journal = router.journal_to(path)

def decides():
    for _ in range(10):
        router.charge(router.decide("hello"), 0.001)

decides()
assert in_child(lambda: decides() or journal.flush() or 1 / 0) == 0
child = multiprocessing.get_context("fork").Process(target=decides)
child.start()
child.join()
decides()
assert journal.flush()
assert len(open(path).readlines()) == 4 * 20
journal.close()
assert in_child(decides) == 0
assert len(open(path).readlines()) == 4 * 20
""")


def test_a_child_writes_its_decisions_into_the_journal_whose_modules_take_long_to_import(tmp_path):
    run(f"""
from importlib.machinery import SourceFileLoader

imports = SourceFileLoader.exec_module

def slowly(loader, module):
    if module.__name__ == "wiserouter.routing.explanation":
        time.sleep(1.0)
    imports(loader, module)

SourceFileLoader.exec_module = slowly
path, router = {str(tmp_path / "journal.jsonl")!r}, routed()
journal = router.journal_to(path)
router.decide("hello")
time.sleep(0.2)
assert in_child(lambda: router.decide("hello") and journal.flush() or 1 / 0) == 0
assert journal.flush()
assert len(open(path).readlines()) == 2
""")


def test_a_child_that_cannot_write_the_journal_goes_on(tmp_path):
    (tmp_path / "of_the_parent").mkdir()
    run(f"""
import logging, shutil

logging.disable(logging.CRITICAL)
router = routed()
journal = router.journal_to({str(tmp_path / "of_the_parent" / "journal.jsonl")!r})
shutil.rmtree({str(tmp_path / "of_the_parent")!r})
assert in_child(lambda: router.charge(router.decide("hello"), 0.001) or 1 / (journal.dropped == 2)) == 0
""")


def test_threads_of_a_child_that_write_its_first_events_at_once_start_one_writer(tmp_path):
    path = tmp_path / "journal.jsonl"
    run(f"""
import sys
from wiserouter.routing.journal import Journal

journal = Journal({str(path)!r})
sys.setswitchinterval(1e-6)

def notes():
    together = threading.Barrier(8)

    def note(thread):
        together.wait()
        journal.event("charge", str(thread), 0.0)

    threads = [threading.Thread(target=note, args=(each,)) for each in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(each.name == "wiserouter-journal" for each in threading.enumerate()) == 1
    assert journal.flush()

assert [in_child(notes) for _ in range(10)] == [0] * 10
""")
    assert len(path.read_text().splitlines()) == 80


@pytest.mark.parametrize(
    "lock",
    ["router._days._lock", "router._days._reading", "signals._lock", "queue._lock", "tokens._LOCK"],
)
def test_the_handler_of_a_signal_forks_where_its_thread_holds_a_lock(lock):
    run(f"""
from wiserouter.integration.waiting import AdmissionQueue
from wiserouter.pricing import tokens
from wiserouter.routing.signals import Signals

faulthandler.dump_traceback_later(10, exit=True)
router = routed()
queue, signals, forked = AdmissionQueue(router), Signals(['all'], time.monotonic), []
signal.signal(signal.SIGALRM, lambda *_: (fork(), forked.append(True)))
with {lock}:
    os.kill(os.getpid(), signal.SIGALRM)
assert forked
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
