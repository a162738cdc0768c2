"""Agents: the router as their model, the middleware, a hard budget that ends a runaway loop, feedback by root run."""

import asyncio
import json
import warnings
from contextlib import closing
from types import SimpleNamespace
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_core.tracers.context import collect_runs

from support.chat_calls import City, weather
from support.chat_stub import PRICES, StubChat, cost_usd, routed
from wiserouter import Budget
from wiserouter.errors import BudgetExhausted, InvalidInput, UnknownDecision
from wiserouter_langchain import (
    RunnableWiseRouter,
    WiseFeedbackHandler,
    pull_langsmith,
    track_decisions,
)

ASK = {"messages": [("human", "weather in 'Rome'?")]}
CHAIN = ChatPromptTemplate.from_messages([("human", "{q}")])


@tool
def stocks(location: str) -> str:
    """Report the stocks."""
    return "up"


def served(out):
    return [m.response_metadata["wise_router"]["model"] for m in out["messages"] if isinstance(m, AIMessage)]


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream"])
def test_the_router_is_an_agents_model(way):
    llm = routed()
    agent = create_agent(llm, [weather])
    if way == "stream":
        tokens = [token for token, _ in agent.stream(ASK, stream_mode="messages") if token.text]
        assert len(tokens) >= len(StubChat().text.split())
    else:
        out = agent.invoke(ASK) if way == "invoke" else asyncio.run(agent.ainvoke(ASK))
        assert served(out) == ["large", "large"]
    assert llm.core.status().charged == 2
    assert llm.core.status().spent_usd > cost_usd("large", 3, 5)


def test_an_agent_with_a_response_format():
    llm = routed()
    out = create_agent(llm, [], response_format=City).invoke({"messages": [("human", "a city like 'Rome'")]})
    assert out["structured_response"] == City(city="Rome")


def test_the_prebuilt_react_agent():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langgraph.prebuilt import create_react_agent

        llm = routed()
        out = create_react_agent(llm, [weather]).invoke(ASK)
        assert [message.type for message in out["messages"]] == ["human", "ai", "tool", "ai"]
        structured = create_react_agent(llm, [weather], response_format=City).invoke(ASK)
    assert structured["structured_response"] == City(city="Rome")
    assert llm.core.status().in_flight == 0


@pytest.mark.filterwarnings("ignore")
def test_the_prebuilt_react_agent_keeps_tools_that_were_bound_with_their_settings():
    from langgraph.prebuilt import create_react_agent

    heard = []

    class Hears(StubChat):
        def _answer(self, messages, **kw):
            heard.append((len(kw["tools"]), kw.get("parallel_tool_calls")))
            return super()._answer(messages, **kw)

    llm = routed(models={name: Hears(model=f"stub-{name}") for name in ("small", "large")})
    bound = llm.bind_tools([weather], parallel_tool_calls=False)
    out = create_react_agent(bound, [weather]).invoke(ASK)
    assert [message.type for message in out["messages"]] == ["human", "ai", "tool", "ai"]
    assert heard == [(1, False), (1, False)]
    with pytest.raises(ValueError, match="must match"):
        create_react_agent(bound, [weather, stocks])
    assert bound.bind(tools=[]).invoke("hello").text
    assert heard[-1] == (0, False)


def test_the_router_in_other_middleware():
    llm = routed()
    chooser = LLMToolSelectorMiddleware(model=llm, max_tools=1)
    limit = ModelCallLimitMiddleware(run_limit=5)
    out = create_agent(llm, [weather, stocks], middleware=[chooser, limit]).invoke(ASK)
    assert isinstance(out["messages"][-1], AIMessage)
    assert llm.core.status().charged == 2  # it chose the tools, and answered
    assert llm.core.status().in_flight == 0


def test_the_router_summarizes():
    llm = routed()
    summary = SummarizationMiddleware(model=llm, trigger=("messages", 4), keep=("messages", 1))
    history = [("human", "one"), ("ai", "two"), ("human", "three"), ("ai", "four"), ("human", "five")]
    out = create_agent(llm, [], middleware=[summary]).invoke({"messages": history})
    assert StubChat().text in out["messages"][0].text  # the summary takes the place of the history
    assert len(out["messages"]) < len(history)
    assert llm.core.status().charged == 2


def test_a_failing_router_in_the_fallback_middleware():
    llm = routed(models={"small": StubChat(fail=True), "large": StubChat(fail=True)})
    agent = create_agent(llm, [weather], middleware=[ModelFallbackMiddleware(StubChat(model="rescue"))])
    assert agent.invoke(ASK)["messages"][-1].response_metadata["model_name"] == "rescue"
    assert (llm.core.status().presumed, llm.core.status().in_flight) == (4, 0)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_hard_budget_stops_a_runaway_loop_with_an_error_that_gives_the_figures(way):
    models = {
        name: StubChat(model=name, calls_forever=True, max_tokens=20, profile={"max_input_tokens": 10_000})
        for name in ("small", "large")
    }
    llm = RunnableWiseRouter(models=models, prices=PRICES, budget=Budget(0.02, 10_000, limit="hard"))
    agent = create_agent(llm, [weather])
    with pytest.raises(BudgetExhausted, match=r"the budget of 0\.02 USD does not pay for the worst") as stopped:
        agent.invoke(ASK, {"recursion_limit": 9_999}) if way == "invoke" else asyncio.run(
            agent.ainvoke(ASK, {"recursion_limit": 9_999})
        )
    status = llm.core.status()
    assert status.spent_usd <= 0.02
    assert stopped.value.spent_usd == pytest.approx(status.spent_usd)
    assert status.charged > 5


# feedback


def labels(llm):
    return llm.core.estimates.labels.sum() - 100


def test_feedback_by_message_decision_and_run():
    llm = routed()
    run_id = uuid4()
    answer = llm.invoke("hello", {"run_id": run_id})
    record = answer.response_metadata["wise_router"]
    bare = AIMessage("x", id=answer.id)
    for target in (answer, record["decision_id"], run_id, str(run_id), bare):
        assert llm.feedback(target, 0.5) == 1
    assert labels(llm) == 1  # one decision, rated again
    assert asyncio.run(llm.afeedback(answer, 1.0, key="judge", comment="good")) == 1
    for unknown in ("unknown", uuid4(), AIMessage("x")):
        with pytest.raises(UnknownDecision, match="is unknown or has expired: pass the answer as a message"):
            llm.feedback(unknown, 0.5)
    with pytest.raises(InvalidInput, match="reward must lie in"):
        llm.feedback(answer, 1.5)


@pytest.mark.parametrize("way", ["feedback", "afeedback", "handler"])
def test_the_comment_of_a_score_is_in_the_journal(way, tmp_path):
    llm, run_id = routed(), uuid4()
    handler = WiseFeedbackHandler(llm)
    with closing(llm.core.journal_to(tmp_path / "decisions.jsonl")) as journal:
        answer = llm.invoke("hello", {"run_id": run_id, "callbacks": [handler]})
        if way == "feedback":
            llm.feedback(answer, 0.5, comment="too long")
        elif way == "afeedback":
            asyncio.run(llm.afeedback(answer, 0.5, comment="too long"))
        else:
            handler.feedback(run_id, 0.5, comment="too long")
        llm.feedback(answer, 1.0)
        assert journal.flush()
    events = map(json.loads, (tmp_path / "decisions.jsonl").read_text().splitlines())
    scores = [(event["reward"], event.get("comment")) for event in events if event["event"] == "reward"]
    assert scores == [(0.5, "too long"), (1.0, None)]


def test_feedback_by_the_chain_above():
    llm = routed()
    run_id = uuid4()
    (CHAIN | llm | StrOutputParser()).invoke({"q": "hello"}, {"run_id": run_id})
    assert llm.feedback(run_id, 1.0) == 1
    with collect_runs() as runs:
        (CHAIN | llm).invoke({"q": "hello"})
    assert llm.feedback(runs.traced_runs[0].id, 1.0) == 1


async def test_feedback_by_the_message_of_a_version_3_stream():
    llm = routed()
    stream = await llm.astream_events("hello", version="v3")
    message = await stream.output
    assert llm.feedback(message, 1.0) == 1


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream"])
def test_feedback_by_the_root_run_of_an_agent(way):
    llm = routed()
    handler, run_id = WiseFeedbackHandler(llm), uuid4()
    config = {"callbacks": [handler], "run_id": run_id}
    agent = create_agent(llm, [weather])
    if way == "invoke":
        agent.invoke(ASK, config)
    elif way == "ainvoke":
        asyncio.run(agent.ainvoke(ASK, config))
    else:
        list(agent.stream(ASK, config))
    assert llm.feedback(run_id, 1.0) == 2
    assert handler.feedback(run_id, 1.0) == 2
    assert labels(llm) == 2
    with pytest.raises(UnknownDecision):
        handler.feedback(uuid4(), 1.0)


def test_decisions_are_tracked_without_a_callback():
    llm = routed()
    with track_decisions(llm) as tracked:
        create_agent(llm, [weather]).invoke(ASK)
        CHAIN.pipe(llm).batch([{"q": "a"}, {"q": "b"}, {"q": "c"}])
    llm.invoke("outside")
    assert len(tracked.decisions) == 4
    assert sum(tracked.feedback(root, 1.0) for root in tracked.decisions) == 5


def test_langsmith_feedback_is_pulled():
    llm = routed()
    handler, run_id = WiseFeedbackHandler(llm), uuid4()
    create_agent(llm, [weather]).invoke(ASK, {"callbacks": [handler], "run_id": run_id})
    asked = []

    class Client:
        def list_feedback(self, *, run_ids, feedback_key):
            asked.append((list(run_ids), feedback_key))
            yield SimpleNamespace(run_id=run_id, score=1.0, comment="fine")
            yield SimpleNamespace(run_id=run_id, score=None, comment=None)
            yield SimpleNamespace(run_id=run_id, score=7, comment=None)

    assert pull_langsmith(Client(), handler) == 2
    assert asked == [([run_id], ["user_score"])]
    assert pull_langsmith(Client(), WiseFeedbackHandler(llm)) == 0


def test_langsmith_is_asked_for_a_hundred_runs_at_a_time():
    llm = routed()
    runs = [uuid4() for _ in range(250)]
    asked = []

    class Client:
        def list_feedback(self, *, run_ids, feedback_key):
            asked.append(run_ids)
            return []

    assert pull_langsmith(Client(), WiseFeedbackHandler(llm), run_ids=runs) == 0
    assert [len(page) for page in asked] == [100, 100, 50]
    assert [run for page in asked for run in page] == runs


def test_feedback_on_what_is_no_run_of_langchain_is_refused():
    with pytest.raises(UnknownDecision, match="fix-1234"):
        WiseFeedbackHandler(routed()).feedback("fix-1234", 1.0)


def test_memory_of_runs_is_bounded():
    llm = routed(history_size=5)
    handler = WiseFeedbackHandler(llm, max_runs=5)
    for _ in range(30):
        (CHAIN | llm).invoke({"q": "x"}, {"callbacks": [handler]})
    assert len(llm._environment.index) == 5
    assert len(llm._environment.index._by_run) <= 15
    assert len(handler.decisions) <= 5
    assert len(handler._roots) <= 5


def test_feedback_for_a_call_that_failed_counts_for_nothing():
    llm = routed(models={"small": StubChat(fail=True), "large": StubChat(fail=True)})
    run_id = uuid4()
    with pytest.raises(RuntimeError):
        llm.invoke("x", {"run_id": run_id})
    with pytest.raises(UnknownDecision):
        llm.feedback(run_id, 1.0)
