"""The queue of requests that wait for settlements: order, limits, cancellation, and nothing reserved for no call."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from wiserouter import Budget, Contexts, Conversations, Estimates, Model, Offline, WiseRouter
from wiserouter.errors import BudgetExhausted, HorizonExhausted
from wiserouter.integration import AdmissionQueue, admission_queue
from wiserouter.stores import MemoryStore
from wiserouter.testing import FakeClock

WORST_USD = 1.0
NEVER_S = 1_000.0


def make(amount_usd=1.0, horizon=100_000, *, store="memory://", **terms) -> WiseRouter:
    """Return a router of one model under a hard limit."""
    router = WiseRouter([Model("only", max_cost_usd=WORST_USD)], store=store, seed=0)
    router.start(Budget(amount_usd, horizon, limit="hard", **terms))
    return router


def attempt(router, worst_usd=WORST_USD, scope="default"):
    """Return a callable that decides on a call of that worst case."""
    return lambda may_wait: router.decide(worst_case_usd={"only": worst_usd}, scope=scope, may_wait=may_wait)


def needs(usd=WORST_USD):
    return lambda: usd


async def waiting(queue, n):
    """Return once `n` requests wait."""
    async with asyncio.timeout(20.0):
        while queue.n_waiting != n:
            await asyncio.sleep(0)


def idle(router):
    status = router.status()
    return (status.in_flight, status.reserved_usd)


async def test_a_request_waits_for_a_settlement_and_gets_what_it_gives_back():
    router = make()
    queue, first = admission_queue(router), router.decide()
    second = asyncio.create_task(queue.aadmit("default", attempt(router), needs(), NEVER_S))
    await waiting(queue, 1)
    assert not second.done()
    router.charge(first, 0.0)
    assert (await second).model == "only"
    assert queue.n_waiting == 0


@pytest.mark.parametrize("settle", ["release", "charge", "refund", "raise"])
async def test_whatever_gives_money_back_wakes_the_first(settle):
    router = make()
    queue = AdmissionQueue(router, poll_s=NEVER_S)
    first = router.decide(worst_case_usd={"only": 0.5})
    router.spend(0.5)
    second = asyncio.create_task(queue.aadmit("default", attempt(router, 0.5), needs(0.5), NEVER_S))
    await waiting(queue, 1)
    if settle == "release":
        router.release(first)
    elif settle == "charge":
        router.charge(first, 0.0)
    elif settle == "refund":
        router.spend(-0.5)
    else:
        router.set_budget(amount_usd=1.5)
    async with asyncio.timeout(20.0):
        assert (await second).model == "only"


async def test_a_request_that_never_fits_is_refused_at_once_also_behind_others():
    router = make()
    queue, first = admission_queue(router), router.decide(worst_case_usd={"only": 0.4})
    router.spend(0.4)
    with pytest.raises(BudgetExhausted) as refused:
        await queue.aadmit("default", attempt(router, 0.7), needs(0.7), NEVER_S)
    assert not refused.value.is_only_held
    fits = asyncio.create_task(queue.aadmit("default", attempt(router, 0.6), needs(0.6), NEVER_S))
    await waiting(queue, 1)
    with pytest.raises(BudgetExhausted):
        await queue.aadmit("default", attempt(router, 0.7), needs(0.7), NEVER_S)
    router.release(first)
    await fits


@pytest.mark.parametrize("outcome", ["charged", "presumed"])
async def test_a_request_that_waits_is_refused_as_soon_as_it_can_no_longer_fit(outcome):
    router = make()
    queue, first = admission_queue(router), router.decide(worst_case_usd={"only": 0.5})
    second = asyncio.create_task(queue.aadmit("default", attempt(router, 0.6), needs(0.6), NEVER_S))
    await waiting(queue, 1)
    if outcome == "charged":
        router.charge(first, 0.5)
    else:
        router.presume(first)
    async with asyncio.timeout(20.0):
        with pytest.raises(BudgetExhausted) as refused:
            await second
    assert not refused.value.is_only_held


@pytest.mark.parametrize("in_task", [False, True])
async def test_a_refusal_whose_amount_has_come_free_meanwhile_is_tried_again(in_task):
    router = make()
    queue, tries = AdmissionQueue(router, poll_s=NEVER_S), []

    def settled_during_the_first(may_wait):
        tries.append(may_wait)
        if len(tries) == 1:  # all was held when it was refused, and the account shows nothing of that any more
            raise router.account().exhausted(0.5)
        return attempt(router, 0.5)(may_wait)

    async with asyncio.timeout(20.0):
        if in_task:
            decision = await queue.aadmit("default", settled_during_the_first, needs(0.5), NEVER_S)
        else:
            admit = partial(queue.admit, "default", settled_during_the_first, needs(0.5), NEVER_S)
            decision = await asyncio.to_thread(admit)
    assert (decision.model, len(tries)) == ("only", 2)


async def test_other_errors_of_an_attempt_pass():
    router = make(2.0, horizon=1)
    router.decide()
    with pytest.raises(HorizonExhausted):
        await admission_queue(router).aadmit("default", attempt(router), needs(), NEVER_S)


async def test_requests_are_admitted_in_order_of_arrival():
    router, order = make(), []
    queue, held = admission_queue(router), router.decide()

    async def request(i):
        decision = await queue.aadmit("default", attempt(router, 1.0 - i / 100), needs(), NEVER_S)
        order.append(i)
        await asyncio.sleep(0)
        router.charge(decision, 0.001)

    tasks = []
    for i in range(30):
        tasks.append(asyncio.create_task(request(i)))
        await waiting(queue, i + 1)
    router.charge(held, 0.0)
    await asyncio.gather(*tasks)
    assert order == list(range(30))
    assert idle(router) == (0, 0.0)


def test_threads_are_admitted_in_order_of_arrival():
    router, order = make(), []
    queue, held = admission_queue(router), router.decide()

    def request(i):
        decision = queue.admit("default", attempt(router), needs(), NEVER_S)
        order.append(i)
        router.charge(decision, 0.0)

    threads = [threading.Thread(target=request, args=(i,)) for i in range(12)]
    for i, thread in enumerate(threads):
        thread.start()
        while queue.n_waiting != i + 1:
            time.sleep(0.001)
    router.release(held)
    for thread in threads:
        thread.join(20.0)
    assert order == list(range(12))


@pytest.mark.parametrize("way", ["task", "thread"])
async def test_a_small_request_does_not_overtake_a_large_one(way):
    router = make()
    queue, held = admission_queue(router), router.decide(worst_case_usd={"only": 0.5})
    large = asyncio.create_task(queue.aadmit("default", attempt(router, 0.9), needs(0.9), NEVER_S))
    await waiting(queue, 1)
    terms = "default", attempt(router, 0.1), needs(0.1), NEVER_S
    small = asyncio.create_task(queue.aadmit(*terms) if way == "task" else asyncio.to_thread(queue.admit, *terms))
    await waiting(queue, 2)
    await asyncio.sleep(0.01)
    assert not small.done()  # although 0.5 USD are free
    router.charge(held, 0.0)
    await large
    await small


async def test_the_scopes_wait_apart_for_a_budget_that_they_share():
    router = make(1.0)
    for scope in ("a", "b"):
        router.start(Budget(1.0, 100, limit="hard"), scope=scope, parent="default")
    queue = AdmissionQueue(router, poll_s=NEVER_S)
    held = router.decide(scope="a")
    tasks = [
        asyncio.create_task(queue.aadmit(scope, attempt(router, 0.5, scope), needs(0.5), NEVER_S))
        for scope in ("a", "b")
    ]
    await waiting(queue, 2)
    router.charge(held, 0.0)
    async with asyncio.timeout(20.0):
        assert [decision.scope for decision in await asyncio.gather(*tasks)] == ["a", "b"]


async def test_a_request_waits_no_longer_than_it_may():
    router = make()
    router.decide()
    started_s = time.monotonic()
    with pytest.raises(BudgetExhausted, match="wait until calls in flight are settled") as refused:
        await admission_queue(router).aadmit("default", attempt(router), needs(), 0.2)
    assert 0.2 <= time.monotonic() - started_s < 8.0
    assert refused.value.is_only_held
    assert router.status().in_flight == 1


def two_models(amount_usd=3.0) -> WiseRouter:
    """Return a router of two models that prefers the one of worst case 2 to the one of worst case 1."""
    estimates = Estimates(1, 2)
    for model, (cost_usd, reward) in enumerate(((0.1, 0.1), (0.2, 0.9))):
        for _ in range(50):
            estimates.add_cost(0, model, cost_usd)
            estimates.add_reward(0, model, reward)
    models = [Model("small", max_cost_usd=1.0), Model("large", max_cost_usd=2.0)]
    router = WiseRouter(models, Contexts.single(), estimates=estimates, policy=Offline(), seed=0)
    router.start(Budget(amount_usd, 5, limit="hard"))
    return router


async def test_a_request_waits_for_the_model_that_is_worth_it():
    router = two_models()
    queue, first = admission_queue(router), router.decide()
    assert first.model == "large"

    def decide(may_wait):
        return router.decide(may_wait=may_wait)

    second = asyncio.create_task(queue.aadmit("default", decide, needs(1.0), NEVER_S))
    await waiting(queue, 1)
    router.charge(first, 0.2)
    assert (await second).model == "large"


async def test_after_its_time_it_takes_a_model_that_fits():
    router = two_models()
    router.decide()
    decision = await admission_queue(router).aadmit(
        "default", lambda may_wait: router.decide(may_wait=may_wait), needs(1.0), 0.1
    )
    assert decision.model == "small"


async def test_a_wait_of_zero_takes_a_model_that_fits_or_refuses_at_once():
    router = two_models()
    queue = admission_queue(router)
    router.decide()
    decision = await queue.aadmit("default", lambda may_wait: router.decide(may_wait=may_wait), needs(1.0), 0.0)
    assert decision.model == "small"
    with pytest.raises(BudgetExhausted):
        await queue.aadmit("default", lambda may_wait: router.decide(may_wait=may_wait), needs(1.0), 0.0)


async def test_too_many_are_refused_at_once():
    router = make()
    queue, held = AdmissionQueue(router, max_waiting=2), router.decide()
    tasks = [asyncio.create_task(queue.aadmit("default", attempt(router), needs(), NEVER_S)) for _ in range(2)]
    await waiting(queue, 2)
    with pytest.raises(BudgetExhausted):
        await queue.aadmit("default", attempt(router), needs(), NEVER_S)
    for decision in (held, *tasks):
        router.release(decision if decision is held else await decision)


async def test_a_cancelled_request_leaves_and_the_next_one_is_woken():
    router = make()
    queue = AdmissionQueue(router, poll_s=NEVER_S)
    held = router.decide(worst_case_usd={"only": 0.5})
    large = asyncio.create_task(queue.aadmit("default", attempt(router, 0.9), needs(0.9), NEVER_S))
    await waiting(queue, 1)
    small = asyncio.create_task(queue.aadmit("default", attempt(router, 0.1), needs(0.1), NEVER_S))
    await waiting(queue, 2)
    large.cancel()
    async with asyncio.timeout(20.0):
        router.release(await small)
    assert large.cancelled()
    router.release(held)
    assert idle(router) == (0, 0.0)


async def test_a_request_cancelled_while_it_is_decided_in_a_thread_reserves_nothing():
    router = make()
    queue, inside, go_on = admission_queue(router), threading.Event(), threading.Event()

    def slow(may_wait):
        inside.set()
        go_on.wait(5.0)
        return router.decide(may_wait=may_wait)

    task = asyncio.create_task(queue.aadmit("default", slow, needs(), NEVER_S, router.release))
    await asyncio.to_thread(inside.wait, 5.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    async with asyncio.timeout(20.0):
        while router.status().released != 1:
            await asyncio.sleep(0.001)
    assert idle(router) == (0, 0.0)


def test_a_loop_that_has_ended_holds_up_nobody_behind_it():
    router = make()
    queue, held = AdmissionQueue(router, poll_s=NEVER_S), router.decide()
    loop = asyncio.new_event_loop()
    task = loop.create_task(queue.aadmit("default", attempt(router), needs(), NEVER_S))
    loop.run_until_complete(asyncio.sleep(0.01))
    task._log_destroy_pending = False
    loop.close()
    with ThreadPoolExecutor(1) as threads:
        behind = threads.submit(queue.admit, "default", attempt(router), needs(), 5.0)
        while queue.n_waiting != 2:
            time.sleep(0.001)
        router.release(held)
        assert behind.result(5.0).model == "only"
    task.get_coro().close()


async def test_a_synchronous_call_on_an_event_loop_does_not_hold_up_its_other_tasks():
    router = make()
    router.decide()
    other = asyncio.create_task(asyncio.sleep(NEVER_S))
    started_s = time.monotonic()
    with pytest.raises(BudgetExhausted):
        admission_queue(router).admit("default", attempt(router), needs(), NEVER_S)
    assert time.monotonic() - started_s < 8.0
    other.cancel()


async def test_a_synchronous_call_waits_on_an_event_loop_of_its_own():
    """As LiteLLM makes one for each synchronous call."""
    router = make()
    queue, held = admission_queue(router), router.decide()

    async def call():
        return queue.admit("default", attempt(router), needs(), NEVER_S)

    waits = asyncio.create_task(asyncio.to_thread(asyncio.run, call()))
    await waiting(queue, 1)
    router.release(held)
    assert (await waits).model == "only"


async def test_a_budget_that_renews_admits_without_a_settlement():
    clock = FakeClock(1_000.0)
    router = WiseRouter([Model("only", max_cost_usd=1.0)], store=MemoryStore(clock), seed=0)
    router.start(Budget(1.0, every="60s", limit="hard"))
    queue = AdmissionQueue(router, poll_s=0.01)
    router.decide()
    task = asyncio.create_task(queue.aadmit("default", attempt(router), needs(), NEVER_S))
    await waiting(queue, 1)
    clock.advance(60.0)
    async with asyncio.timeout(20.0):
        await task


async def test_a_settlement_of_another_worker_is_seen(tmp_path):
    ours, theirs = (make(store=f"sqlite:///{tmp_path}/budget.db") for _ in range(2))
    queue, held = AdmissionQueue(ours, poll_s=0.05), theirs.decide()
    task = asyncio.create_task(queue.aadmit("default", attempt(ours), needs(), NEVER_S, ours.release))
    async with asyncio.timeout(10.0):
        while not queue.n_waiting:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(theirs.charge, held, 0.0)
        assert (await task).model == "only"
    ours.close()
    theirs.close()


def test_all_who_use_a_router_share_one_queue_that_does_not_keep_it_alive():
    from weakref import ref

    router = make()
    assert admission_queue(router) is admission_queue(router)
    assert admission_queue(router) is not admission_queue(make())
    gone = ref(router)
    del router
    assert gone() is None


class Crowd:
    """Requests of random worst cases, costs and latencies, of which some are cancelled."""

    def __init__(self, seed, amount_usd=40.0):
        self.seed, self.router, self.outcomes = seed, make(amount_usd), []
        self.queue = AdmissionQueue(self.router, poll_s=NEVER_S, max_waiting=10_000)  # no poll helps out

    def plan(self, i):
        rng = random.Random(self.seed * 1_000 + i)
        worst_usd = rng.uniform(0.5, 8.0)
        return worst_usd, worst_usd * rng.choice([0.0, 0.01, 0.02]), rng.uniform(0.0, 0.004), rng.random() < 0.2

    async def request(self, i):
        worst_usd, cost_usd, latency_s, cancelled = self.plan(i)
        tries = attempt(self.router, worst_usd)
        task = asyncio.create_task(self.queue.aadmit("default", tries, needs(worst_usd), 30.0))
        if cancelled:
            await asyncio.sleep(latency_s)
            task.cancel()
        try:
            decision = await task
        except asyncio.CancelledError:
            self.outcomes.append("cancelled")
            return
        await asyncio.sleep(latency_s)
        self.router.charge(decision, cost_usd)
        self.outcomes.append("served")

    async def on_a_loop(self, numbers):
        await asyncio.gather(*map(self.request, numbers))

    def in_a_thread(self, numbers):
        for i in numbers:
            worst_usd, cost_usd, latency_s, _ = self.plan(i)
            decision = self.queue.admit("default", attempt(self.router, worst_usd), needs(worst_usd), 30.0)
            time.sleep(latency_s)
            self.router.charge(decision, cost_usd)
            self.outcomes.append("served")


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_among_threads_and_loops(seed):
    crowd, n_each = Crowd(seed), 60
    shares = [range(k * n_each, (k + 1) * n_each) for k in range(7)]
    runs = [threading.Thread(target=lambda share=share: asyncio.run(crowd.on_a_loop(share))) for share in shares[:3]]
    runs += [threading.Thread(target=crowd.in_a_thread, args=(share,)) for share in shares[3:]]
    started_s = time.monotonic()
    for each in runs:
        each.start()
    for each in runs:
        each.join(60.0)
    assert len(crowd.outcomes) == 7 * n_each
    assert time.monotonic() - started_s < 25.0  # none waited for all of its time
    assert (crowd.queue.n_waiting, *idle(crowd.router)) == (0, 0, 0.0)
    assert crowd.router.status().charged == crowd.outcomes.count("served")
    assert crowd.router.status().spent_usd <= 40.0


def run_attempt(router, run, worst_usd=WORST_USD):
    return lambda may_wait: router.decide(worst_case_usd={"only": worst_usd}, conversation=run, may_wait=may_wait)


@pytest.mark.parametrize("two", [False, True], ids=["one", "two"])
async def test_a_request_that_waits_for_its_run_holds_up_no_other_run(two):
    router = make(amount_usd=100.0)
    router.keep_conversations(Conversations("run", run_budget_usd=1.5))
    queue, first = admission_queue(router), router.decide(conversation="a")
    waiters = [
        asyncio.create_task(queue.aadmit("default", run_attempt(router, "a"), needs(), NEVER_S)) for _ in range(1 + two)
    ]
    await waiting(queue, 1 + two)
    other = await asyncio.wait_for(queue.aadmit("default", run_attempt(router, "b"), needs(), NEVER_S), 5.0)
    assert other.conversation != first.conversation
    router.charge(first, 0.25)
    second = await waiters[0]
    assert second.conversation == first.conversation
    router.charge(second, 0.25)
    for waiter in waiters[1:]:
        router.charge(await waiter, 0.25)
    assert queue.n_waiting == 0
    assert router.conversation("a").spent_usd <= 1.5


def test_a_thread_that_waits_for_its_run_holds_up_no_other_run():
    router = make(amount_usd=100.0)
    router.keep_conversations(Conversations("run", run_budget_usd=1.5))
    queue, first = admission_queue(router), router.decide(conversation="a")
    with ThreadPoolExecutor(2) as threads:
        waiter = threads.submit(queue.admit, "default", run_attempt(router, "a"), needs(), NEVER_S)
        while queue.n_waiting != 1:
            time.sleep(0.001)
        other = threads.submit(queue.admit, "default", run_attempt(router, "b"), needs(), NEVER_S)
        assert other.result(5.0).conversation != first.conversation
        router.charge(first, 0.25)
        assert waiter.result(5.0).conversation == first.conversation
    assert queue.n_waiting == 0
