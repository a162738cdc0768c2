"""Programs that fork while they have several threads; each shows where it is if it hangs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

NEEDS_FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

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
    _end("-c", f"import {first}\n{PROLOGUE}{program}")


def run_file(path):
    """Run the program in a file, as processes that are started without a fork need it."""
    _end(str(path))


def _end(*arguments):
    ended = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
