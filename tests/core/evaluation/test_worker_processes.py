"""Worker processes: their results, and an interrupt from the terminal."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children

import pytest

from wiserouter.evaluation.worker_processes import worker_processes

SLEEPS = """
import time
from wiserouter.evaluation.worker_processes import worker_processes

if __name__ == "__main__":
    with worker_processes(2) as submit:
        futures = submit(time.sleep, [(60,)] * 4)
        while not all(one.running() for one in futures[:2]):
            time.sleep(0.01)
        print("running", flush=True)
        futures[0].result()
"""


def test_results_come_in_the_order_of_the_arguments():
    with worker_processes(2) as submit:
        assert [one.result() for one in submit(pow, [(2, 3), (3, 2), (5, 1)])] == [8, 9, 5]
    assert active_children() == []


def test_an_error_in_the_block_ends_the_processes():
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError), worker_processes(1) as submit:
        submit(time.sleep, [(60,)])
        raise ZeroDivisionError
    assert time.monotonic() - began < 10
    assert active_children() == []


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked here")
def test_an_interrupt_from_the_terminal_ends_all_processes_without_their_tracebacks(tmp_path):
    program = tmp_path / "sleeps.py"
    program.write_text(SLEEPS)
    process = subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "running\n"
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert errors.count("Traceback") == 1  # of the program itself, which does not catch it
    assert "KeyboardInterrupt" in errors.splitlines()[-1]
