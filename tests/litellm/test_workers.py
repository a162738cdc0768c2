"""Two workers on one store, in this process: their calls, their feedback, and an event loop that is never blocked."""

import asyncio

import pytest
import respx

from support.groups import HI, asked, fitted, llms
from support.off_loop import store_at
from support.providers import URL, cost_usd, deployment, failing
from wiserouter import Budget, Offline, WiseRouter
from wiserouter.errors import StoreUnavailable
from wiserouter_litellm import BudgetRefused, BudgetUncertain, UnknownCall, WiseRoutingStrategy, attach

RICH = Budget(10.0, 1_000)
HARD = Budget(10.0, 1_000, limit="hard")


def knowing(store):
    """Return a router that knows both models and wants "large", on a store."""
    known = fitted()
    return WiseRouter(
        known.pool.models, known.contexts, estimates=known.estimates.copy(), policy=Offline(), store=store, seed=0
    )


@pytest.fixture
async def workers(tmp_path):
    """Return what makes a worker: its LiteLLM router, callback, core router and engine."""
    stores = []

    async def open_worker(budget=RICH, *, near=True, unit=None, run_budget_usd=None, **settings):
        store, engine = store_at(tmp_path / "b.db", near=near, **settings)
        stores.append(store)
        own = [deployment(name, info={"id": f"{name}-{len(stores)}"}) for name in ("small", "large")]
        llms_ = llms(*own, num_retries=1, allowed_fails=1_000)
        router = await asyncio.to_thread(knowing, store)
        terms = {"router": router, "budget": budget, "unit": unit, "run_budget_usd": run_budget_usd}
        callback = await asyncio.to_thread(lambda: attach(llms_, "wise", **terms))
        return llms_, callback, router, engine

    yield open_worker
    for store in stores:
        await asyncio.to_thread(store.close)


async def ask(llms_, **body):
    return await llms_.acompletion(model="wise", messages=HI, **body)


@pytest.mark.parametrize("near", [True, False], ids=["file", "server"])
@pytest.mark.parametrize("name", ["call", "response", "decision"])
async def test_feedback_reaches_every_worker_by_every_name(provider, settled, workers, near, name):
    (one, _, router, _), (_, elsewhere, other, _) = await workers(near=near), await workers(near=near)
    answer = await ask(one)
    await settled(lambda: router.status().charged == 1, 20.0)  # the first call of a process loads much
    await asyncio.to_thread(router._store.refresh)
    ids = {
        "call": answer._hidden_params["litellm_call_id"],
        "response": answer.id,
        "decision": next(iter(router._store._worker.decisions)),
    }
    assert await elsewhere.afeedback(ids[name], 0.5) is False
    assert await elsewhere.afeedback(ids[name], 1.0) is True
    for one_router in (other, router):
        await asyncio.to_thread(one_router._store.refresh)
    await ask(one)  # a decision hears what the others have observed
    assert router.estimates.labels.sum() == 101
    assert router.estimates.reward[0, 1] == pytest.approx(50 * 0.9 + 1.0)
    with pytest.raises(UnknownCall):
        await elsewhere.afeedback(ids[name], 1.0, caller="another key")


@pytest.mark.parametrize("near", [True, False], ids=["file", "server"])
@pytest.mark.parametrize("budget", [RICH, HARD], ids=["expected", "hard"])
async def test_no_door_waits_for_the_store_on_the_event_loop(settled, workers, near, budget):
    llms_, callback, router, engine = await workers(budget, near=near)
    with respx.mock(assert_all_called=False) as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("large"))
        await ask(llms_)  # a retry
        mock.route(url__startswith=URL).mock(side_effect=failing("large", "small"))
        with pytest.raises(Exception, match="out of order"):
            await ask(llms_)
        mock.route(url__startswith=URL).mock(side_effect=failing())
        answer = await ask(llms_)
        stream = await ask(llms_, stream=True, stream_options={"include_usage": True})
        assert [chunk async for chunk in stream]
        await asyncio.gather(*[ask(llms_, max_tokens=10) for _ in range(10)])
        long = [{"role": "user", "content": "word " * 2_000}]
        await llms_.acompletion(model="wise", messages=long, max_tokens=5)
    await settled(lambda: router.status().in_flight == 0)
    assert await callback.afeedback(answer, 1.0) is False
    assert engine.seen == []
    assert router.status().charged == 14
    assert callback.groups["wise"].faults == {}


@pytest.mark.parametrize("near", [True, False], ids=["file", "server"])
async def test_the_calls_of_runs_do_not_wait_for_the_store_on_the_event_loop(settled, workers, near):
    llms_, callback, router, engine = await workers(near=near, unit="run", run_budget_usd=1.0)
    with respx.mock(assert_all_called=False) as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing())
        for ids in ({}, {"metadata": {"session_id": "run-1"}}):
            await ask(llms_, max_tokens=10, **ids)
            stream = await ask(llms_, max_tokens=10, stream=True, stream_options={"include_usage": True}, **ids)
            assert [chunk async for chunk in stream]
        mock.routes[0].side_effect = failing("large")
        await ask(llms_, max_tokens=10, metadata={"session_id": "run-1"})
        long = [{"role": "user", "content": "word " * 30_000}]
        with pytest.raises(Exception, match="tokens"):
            await llms_.acompletion(model="wise", messages=long, max_tokens=5)
    await settled(lambda: router.status().in_flight == 0)
    assert await callback.afeedback("run-1", 1.0) is False
    await asyncio.to_thread(callback.end, "run-1")
    assert engine.seen == []
    assert callback.groups["wise"].faults == {}


async def test_a_run_goes_on_at_another_worker(provider, settled, workers):
    opened = [await workers(near=False, unit="run") for _ in range(2)]
    messages = [{"role": "user", "content": "fix the failing test"}]
    for turn in range(6):
        llms_, _, router, _ = opened[turn % 2]
        await asyncio.to_thread(router._store.refresh)
        answer = await llms_.acompletion(model="wise", messages=messages)
        await settled(lambda router=router: router.status().in_flight == 0)
        await asyncio.to_thread(router._store.refresh)
        said = {"role": "assistant", "content": answer.choices[0].message.content}
        messages += [said, {"role": "user", "content": f"and {turn}?"}]
    assert asked(provider) == ["large"] * 6
    await asyncio.to_thread(opened[0][2]._store.refresh)
    status = opened[0][2].status()
    assert (status.decided, status.charged) == (1, 6)


async def test_the_strategy_does_not_wait_on_the_event_loop_either(provider, settled, tmp_path):
    store, engine = store_at(tmp_path / "b.db")
    llms_ = llms()
    router = await asyncio.to_thread(knowing, store)
    strategy = await asyncio.to_thread(lambda: WiseRoutingStrategy(llms_, "wise", router=router, budget=HARD))
    strategy.install()
    await ask(llms_)
    await settled(lambda: router.status().charged == 1)
    assert engine.seen == []
    await asyncio.to_thread(store.close)


@pytest.mark.parametrize("near", [True, False])
async def test_calls_that_nothing_bounds_are_checked_off_the_event_loop(provider, workers, near):
    llms_, _, router, engine = await workers(near=near)
    await asyncio.to_thread(router.spend, 10.0)
    with pytest.raises(BudgetRefused, match="is used up"):
        await llms_.aembedding(model="wise", input=["a"])
    assert engine.seen == []


async def test_a_client_that_leaves_while_the_store_is_waited_for_holds_nothing_back(provider, workers, settled):
    llms_, _, router, engine = await workers(HARD)
    engine.open.clear()
    task = asyncio.create_task(ask(llms_))
    await asyncio.sleep(0.1)  # it waits for the engine now, or is about to
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    engine.open.set()
    await settled(lambda: router.status().in_flight == 0 and router.status().reserved_usd == 0.0)


async def test_two_workers_spend_one_hard_budget(provider, settled, workers):
    budget = Budget(20.5 * cost_usd("large"), 20, limit="hard")
    pair = [await workers(budget) for _ in range(2)]
    asked = [ask(llms_, max_tokens=50) for llms_, *_ in pair for _ in range(40)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    answered = sum(not isinstance(outcome, Exception) for outcome in outcomes)
    assert 15 <= answered < 80
    await settled(lambda: all(router.status().in_flight == 0 for _, _, router, _ in pair) or _refreshed(pair))
    spent = {round(router.status().spent_usd, 12) for _, _, router, _ in pair}
    assert len(spent) == 1
    assert spent.pop() <= budget.amount_usd


def _refreshed(pair):
    for _, _, router, _ in pair:
        router._store.refresh()
    return all(router.status().in_flight == 0 for _, _, router, _ in pair)


async def test_while_the_store_is_gone_an_expected_budget_lets_pass_and_a_hard_one_does_not(provider, workers):
    llms_, callback, _, engine = await workers(HARD)
    engine.down = True
    with pytest.raises(BudgetUncertain):
        await ask(llms_)
    with pytest.raises(StoreUnavailable):
        await callback.afeedback("any", 1.0)
    assert callback.groups["wise"].faults["store"] >= 1
    engine.down = False


async def test_a_program_names_the_scope_that_pays(provider, settled, workers):
    llms_, _, router, _ = await workers(RICH)
    await asyncio.to_thread(lambda: router.start(HARD, scope="team-a", parent="default"))
    await ask(llms_, metadata={"wiserouter_scope": "team-a"})
    await ask(llms_)
    await settled(lambda: router.status().in_flight == 0)
    assert router.status("team-a").windows[0].spent_usd == pytest.approx(cost_usd("large"))
    assert router.status().spent_usd == pytest.approx(2 * cost_usd("large"))
