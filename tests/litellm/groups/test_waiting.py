"""Requests of a `litellm.Router` that wait while the rest of a hard budget is only held by calls in flight."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import respx

from support.groups import HI, fitted, llms
from support.providers import INPUT_USD, OUTPUT_USD, URL, answer, deployment
from wiserouter import Budget
from wiserouter_litellm import BudgetRefused, attach
from wiserouter_litellm.operating.proxy_routes import group_status
from wiserouter_litellm.requests.request import request_of
from wiserouter_litellm.settings.proxy_settings import settings_of

MAX_TOKENS = 150
WORST_USD = request_of(HI, {}).input_bound_tokens * INPUT_USD["small"] + MAX_TOKENS * OUTPUT_USD["small"]
BUDGET = Budget(1.9 * WORST_USD, 1_000, limit="hard")
"""Bears one call at a time, and several one after the other."""


class Gate:
    """A provider that answers when it is let go."""

    def __init__(self):
        self.open, self.asked = threading.Event(), 0

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        while not self.open.is_set():
            await asyncio.sleep(0.001)
        return answer(request)

    def answer_in_thread(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        assert self.open.wait(30.0)
        return answer(request)


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def provider(gate):
    with respx.mock(assert_all_called=False) as mock:
        mock.route(url__startswith=URL).mock(side_effect=gate.answer)
        yield mock


def group_of(budget=BUDGET, **terms):
    """Return a router of one model, and its group."""
    callback = attach(llms(deployment("small")), "wise", budget=budget, **terms)
    return callback._router, callback.groups["wise"]


async def until(condition):
    async with asyncio.timeout(20.0):
        while not condition():
            await asyncio.sleep(0.001)


def ask(router, **params):
    return router.acompletion(model="wise", messages=HI, max_tokens=MAX_TOKENS, **params)


async def test_a_request_waits_until_a_call_in_flight_is_settled(provider, gate, settled):
    router, group = group_of()
    first = asyncio.create_task(ask(router))
    await until(lambda: gate.asked == 1)
    second = asyncio.create_task(ask(router))
    await until(lambda: group.queue.n_waiting == 1)
    assert group_status(group)["waiting"] == 1
    gate.open.set()
    await asyncio.gather(first, second)
    await settled(lambda: group.router.status().charged == 2)
    assert group_status(group)["waiting"] == 0


async def test_a_stream_waits_as_well(provider, gate, settled):
    router, group = group_of()
    first = asyncio.create_task(ask(router))
    await until(lambda: gate.asked == 1)
    second = asyncio.create_task(ask(router, stream=True, stream_options={"include_usage": True}))
    await until(lambda: group.queue.n_waiting == 1)
    gate.open.set()
    await first
    assert [chunk async for chunk in await second]
    await settled(lambda: group.router.status().charged == 2)


@pytest.mark.parametrize("wait", [{"max_wait_s": 0.0}, {"max_wait_s": 0.1}])
async def test_a_request_that_does_not_wait_or_no_longer_is_refused(provider, gate, wait):
    router, group = group_of(**wait)
    first = asyncio.create_task(ask(router))
    await until(lambda: gate.asked == 1)
    with pytest.raises(BudgetRefused, match="wait until calls in flight are settled") as refused:
        await ask(router)
    assert refused.value.status_code == 429
    assert group.queue.n_waiting == 0
    gate.open.set()
    await first


async def test_a_request_too_large_for_the_budget_is_refused_at_once_and_told_what_fits(provider, gate, settled):
    router, group = group_of()
    gate.open.set()
    started_s = time.monotonic()
    with pytest.raises(BudgetRefused, match=r"does not pay for the worst case of this call.*limit its output to") as no:
        await router.acompletion(model="wise", messages=HI, max_tokens=400)
    assert time.monotonic() - started_s < 9.0
    tokens = no.value.error.fitting_output_tokens
    assert MAX_TOKENS < tokens < 400
    with pytest.raises(BudgetRefused):
        await router.acompletion(model="wise", messages=HI, max_tokens=tokens + 1)
    await router.acompletion(model="wise", messages=HI, max_tokens=tokens)
    await settled(lambda: group.router.status().charged == 1)


async def test_a_request_whose_client_leaves_while_it_waits_reserves_nothing(provider, gate, settled):
    router, group = group_of()
    first = asyncio.create_task(ask(router))
    await until(lambda: gate.asked == 1)
    leaving, staying = asyncio.create_task(ask(router)), asyncio.create_task(ask(router))
    await until(lambda: group.queue.n_waiting == 2)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert group.queue.n_waiting == 1
    gate.open.set()
    await asyncio.gather(first, staying)
    await settled(lambda: group.router.status().in_flight == 0)
    status = group.router.status()
    assert (status.charged, status.released, status.presumed, status.reserved_usd) == (2, 0, 0, 0.0)
    assert gate.asked == 2


async def test_the_event_loop_goes_on_while_a_request_waits_for_a_file(provider, gate, settled, tmp_path):
    router, group = group_of(router=one_model(f"sqlite:///{tmp_path}/budget.db"))
    first = asyncio.create_task(ask(router))
    await until(lambda: gate.asked == 1)
    second = asyncio.create_task(ask(router))
    await until(lambda: group.queue.n_waiting == 1)
    longest_s = 0.0
    for _ in range(100):
        started_s = time.perf_counter()
        await asyncio.sleep(0.002)
        longest_s = max(longest_s, time.perf_counter() - started_s)
    assert longest_s < 5.0
    gate.open.set()
    await asyncio.gather(first, second)
    await settled(lambda: group.router.status().charged == 2)
    group.router.close()


def one_model(store):
    from wiserouter import Model, WiseRouter

    return WiseRouter([Model("openai/small")], store=store, seed=0)


def test_synchronous_calls_wait_in_their_threads(gate):
    with respx.mock(assert_all_called=False) as mock:
        mock.route(url__startswith=URL).mock(side_effect=gate.answer_in_thread)
        router, group = group_of()
        with ThreadPoolExecutor(3) as threads:
            calls = [
                threads.submit(router.completion, model="wise", messages=HI, max_tokens=MAX_TOKENS) for _ in range(3)
            ]
            deadline_s = time.monotonic() + 20.0
            while (group.queue.n_waiting, gate.asked) != (2, 1):
                assert time.monotonic() < deadline_s
                time.sleep(0.002)
            gate.open.set()
            assert len([call.result(20.0) for call in calls]) == 3


async def test_two_groups_of_one_router_wait_in_one_line(provider, gate, settled):
    router_ = llms(deployment("small"), deployment("small", "other", info={"id": "small-2"}))
    core = one_model("memory://")
    first = attach(router_, "wise", router=core, budget=BUDGET).groups["wise"]
    second = attach(router_, "other", router=core).groups["other"]
    assert first.queue is second.queue
    held = asyncio.create_task(ask(router_))
    await until(lambda: gate.asked == 1)
    calls = [
        asyncio.create_task(router_.acompletion(model=group, messages=HI, max_tokens=MAX_TOKENS))
        for group in ("other", "wise")
    ]
    await until(lambda: first.queue.n_waiting == 2)
    gate.open.set()
    await asyncio.gather(held, *calls)
    await settled(lambda: core.status().charged == 3)


def test_an_expected_limit_waits_for_what_calls_in_flight_may_not_cost(settled):
    """Held back are expected costs: a call may turn out to be cheaper, as the answer of a cache."""
    router = fitted("small")
    router.start(Budget(0.00015, 100))
    first = router.decide(eligible=["small"])
    with pytest.raises(Exception, match="wait until calls in flight") as refused:
        router.decide(eligible=["small"])
    assert refused.value.is_only_held
    router.charge(first, 0.0)
    router.decide(eligible=["small"])


@pytest.mark.parametrize(
    ("settings", "wait_s"),
    [({}, 10.0), ({"max_wait_s": 3}, 3.0), ({"on_held": "refuse"}, 0.0), ({"on_held": "wait"}, 10.0)],
)
def test_the_settings_say_how_long_a_request_waits(settings, wait_s):
    block = {"groups": {"wise": {"budget_usd": 1.0, "requests": 10, **settings}}}
    assert settings_of(block).groups["wise"].wait_s == wait_s
