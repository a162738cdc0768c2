"""Runs: one model, one budget and one score for the calls of an agent, whichever way they name their run."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate

from support.agent_runs import MIXED, RATES, RUN_USD, estimates, fitted, ledger_usd, model_of, routed, thread
from support.chat_calls import DOORS, City, settled, weather
from support.chat_stub import PRICES, StubChat, core
from wiserouter import Budget, Contexts, Conversations, Estimates, Model, Offline, WiseRouter
from wiserouter.errors import InvalidInput, RunBudgetExhausted, UnknownDecision, UnknownPrice
from wiserouter_langchain import RunnableWiseRouter, track_decisions

ASK = "weather in 'Rome'?"
WAYS = ["thread_id", "wiserouter_run", "records", "chunks", "texts"]


def chat(llm, way, turns, name="chat-1"):
    """Return the models of the turns of one chat, which names itself in one of several ways."""
    history, models = [SystemMessage("be brief " * 200)], []
    for turn in range(turns):
        history.append(HumanMessage(f"question {turn} of {name}"))
        config = {"configurable": {way: name}} if way in WAYS[:2] else None
        answer = reduce(add, llm.stream(history, config)) if way == "chunks" else llm.invoke(history, config)
        models.append(model_of(answer))
        history.append(answer if way in ("records", "chunks") else AIMessage(answer.text))
    return models


@pytest.mark.parametrize("way", WAYS)
def test_a_run_keeps_its_model_whichever_way_it_is_named(way):
    llm, providers = routed(MIXED)
    runs = [chat(llm, way, 4, f"chat-{i}") for i in range(12)]
    assert all(len(set(models)) == 1 for models in runs)
    if way in WAYS[:2]:  # the ids of the others are drawn, and so may be their models
        assert {models[0] for models in runs} == {"small", "large"}
    status = llm.core.status()
    assert (status.decided, status.charged) == (12, 48)
    assert status.spent_usd == pytest.approx(ledger_usd(providers), rel=1e-12)


@pytest.mark.parametrize("door", DOORS)
def test_every_way_to_call_goes_on_with_the_run(door):
    llm, _ = routed(MIXED)
    names = [f"run-{i}" for i in range(8)]
    for name in names * 2:
        DOORS[door](llm, "hello", thread(name))
    kept = [llm.core.conversation(name) for name in names]
    assert [state.calls for state in kept] == [2] * 8
    assert {state.model for state in kept} == {"small", "large"}
    assert all(state.model == state.first_model for state in kept)


async def test_streams_of_version_3_go_on_with_the_run():
    llm, providers = routed()
    for _ in range(2):
        stream = await llm.astream_events("hello", thread("t"), version="v3")
        await stream.output
    await settled(llm)
    assert llm.core.conversation("t").calls == 2
    assert llm.core.status().spent_usd == pytest.approx(ledger_usd(providers), rel=1e-12)


def test_tools_and_schemas_go_on_with_the_run():
    llm, providers = routed(MIXED, steps=1)
    for name in (f"run-{i}" for i in range(6)):
        assert llm.bind_tools([weather]).invoke(ASK, thread(name)).tool_calls[0]["args"] == {"location": "Rome"}
        assert llm.with_structured_output(City).invoke("a city like 'Rome'", thread(name)) == City(city="Rome")
        state = llm.core.conversation(name)
        assert (state.calls, state.model) == (2, state.first_model)
    assert llm.core.status().spent_usd == pytest.approx(ledger_usd(providers), rel=1e-12)


def test_a_tracked_root_run_is_a_run():
    llm, _ = routed(MIXED)
    chain = ChatPromptTemplate.from_messages([("human", "{q}")]) | llm
    both = chain | (lambda answer: [answer, chain.invoke({"q": "and again?"})])
    with track_decisions(llm) as tracked:
        pairs = [both.invoke({"q": f"question {i}"}) for i in range(10)]
    assert all(model_of(first) == model_of(second) for first, second in pairs)
    assert llm.core.status().decided == 10
    assert [tracked.feedback(root, 1.0) for root in tracked.decisions] == [1] * 10


def test_runs_of_different_scopes_have_nothing_in_common():
    llm, _ = routed(scopes={"a": Budget(10.0, 100), "b": Budget(10.0, 100)})
    for scope in "ab":
        llm.paid_by(scope).invoke("hello", thread("t"))
    assert [llm.core.conversation("t", scope=scope).calls for scope in "ab"] == [1, 1]
    assert llm.core.conversation("t") is None
    assert llm.paid_by("a").feedback("t", 1.0) == 1
    with pytest.raises(UnknownDecision):
        llm.feedback("t", 1.0)


def test_a_turn_that_asks_nothing_stays_in_the_context_of_its_conversation():
    contexts = Contexts(np.eye(2), [0.5, 0.5])
    known = Estimates(2, 2)
    for j in range(2):
        known.add_table(np.full(9, j), np.tile((0.2, 0.9), (9, 1)), np.tile(RUN_USD, (9, 1)))
    models = [Model(name, price) for name, price in RATES.items()]
    router = WiseRouter(
        models,
        contexts,
        encoder=lambda texts: np.array([[1.0, 0.0] if "poem" in text else [0.0, 1.0] for text in texts]),
        estimates=known,
        policy=Offline(),
    )
    router.start(Budget(100.0, 100))
    llm, _ = routed(unit="conversation", router=router)
    contexts_of = [
        llm.invoke(text, thread(name)).response_metadata["wise_router"]["context"]
        for name, text in [("a", "write a poem"), ("a", "yes, go on"), ("b", "yes, go on"), ("c", "sort a list")]
    ]
    assert contexts_of == [0, 0, 1, 1]


# failures


def test_a_run_whose_model_fails_goes_on_with_another_and_stays_there():
    llm, providers = routed(rest_s=0.0)
    models = chat(llm, "thread_id", 3)
    providers["large"].down = True
    models += chat(llm, "thread_id", 3)
    providers["large"].down = False
    models += chat(llm, "thread_id", 3)
    assert models == ["large"] * 3 + ["small"] * 6
    status = llm.core.status()
    assert (status.decided, status.charged, status.presumed) == (1, 9, 1)


@pytest.mark.parametrize("door", DOORS)
def test_every_call_is_answered_while_one_provider_is_down(door):
    llm, providers = routed(MIXED, rest_s=0.0)
    for down in ("large", "small", ""):
        for name in providers:
            providers[name].down = name == down
        for i in range(6):
            assert DOORS[door](llm, "hello", thread(f"run-{i}"))
    status = llm.core.status()
    assert (status.decided, status.in_flight) == (6, 0)
    assert status.spent_usd - status.presumed_usd == pytest.approx(ledger_usd(providers), rel=1e-12)


def test_a_stream_that_is_left_keeps_the_model_of_its_run():
    llm, _ = routed()
    stream = llm.stream("hello", thread("t"))
    next(stream)
    stream.close()
    assert llm.core.conversation("t").failed_model == ""
    assert model_of(llm.invoke("hello", thread("t"))) == "large"


def test_a_forced_model_takes_a_call_of_a_run():
    llm, _ = routed()
    llm.invoke("hello", thread("t"))
    forced = {"configurable": {"thread_id": "t", "wise_model": "small"}}
    assert model_of(llm.invoke("hello", forced)) == "small"
    assert llm.core.status().decided == 1


def test_after_a_restart_in_memory_a_run_is_decided_again():
    llm, _ = routed()
    history = [HumanMessage("one")]
    history += [llm.invoke(history, thread("t")), HumanMessage("two")]
    llm, _ = routed()
    assert model_of(llm.invoke(history, thread("t"))) == "large"
    assert model_of(llm.invoke(history)) == "large"  # the decision in its history is unknown here
    assert llm.core.status().decided == 2


# the budget of a run


@pytest.mark.parametrize("limit", ["hard", "expected"])
def test_a_runaway_run_ends_in_a_clear_error_and_others_go_on(limit):
    llm, providers = routed(run_budget_usd=0.2, run_limit=limit)
    with pytest.raises(RunBudgetExhausted, match=r"the run budget of 0\.2 USD .* raise run_budget_usd"):
        for turn in range(1_000):
            llm.invoke([HumanMessage("word " * 400)] * (turn + 1), thread("t"))
    spent_usd = llm.core.conversation("t").spent_usd
    assert 0.05 < spent_usd <= 0.2
    assert spent_usd == pytest.approx(ledger_usd(providers), rel=1e-12)
    assert llm.invoke("hello", thread("another"))


def test_a_run_draws_on_the_budget_of_the_run_that_it_works_for():
    llm, providers = routed(run_budget_usd=0.2)
    served = 0
    with pytest.raises(RunBudgetExhausted):
        for i in range(1_000):
            named = {"wiserouter_run": f"part-{i}", "wiserouter_parent": "whole"} if i % 2 else {"thread_id": "whole"}
            llm.invoke([HumanMessage("word " * 400)] * 3, {"configurable": named})
            served += 1
    assert served > 3
    assert ledger_usd(providers) <= 0.2


def test_concurrent_calls_of_a_run_cannot_all_take_the_rest():
    llm, providers = routed(run_budget_usd=0.012, max_wait_s=0.0)

    def call(_):
        try:
            return llm.invoke([HumanMessage("word " * 400)] * 3, thread("t"))
        except RunBudgetExhausted:
            return None

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(call, range(60)))
    assert 0 < sum(answer is not None for answer in answers) < 60
    assert ledger_usd(providers) <= 0.012
    assert llm.core.conversation("t").spent_usd == pytest.approx(ledger_usd(providers), rel=1e-12)


def test_a_hard_run_budget_needs_a_bound_on_each_call():
    models = {name: StubChat(model=name) for name in PRICES}
    with pytest.raises(UnknownPrice, match="bound on the cost"):
        RunnableWiseRouter(models=models, router=core(), prices=PRICES, unit="run", run_budget_usd=0.5)
    llm = RunnableWiseRouter(
        models=models, router=core(), prices=PRICES, unit="run", run_budget_usd=0.5, run_limit="expected"
    )
    assert llm.core.conversations == Conversations("run", run_budget_usd=0.5, run_limit="expected")


# feedback and ends


def test_feedback_by_thread_run_message_and_any_call():
    llm, _ = routed()
    run_id = uuid4()
    answers = [llm.invoke("hello", {**thread("t"), "run_id": run_id if i else None}) for i in range(3)]
    for target in ("t", answers[0], answers[2], run_id, answers[1].response_metadata["wise_router"]["decision_id"]):
        assert llm.feedback(target, 0.5) == 1
    assert asyncio.run(llm.afeedback("t", 1.0, comment="good")) == 1
    assert llm.core.estimates.labels.sum() == 101


def test_a_run_that_has_ended_takes_a_score_and_its_rest_is_free():
    llm, _ = routed()
    llm.invoke("hello", thread("t"))
    assert llm.core.snapshot().committed_usd > 0
    llm.end_run("t")
    asyncio.run(llm.aend_run("t"))
    assert llm.core.snapshot().committed_usd == 0
    assert llm.feedback("t", 1.0) == 1
    llm.invoke("hello", thread("t"))
    assert llm.core.status().decided == 2


@pytest.mark.parametrize("unit", ["call", "conversation", "run"])
def test_a_target_that_is_unknown_is_refused(unit):
    llm, _ = routed(unit=unit)
    text = (llm | StrOutputParser()).invoke("hello")
    for target in (text, 10 * text, "thread-1", uuid4(), AIMessage("x")):
        with pytest.raises(UnknownDecision, match="pass the answer as a message") as refused:
            llm.feedback(target, 1.0)
        assert len(str(refused.value)) < 250
    with pytest.raises(UnknownDecision):
        asyncio.run(llm.afeedback("thread-1", 1.0))


# settings


def test_the_unit_is_that_of_the_router_unless_it_is_given():
    kept = Conversations("run", ttl_s=60.0)
    assert routed(unit=None, router=fitted(conversations=kept))[0].unit == "run"
    assert routed(unit=None)[0].unit == "call"
    assert routed(unit="run", router=fitted(conversations=kept))[0].core.conversations == kept
    llm, _ = routed(unit="call", router=fitted(conversations=kept))
    chat(llm, "thread_id", 3)
    assert (llm.unit, llm.core.status().decided) == ("call", 3)
    assert "wiserouter_run" in [spec.id for spec in routed()[0].config_specs]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"unit": "call", "run_budget_usd": 1.0}, "run_budget_usd needs unit='run', got unit='call'"),
        ({"unit": None, "conversation_ttl_s": 1.0}, "ttl_s needs unit='run' or unit='conversation'"),
        ({"unit": "conversation", "run_budget_usd": 1.0}, "run_budget_usd needs unit='run'"),
        ({"unit": "run", "run_budget_usd": -1.0}, "run_budget_usd must be"),
        ({"unit": "run", "router": fitted(conversations=Conversations())}, "under one setting"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(fields, message):
    with pytest.raises(InvalidInput, match=message):
        routed(**fields)


@given(st.lists(st.tuples(st.text(max_size=20), st.integers(0, 3)), min_size=1, max_size=25), st.integers(0, 9))
@settings(max_examples=15, deadline=None)
def test_with_the_unit_call_each_call_is_decided_as_if_there_were_no_conversations(calls, seed):
    llm = RunnableWiseRouter(
        models={name: StubChat(model=name) for name in PRICES},
        router=plain(seed),
        prices=PRICES,
        unit="call",
    )
    alone = plain(seed)
    for text, name in calls:
        answer = llm.invoke(text, thread(f"thread {name}"))
        decision = alone.decide(context=0, eligible=list(PRICES))
        alone.charge(decision, cost_usd=billed_usd(answer))
        assert model_of(answer) == decision.model
    assert llm.core.status().spent_usd == pytest.approx(alone.status().spent_usd)


def billed_usd(answer):
    usage, price = answer.usage_metadata, PRICES[model_of(answer)]
    return usage["input_tokens"] * price.input + usage["output_tokens"] * price.output


def plain(seed):
    router = WiseRouter(
        [Model(name, price) for name, price in PRICES.items()],
        policy=Offline(),
        estimates=estimates(cost_usd=(1e-5, 1e-3)),
        seed=seed,
    )
    router.start(Budget(0.05, horizon=100))
    return router
