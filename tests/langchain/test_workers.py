"""Several workers and teams on one store: one budget, feedback for every worker, an event loop that never waits."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import chain

from support.chat_calls import settled, weather
from support.chat_stub import PRICES, StubChat, cost_usd
from support.off_loop import store_at
from wiserouter import Budget, Contexts, Estimates, Model, Offline, WiseRouter
from wiserouter.errors import BudgetExhausted, NotStarted, StoreUnavailable, UnknownDecision
from wiserouter_langchain import RunnableWiseRouter, WiseFeedbackHandler, WiseRouterMiddleware

PROMPT = ChatPromptTemplate.from_messages([("human", "{q}")])
RICH = Budget(10.0, 1_000)
HARD = Budget(10.0, 1_000, limit="hard")
CALL_USD = [cost_usd(name, 1 + 3, 11) for name in ("small", "large")]


def worker(store="memory://", budget=RICH, **fields):
    estimates = Estimates(1, 2)
    for k in range(2):
        for _ in range(50):
            estimates.add_cost(0, k, CALL_USD[k])
            estimates.add_reward(0, k, (0.1, 0.9)[k])
    models = [Model(name, max_cost_usd=0.01) for name in PRICES]
    router = WiseRouter(models, Contexts.single(), estimates=estimates, policy=Offline(), store=store, seed=0)
    stubs = {name: StubChat(model=f"stub-{name}", max_tokens=20) for name in PRICES}
    return RunnableWiseRouter(models=stubs, router=router, prices=PRICES, budget=budget, **fields)


@pytest.fixture
def pair(tmp_path):
    """Two workers on one file."""
    stores = [store_at(tmp_path / "b.db")[0] for _ in range(2)]
    yield [worker(store) for store in stores]
    for store in stores:
        store.close()


def labels(pair):
    """Return the labels that each worker knows after both have shared theirs."""
    for llm in [*pair, *pair]:
        llm.core._store.refresh()
    for llm in pair:
        llm.invoke("a decision takes in what the others have observed")
    return [llm.core.estimates.labels[0].tolist() for llm in pair]


def by_decision(one):
    return one.invoke("hello").response_metadata["wise_router"]["decision_id"]


def by_message(one):
    return one.invoke("hello")


def by_unmarked_message(one):
    answer = one.invoke("hello")
    return answer.model_copy(update={"response_metadata": {}})


def by_run(one):
    run_id = uuid4()
    one.invoke("hello", {"run_id": run_id})
    return run_id


def by_chain(one):
    run_id = uuid4()
    (PROMPT | one | StrOutputParser()).invoke({"q": "hello"}, {"run_id": run_id})
    return run_id


@pytest.mark.parametrize("target", [by_decision, by_message, by_unmarked_message, by_run, by_chain])
def test_feedback_reaches_every_worker_and_counts_once(pair, target):
    one, other = pair
    rated = target(one)
    assert other.feedback(rated, 0.5) == 1
    assert other.feedback(rated, 1.0) == 1
    assert one.feedback(rated, 0.0) == 1
    assert other.explain(rated).model == "large"
    assert labels(pair) == [[50.0, 51.0]] * 2
    assert one.core.estimates.reward[0, 1] == pytest.approx(other.core.estimates.reward[0, 1]) == pytest.approx(45.0)


def test_feedback_for_the_root_of_an_agent_reaches_every_worker(pair):
    one, other = pair
    root = uuid4()
    handler = WiseFeedbackHandler(one)
    create_agent(one, [weather]).invoke(
        {"messages": [("human", "weather in 'Rome'?")]}, {"callbacks": [handler], "run_id": root}
    )
    assert len(handler.decisions[root]) == 2
    assert other.feedback(root, 1.0) == 2
    assert WiseFeedbackHandler(other).feedback(root, 1.0) == 2
    assert labels(pair) == [[50.0, 52.0]] * 2


def test_other_workers_find_every_call_of_a_run_of_which_one_has_failed_over(pair, monkeypatch):
    one, other = pair
    run, down = uuid4(), [True]
    started, ended = Event(), Event()

    def answer(self, messages, **kwargs):
        if "slow" in messages[-1].text:
            started.set()
            assert ended.wait(10)
        elif down:
            down.pop()
            assert started.wait(10)  # the other call has its place in the run before this one fails
            raise ConnectionError("is down")
        return generate(self, messages, **kwargs)

    generate = StubChat._generate
    monkeypatch.setattr(StubChat, "_generate", answer)

    @chain
    def node(_, config):
        with ThreadPoolExecutor(2) as threads:
            quick = threads.submit(one.invoke, "quick", config)
            slow = threads.submit(one.invoke, "slow", config)
            quick.result(10)
            ended.set()
            slow.result(10)

    node.invoke("x", {"run_id": run})
    assert one.feedback(run, 1.0) == 2
    assert other.feedback(run, 1.0) == 2


def test_what_no_worker_knows_is_refused(pair):
    for step in (pair[0].explain, lambda run: pair[0].feedback(run, 1.0)):
        with pytest.raises(UnknownDecision):
            step(uuid4())


def test_the_workers_spend_one_budget(pair):
    for llm in pair:
        llm.invoke("hello")
    for llm in [*pair, *pair]:
        llm.core._store.refresh()
    one, other = (llm.core.status() for llm in pair)
    assert (one.charged, one.spent_usd) == (other.charged, other.spent_usd)
    assert (one.charged, one.spent_usd) == (2, pytest.approx(2 * CALL_USD[1]))


async def consume(stream, most=None):
    seen = 0
    async for _ in stream:
        seen += 1
        if seen == most:
            break


async def closed_early(llm):
    stream = llm.astream("hello")
    await anext(stream)
    await stream.aclose()


async def cancelled(llm):
    task = asyncio.create_task(consume(llm.astream("hello")))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def events(llm):
    await consume(await llm.astream_events("hello", version="v3"))


ASYNC_DOORS = {
    "ainvoke": lambda llm: llm.ainvoke("hello"),
    "long": lambda llm: llm.ainvoke("hello " * 2_000),
    "astream": lambda llm: consume(llm.astream("hello")),
    "closed early": closed_early,
    "cancelled": cancelled,
    "v3": events,
    "abatch": lambda llm: llm.abatch(["hello"] * 10),
}


@pytest.mark.parametrize("near", [True, False], ids=["file", "server"])
@pytest.mark.parametrize("budget", [RICH, HARD], ids=["expected", "hard"])
async def test_no_door_waits_for_the_store_on_the_event_loop(tmp_path, near, budget):
    store, engine = store_at(tmp_path / "b.db", near=near)
    llm = await asyncio.to_thread(worker, store, budget)
    await asyncio.to_thread(llm.core.start, budget, scope="team", parent="default")
    for door in ASYNC_DOORS.values():
        for payer in (llm, llm.paid_by("team")):
            await door(payer)
    answer = await llm.ainvoke("hello")
    assert await llm.afeedback(answer, 1.0) == 1
    assert (await llm.aexplain(answer)).state == "charged"
    await settled(llm, timeout_s=20)
    assert engine.seen == []
    status = llm.core.status()
    assert status.charged + status.presumed >= 2 * 15 + 1
    await asyncio.to_thread(store.close)


async def test_a_call_that_is_cancelled_while_it_waits_for_the_store_holds_nothing_back(tmp_path):
    store, engine = store_at(tmp_path / "b.db")
    llm = await asyncio.to_thread(worker, store, HARD)
    engine.open.clear()
    task = asyncio.create_task(llm.ainvoke("hello"))
    await asyncio.sleep(0.1)  # it waits for the engine, or is about to
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    engine.open.set()
    async with asyncio.timeout(5):
        while llm.core.status().released < 1:
            await asyncio.sleep(0.01)
    assert llm.core.status().reserved_usd == 0.0
    await asyncio.to_thread(store.close)


async def test_an_answer_arrives_though_the_store_is_gone(tmp_path, caplog):
    store, engine = store_at(tmp_path / "b.db", on_store_error="local")
    llm = await asyncio.to_thread(worker, store, RICH)
    await llm.ainvoke("leases are there")
    engine.down = True
    assert (await llm.ainvoke("hello")).text
    with pytest.raises(StoreUnavailable):
        await llm.afeedback(uuid4(), 1.0)
    engine.down = False
    await asyncio.sleep(1.1)  # the store is not asked again sooner
    await asyncio.to_thread(store.refresh)
    assert llm.core.status().charged == 2
    await asyncio.to_thread(store.close)


# teams


def monthly(amount_usd, requests):
    return Budget(amount_usd, requests, every="month", limit="hard")


TEAMS = {"team-a": monthly(0.003, 30), "team-b": monthly(0.01, 30)}


def spent(llm, scope):
    """Return the spending on a scope's own account."""
    return llm.core.status(scope).windows[0].spent_usd


@pytest.fixture(params=["memory", "file"])
def organisation(request, tmp_path):
    """An organisation of 0.008 USD with two teams."""
    store = "memory://" if request.param == "memory" else store_at(tmp_path / "b.db")[0]
    yield worker(store, monthly(0.008, 60), scopes=TEAMS)
    if request.param == "file":
        store.close()


def spend_all(llm, config=None):
    with pytest.raises(BudgetExhausted):
        for _ in range(500):
            llm.invoke("hello", config)


def test_a_team_cannot_spend_the_others_money_and_the_organisation_binds_both(organisation):
    llm = organisation
    spend_all(llm, {"configurable": {"wiserouter_scope": "team-a"}})
    assert 0.7 * 0.003 < spent(llm, "team-a") <= 0.003
    assert spent(llm, "team-b") == 0.0
    spend_all(llm, {"metadata": {"wiserouter_scope": "team-b"}})
    whole = llm.core.status().spent_usd
    assert whole == pytest.approx(spent(llm, "team-a") + spent(llm, "team-b"))
    assert 0.9 * 0.008 < whole <= 0.008  # the budget of the organisation is used up, that of team-b is not


def test_each_team_has_its_own_price_and_all_learn_together(organisation):
    llm = organisation
    llm.feedback(llm.paid_by("team-a").invoke("hello"), 1.0)
    assert llm.core.estimates.labels.sum() == 101
    rates = {scope: llm.core.status(scope).rate_usd for scope in TEAMS}
    assert rates["team-a"] < rates["team-b"]


def test_a_bound_scope_is_not_overruled_and_an_unknown_one_refused(organisation):
    bound = organisation.paid_by("team-a")
    bound.invoke("hello", {"configurable": {"wiserouter_scope": "team-b"}})
    assert (spent(organisation, "team-a") > 0, spent(organisation, "team-b")) == (True, 0.0)
    with pytest.raises(NotStarted, match="'team-c'"):
        organisation.invoke("hello", {"configurable": {"wiserouter_scope": "team-c"}})


@pytest.mark.parametrize(("unit", "decided"), [("run", 1), ("call", 2)])
def test_a_middleware_pays_by_the_runtime(organisation, unit, decided):
    def team(runtime):
        return runtime.context["team"]

    agent = create_agent(
        organisation,
        [weather],
        middleware=[WiseRouterMiddleware(organisation, unit=unit, scope=team)],
        context_schema=dict,
    )
    agent.invoke({"messages": [("human", "weather in 'Rome'?")]}, context={"team": "team-b"})
    assert (spent(organisation, "team-a"), spent(organisation, "team-b") > 0) == (0.0, True)
    assert organisation.core.status().decided == decided


def test_an_agent_pays_by_its_configuration(organisation):
    agent = create_agent(organisation, [weather])
    agent.invoke({"messages": [("human", "weather in 'Rome'?")]}, {"configurable": {"wiserouter_scope": "team-b"}})
    assert (spent(organisation, "team-a"), spent(organisation, "team-b") > 0) == (0.0, True)
