"""Processes that multiprocessing starts send what they charged, and return their leases, before they end."""

import pytest

from support.fork_programs import NEEDS_FORK, PROLOGUE, run, run_file
from support.redis_servers import MISSING, RedisServer, redis_server

pytestmark = NEEDS_FORK


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
    run_file(tmp_path / "program.py")


@pytest.mark.parametrize("how", ["alone", "by multiprocessing"])
def test_stores_that_are_gone_leave_nothing_to_do_at_the_end_of_their_process(tmp_path, how):
    run(f"""
import atexit, multiprocessing, multiprocessing.util

def works():
    for _ in range(5):
        router = routed("sqlite:///{tmp_path}/budget.db")
        router.charge(router.decide("hello"), 0.001)
        router.close()
        del router
        gc.collect()
    assert atexit._ncallbacks() <= before + 1, atexit._ncallbacks()
    assert len(multiprocessing.util._finalizer_registry) <= 1, multiprocessing.util._finalizer_registry

before = atexit._ncallbacks() + 1  # that of weakref.finalize
if "{how}" == "alone":
    works()
else:
    child = multiprocessing.get_context("fork").Process(target=works)
    child.start()
    child.join()
    assert child.exitcode == 0
""")


def test_stores_that_are_left_open_send_what_they_have_at_the_end_of_their_process(tmp_path):
    run(f"""
stores = [routed("sqlite:///{tmp_path}/%s.db?lease_share=0.1&flush_s=5" % name) for name in "ab"]
for router in stores:
    router.charge(router.decide("hello"), 0.001)
""")
    run(f"""
for name in "ab":
    (account,) = routed("sqlite:///{tmp_path}/%s.db" % name).account().each
    assert (round(account.spent_usd, 9), account.leased_usd) == (0.001, 0.0), account
""")
