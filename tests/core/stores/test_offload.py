"""Steps off the event loop finish even if the caller is cancelled."""

import asyncio
import threading

import pytest

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
