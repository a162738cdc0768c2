"""Steps off the event loop finish even if the caller is cancelled."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from wiserouter.errors import NotStarted, StoreUnavailable
from wiserouter.stores.offload import offload


async def test_a_step_is_done_in_another_thread():
    assert await offload(threading.get_ident) != threading.get_ident()


async def test_its_error_is_the_callers():
    def fail():
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await offload(fail)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_caller_does_not_stop_it_and_its_result_is_undone(fails):
    begun, go_on, ended, undone = threading.Event(), threading.Event(), threading.Event(), []

    def step():
        begun.set()
        go_on.wait(5)
        ended.set()
        if fails:
            raise LookupError("too late")
        return "done"

    waiting = asyncio.create_task(offload(step, undone.append))
    await asyncio.to_thread(begun.wait, 5)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    await asyncio.to_thread(ended.wait, 5)
    async with asyncio.timeout(5):
        while not undone and not fails:
            await asyncio.sleep(0)
    assert undone == ([] if fails else ["done"])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotStarted("default"), []),
        (StoreUnavailable("away", store="it"), ["wiserouter: a step failed after its caller had left: away"]),
        (LookupError("no"), ["wiserouter: a step failed after its caller had left: no"]),
    ],
)
async def test_a_refusal_of_a_call_whose_caller_has_left_is_no_error_in_the_log(error, said, caplog):
    begun, go_on = threading.Event(), threading.Event()

    def step():
        begun.set()
        go_on.wait(5)
        raise error

    waiting = asyncio.create_task(offload(step))
    await asyncio.to_thread(begun.wait, 5)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    del waiting
    await asyncio.get_running_loop().shutdown_default_executor()
    await asyncio.sleep(0.01)
    gc.collect()
    assert [f"{one.name}: {one.message}" for one in caplog.records] == said


@pytest.mark.parametrize("n_threads", [1, 4])
def test_the_end_of_the_loop_stops_no_step_and_leaves_no_result_that_is_not_undone(n_threads):
    begun, ending, done, undone = threading.Event(), threading.Event(), [], []

    def step(n):
        begun.set()
        ending.wait(30)
        done.append(n)
        return n

    async def until_the_loop_ends():
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(n_threads))
        tasks = [asyncio.create_task(offload(partial(step, n), undone.append)) for n in range(8)]
        held = asyncio.create_task(until_the_loop_ends())
        async with asyncio.timeout(30):
            while not begun.is_set():
                await asyncio.sleep(0.001)
        return tasks, held

    tasks, held = asyncio.run(main())
    assert all(task.cancelled() for task in (*tasks, held))
    assert sorted(done) == sorted(undone) == list(range(8))


async def test_a_result_that_arrives_as_its_caller_is_cancelled_is_undone():
    ended, undone = threading.Event(), []

    def step():
        ended.set()
        return "done"

    waiting = asyncio.create_task(offload(step, undone.append))
    await asyncio.sleep(0)
    assert ended.wait(5)  # on the loop, which cannot tell the caller meanwhile
    waiting.cancel()
    async with asyncio.timeout(5):
        while not undone:
            await asyncio.sleep(0)
    assert undone == ["done"]
    assert waiting.cancelled()
