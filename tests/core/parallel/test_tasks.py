"""Tasks over workers: order, errors, lost workers, backends."""

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

import joblib
import numpy as np
import pytest

from wiserouter.errors import InvalidInput, LogError, MissingExtra, WorkersLost
from wiserouter.parallel import backends
from wiserouter.parallel.backends import parallel_backend
from wiserouter.parallel.shared import Shared
from wiserouter.parallel.tasks import run_each, run_in_order


def slow_first(task):
    time.sleep(0.2 if task == 0 else 0.0)
    return task * task


def lost_once(marker, task):
    if task == 3 and not marker.exists():
        marker.write_text("lost")
        os.kill(os.getpid(), signal.SIGKILL)
    return task, os.getpid()


def always_lost(task):
    os.kill(os.getpid(), signal.SIGKILL)


def bad_row(task):
    raise LogError("a cost must be a number", file="calls.csv", row=task, column="cost")


@pytest.mark.parametrize("n_jobs", [None, 1, 2])
def test_results_come_in_the_order_of_the_tasks(n_jobs):
    with joblib.parallel_config(backend="threading"):
        assert list(run_in_order(slow_first, range(6), n_jobs=n_jobs)) == [0, 1, 4, 9, 16, 25]
        assert dict(run_each(slow_first, range(6), n_jobs=n_jobs)) == {n: n * n for n in range(6)}


def test_a_program_sets_the_workers_by_joblib():
    def thread(_):
        time.sleep(0.05)
        return __import__("threading").get_ident()

    with joblib.parallel_config(backend="threading", n_jobs=3):
        assert len(set(run_in_order(thread, range(6)))) > 1
    assert len(set(run_in_order(thread, range(6)))) == 1


def squares(n):
    return list(run_in_order(slow_first, range(n), n_jobs=2))


@pytest.mark.slow
def test_a_task_of_a_worker_may_have_workers_of_its_own():
    assert list(run_in_order(squares, [2, 3], n_jobs=2)) == [[0, 1], [0, 1, 4]]


@pytest.mark.slow
def test_tasks_of_a_lost_worker_are_run_again(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "wiserouter"):
        done = list(run_in_order(partial(lost_once, tmp_path / "lost"), range(8), n_jobs=2))
    assert [task for task, _ in done] == list(range(8))
    assert os.getpid() not in {process for _, process in done}
    assert "a worker was lost" in caplog.text


@pytest.mark.slow
def test_workers_that_are_always_lost_end_the_run():
    with pytest.raises(WorkersLost, match=r"3 times in a row, with 4 of 4 tasks left"):
        list(run_in_order(always_lost, range(4), n_jobs=2))


@pytest.mark.slow
def test_an_error_of_a_task_reaches_the_caller_as_it_is():
    with pytest.raises(LogError, match=r"calls.csv, row 7, column 'cost'") as caught:
        list(run_in_order(bad_row, [7, 7], n_jobs=2))
    assert (caught.value.row, caught.value.column) == (7, "cost")


@pytest.mark.parametrize("n_jobs", [0, 1.5, "2", True])
def test_a_number_of_workers_that_is_none_is_refused(n_jobs):
    with pytest.raises(InvalidInput, match="n_jobs must be a number of workers"):
        list(run_each(abs, [1], n_jobs=n_jobs))


def test_a_shared_value_is_restored_once_in_a_process():
    factor = 3
    shared = Shared((np.arange(5), lambda value: value * factor))
    pickled = __import__("pickle").dumps(partial(slow_first, shared))
    one, other = (__import__("pickle").loads(pickled).args[0] for _ in range(2))
    assert one is other
    assert one.value[1](2) == 6
    assert one.value[0].tolist() == [0, 1, 2, 3, 4]


def test_backends_have_names_and_addresses():
    with pytest.raises(InvalidInput, match="backend must be one of loky, threading, dask, ray, spark, got 'slurm'"):
        parallel_backend("slurm").__enter__()
    for name in ("loky", None):
        with pytest.raises(InvalidInput, match="address must name a cluster"):
            parallel_backend(name, "tcp://127.0.0.1:8786").__enter__()
    with parallel_backend("threading"):
        assert joblib.parallel.get_active_backend()[0].__class__.__name__ == "ThreadingBackend"
    with parallel_backend(None):
        pass


def test_a_backend_that_is_not_installed_names_its_extra(monkeypatch):
    def missing(address):
        raise ImportError("no module named distributed")

    monkeypatch.setitem(backends._CLUSTERS, "dask", (missing, "distributed"))
    with pytest.raises(MissingExtra, match=r"the backend dask needs distributed: pip install 'wiserouter\[dask\]'"):
        parallel_backend("dask").__enter__()


SLEEPS = """
import os
import time
from wiserouter.parallel.tasks import run_in_order

def sleep(seconds):
    os.write(1, f"{os.getpid()}\\n".encode())  # at once, for both workers write to one pipe
    time.sleep(seconds)

if __name__ == "__main__":
    list(run_in_order(sleep, [60] * 4, n_jobs=2))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_a_program_that_is_killed(tmp_path, number):
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    program = [sys.executable, str(tmp_path / "sleeps.py")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        for _ in range(2):
            assert process.stdout.readline()
        process.send_signal(number)  # to it alone, as an init system or a container does
        try:
            process.communicate(timeout=30)  # until no worker holds the pipe, before the minute of its sleep is over
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -number


SLOW_START = """
import os, sys, time

if any("loky" in word for word in sys.orig_argv) and "--process-name" in sys.orig_argv:
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(2.0)  # as long imports take
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="has no such signals")
def test_an_interrupt_while_workers_start_shows_none_of_their_tracebacks(tmp_path):
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    (tmp_path / "sitecustomize.py").write_text(SLOW_START)
    program, own = [sys.executable, str(tmp_path / "sleeps.py")], {**os.environ, "PYTHONPATH": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(program, env=own, **pipes) as process:
        workers = {int(process.stdout.readline()) for _ in range(2)}
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.pid not in workers
    assert errors.count("Traceback") == 1, errors  # of the program itself, which does not catch it
    assert "KeyboardInterrupt" in errors.splitlines()[-1]


@pytest.mark.slow
def test_an_interrupt_from_the_terminal_ends_all_workers_without_their_tracebacks(tmp_path):
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    program = [sys.executable, str(tmp_path / "sleeps.py")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(program, **pipes) as process:
        workers = [int(process.stdout.readline()) for _ in range(2)]
        began = time.monotonic()
        for worker in workers:  # they may meet it before the program does
            os.kill(worker, signal.SIGINT)
        time.sleep(1.0)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 50  # they do not sleep on for their minute
    assert errors.count("Traceback") == 1  # of the program itself, which does not catch it
    assert "KeyboardInterrupt" in errors.splitlines()[-1]
