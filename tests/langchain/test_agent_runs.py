"""Agents under the middleware: one model, one budget and one score for each run, with its tools and sub-agents."""

import asyncio
from typing import Annotated

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from support.agent_runs import MIXED, RATES, ledger_usd, model_of, routed, thread
from support.caching_chat import CachingChat
from support.chat_calls import City, weather
from support.chat_stub import StubChat
from wiserouter import Budget, Conversations
from wiserouter.errors import InvalidInput, RunBudgetExhausted, UnknownDecision
from wiserouter_langchain import RunnableWiseRouter, WiseRouterMiddleware

ASK = {"messages": [("human", "weather in 'Rome'?")]}
BARE = StubChat(model="never")


def agent_of(llm, tools=(weather,), unit=None, **options):
    middleware = WiseRouterMiddleware(llm, unit=unit, scope=options.pop("scope", None))
    return create_agent(BARE, [*tools], middleware=[middleware], **options)


def served(out):
    return [model_of(message) for message in out["messages"] if isinstance(message, AIMessage)]


def call(agent, way, asked=ASK, config=None):
    return agent.invoke(asked, config) if way == "invoke" else asyncio.run(agent.ainvoke(asked, config))


@pytest.mark.parametrize(("way", "calls"), [("invoke", 40), ("ainvoke", 7)])
def test_a_run_of_forty_calls_is_one_decision_with_one_model(way, calls):
    llm, providers = routed(MIXED, unit=None, steps=calls - 1)
    agent = agent_of(llm)
    runs = [call(agent, way, config={"recursion_limit": 200}) for _ in range(4)]
    models = [served(out) for out in runs]
    assert [len(each) for each in models] == [calls] * 4
    assert all(set(each) == {out["wise_model"]} for each, out in zip(models, runs, strict=True))
    status = llm.core.status()
    assert (status.decided, status.charged, llm.core.snapshot().committed_usd) == (4, 4 * calls, 0.0)
    assert status.spent_usd == pytest.approx(ledger_usd(providers), rel=1e-12)
    assert [llm.feedback(out["wise_run"], 1.0) for out in runs] == [1] * 4
    assert llm.core.estimates.labels.sum() == 104


def test_a_run_that_the_configuration_names_is_the_run_of_the_agent_and_goes_on_after_it():
    llm, _ = routed(unit=None)
    agent = agent_of(llm)
    named = {"configurable": {"wiserouter_run": "fix-1234"}}
    first, second = agent.invoke(ASK, named), agent.invoke(ASK, named)
    assert first["wise_run"] == second["wise_run"] == "fix-1234"
    assert llm.core.status().decided == 1
    assert llm.feedback(first["wise_run"], 1.0) == 1
    assert llm.core.snapshot().committed_usd > 0
    llm.end_run("fix-1234")
    assert llm.core.snapshot().committed_usd == 0


def test_with_the_unit_call_each_call_of_a_run_is_decided_alone():
    llm, _ = routed(MIXED, unit=None, steps=19)
    out = agent_of(llm, unit="call").invoke(ASK, {"recursion_limit": 200})
    assert set(served(out)) == {"small", "large"}
    assert llm.core.status().decided == 20


def test_each_invocation_is_a_run_of_its_own_also_in_one_thread():
    llm, _ = routed(unit=None)
    agent = agent_of(llm, checkpointer=InMemorySaver())
    first, second = (agent.invoke(ASK, thread("t")) for _ in range(2))
    assert first["wise_run"] != second["wise_run"]
    assert llm.core.status().decided == 2


def test_a_run_that_the_configuration_names_spans_invocations():
    llm, _ = routed()
    agent = agent_of(llm)
    for _ in range(3):
        agent.invoke(ASK, {"configurable": {"wiserouter_run": "task-7"}})
    assert llm.core.status().decided == 1
    assert llm.feedback("task-7", 1.0) == 1
    llm.end_run("task-7")


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_chat_of_twenty_turns_is_one_conversation(way):
    llm, providers = routed(Budget(0.4, horizon=20), unit="conversation")
    agent = agent_of(llm, checkpointer=InMemorySaver(), system_prompt="be brief " * 400)
    for turn in range(20):
        out = call(agent, way, {"messages": [("human", f"question {turn}?")]}, thread("chat"))
    assert llm.core.conversation("chat").calls == len(served(out)) == 20
    status = llm.core.status()
    assert status.spent_usd == pytest.approx(ledger_usd(providers), rel=1e-12)
    assert (status.decided, status.conversations.stays) == (20, 19)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_sub_agent_draws_on_the_budget_of_the_run_that_calls_it(way):
    llm, providers = routed(unit="run", steps=3, run_budget_usd=0.5)
    inner = agent_of(llm)

    @tool
    def research(location: str) -> str:
        """Ask another agent."""
        return inner.invoke({"messages": [("human", f"weather in '{location}'?")]})["messages"][-1].text

    agent = agent_of(llm, [research])
    out = call(agent, way, config=thread("t"))
    assert llm.core.status().decided == 4  # the run, and three of its sub-agents
    assert llm.core.status().charged == 4 + 3 * 4
    assert llm.core.status().spent_usd == pytest.approx(ledger_usd(providers), rel=1e-12)
    assert len(served(out)) == 4


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("n_at_once", [1, 2])
def test_sub_agents_that_hand_back_their_state_leave_the_run_of_their_agent_as_it_is(way, n_at_once, monkeypatch):
    llm, _ = routed(MIXED, unit="run", steps=3)
    inner, sub_agents = agent_of(llm), []

    @tool
    def research(location: str, tool_call_id: Annotated[str, InjectedToolCallId]):
        """Ask another agent, and hand back its state, as the sub-agents of deepagents do."""
        theirs = inner.invoke({"messages": [("human", f"weather in '{location}'?")]})
        sub_agents.append(theirs["wise_run"])
        return Command(update={**theirs, "messages": [ToolMessage("sunny", tool_call_id=tool_call_id)]})

    def several(*args):
        return [{**each, "id": f"{each['id']}-{k}"} for each in StubChat._calls(*args) for k in range(n_at_once)]

    monkeypatch.setattr(CachingChat, "_calls", several)
    out = call(agent_of(llm, [research]), way)
    assert out["wise_run"] not in sub_agents
    assert set(served(out)) == {out["wise_model"]}
    assert llm.core.status().decided == 1 + len(sub_agents)
    assert llm.core.snapshot().committed_usd == 0


def test_an_agent_that_waits_for_a_person_names_its_own_run_after_a_sub_agent_has_handed_back_its_state():
    llm, _ = routed(unit="run", steps=2)
    inner = agent_of(llm)

    @tool
    def research(location: str, tool_call_id: Annotated[str, InjectedToolCallId]):
        """Ask a person, then another agent, and hand back its state."""
        asked = interrupt(f"weather in '{location}'?")
        theirs = inner.invoke({"messages": [("human", asked)]})
        return Command(update={**theirs, "messages": [ToolMessage("sunny", tool_call_id=tool_call_id)]})

    agent = agent_of(llm, [research], checkpointer=InMemorySaver())
    waiting = agent.invoke(ASK, thread("t"))
    again = agent.invoke(Command(resume="is it 'Rome'?"), thread("t"))
    done = agent.invoke(Command(resume="is it 'Rome'?"), thread("t"))
    assert "__interrupt__" in again
    assert waiting["wise_run"] == again["wise_run"] == done["wise_run"]
    assert llm.core.snapshot().committed_usd == 0


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("gives", [lambda command: command, lambda command: [command]], ids=["command", "list"])
def test_an_agent_that_hands_over_to_another_one_of_its_graph_ends_its_run(way, gives):
    llm, _ = routed(unit="run", steps=1)

    @tool
    def hand_over(tool_call_id: Annotated[str, InjectedToolCallId]):
        """Hand over to the other agent, as in a swarm."""
        told = {"messages": [ToolMessage("over to you", tool_call_id=tool_call_id), HumanMessage("go on")]}
        return gives(Command(goto="second", graph=Command.PARENT, update=told))

    graph = StateGraph(MessagesState)
    graph.add_node("first", agent_of(llm, [hand_over]), destinations=("second",))
    graph.add_node("second", agent_of(llm))
    graph.add_edge(START, "first")
    call(graph.compile(), way)
    assert llm.core.status().decided == llm.core.status().conversations.ended == 2
    assert llm.core.snapshot().committed_usd == 0


def working_agent(llm, ask, **options):
    @tool
    def research(location: str) -> str:
        """Ask a model."""
        return ask()["messages"][-1].text

    return agent_of(llm, [research], **options)


def by_call(llm, config=None):
    return lambda: {"messages": [llm.invoke("hello", config)]}


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("by", ["a call", "an agent without a middleware"])
def test_what_a_tool_asks_the_router_is_asked_in_the_run_of_its_agent(way, by):
    llm, providers = routed(unit="run", steps=3, run_budget_usd=0.5)
    ask = by_call(llm) if by == "a call" else lambda: create_agent(llm, [weather]).invoke(ASK)
    call(working_agent(llm, ask), way, config=thread("t"))
    status = llm.core.status()
    assert (status.decided, status.charged) == (1, 4 + 3 * (1 if by == "a call" else 4))
    assert status.spent_usd == pytest.approx(ledger_usd(providers), rel=1e-12)
    assert llm.core.snapshot().committed_usd == 0
    llm.invoke("hello")
    assert llm.core.status().decided == 2  # after the tool a call is one of its own again


@pytest.mark.parametrize("by", ["configuration", "in_run"])
def test_a_call_in_a_tool_that_names_its_own_run_is_not_in_the_run_of_the_agent(by):
    llm, _ = routed(unit="run", steps=1)
    named = {"configurable": {"wiserouter_run": "own"}}
    working_agent(llm, by_call(llm, named) if by == "configuration" else by_call(llm.in_run("own"))).invoke(ASK)
    assert (llm.core.status().decided, llm.core.status().charged) == (2, 3)


def test_a_tool_that_asks_another_router_asks_in_no_run_of_the_agent():
    (llm, _), (other, _) = routed(unit="run", steps=1), routed(unit="run")
    working_agent(llm, by_call(other)).invoke(ASK)
    assert (llm.core.status().charged, other.core.status().charged) == (2, 1)
    assert other.core.snapshot().committed_usd > 0  # a run of its own, which no one has ended


def test_a_call_in_a_tool_is_paid_by_the_scope_that_pays_for_the_run():
    llm, _ = routed(scopes={"a": Budget(10.0, 100)}, steps=1)
    working_agent(llm, by_call(llm), scope=lambda runtime: "a").invoke(ASK)
    assert (llm.core.status("a").decided, llm.core.status("a").charged) == (1, 3)


def runaway(llm, sub_agents):
    if not sub_agents:
        return agent_of(llm)
    inner = agent_of(llm)

    @tool
    def research(location: str) -> str:
        """Ask another agent."""
        return inner.invoke(ASK, {"recursion_limit": 9_999})["messages"][-1].text

    return agent_of(llm, [research])


@pytest.mark.parametrize(("way", "sub_agents"), [("invoke", False), ("ainvoke", False), ("invoke", True)])
def test_a_runaway_run_ends_in_the_error_of_its_budget(way, sub_agents):
    llm, providers = routed(unit="run", steps=5 if sub_agents else 10_000, run_budget_usd=0.004)
    agent = runaway(llm, sub_agents)
    for n in (1, 2):
        with pytest.raises(RunBudgetExhausted, match=r"the run budget of 0\.004 USD"):
            call(agent, way, config={"recursion_limit": 9_999})
        assert ledger_usd(providers) <= n * 0.004
    assert llm.core.status().charged >= 6


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream"])
def test_an_agent_goes_on_while_one_provider_is_down_and_after_it(way):
    llm, providers = routed(unit="run", steps=5, rest_s=0.0)
    calls = []

    @tool
    def flaky(location: str) -> str:
        """Take the preferred provider down at the second call, and up again at the fourth."""
        calls.append(location)
        providers["large"].down = 2 <= len(calls) < 4
        return "done"

    agent = agent_of(llm, [flaky])
    if way == "stream":
        *_, out = agent.stream(ASK, stream_mode="values")
    else:
        out = call(agent, way)
    assert served(out) == ["large"] * 2 + ["small"] * 4
    status = llm.core.status()
    assert (status.decided, status.charged, status.presumed) == (1, 6, 1)
    assert status.spent_usd - status.presumed_usd == pytest.approx(ledger_usd(providers), rel=1e-12)


def test_a_run_that_is_interrupted_goes_on_as_the_same_run():
    llm, _ = routed(MIXED, steps=3)
    saver = InMemorySaver()
    agent = agent_of(llm, checkpointer=saver, interrupt_before=["tools"])
    out = agent.invoke(ASK, thread("t"))
    run = out["wise_run"]
    for _ in range(3):
        out = agent.invoke(None, thread("t"))
    assert out["wise_run"] == run
    assert len(served(out)) == 4
    assert set(served(out)) == {out["wise_model"]}
    assert llm.core.status().decided == 1


def test_a_run_goes_on_after_a_restart_that_forgot_it():
    saver = InMemorySaver()
    llm, _ = routed(steps=2)
    agent_of(llm, checkpointer=saver, interrupt_before=["tools"]).invoke(ASK, thread("t"))
    llm, _ = routed(steps=2)
    agent = agent_of(llm, checkpointer=saver)
    out = agent.invoke(None, thread("t"))
    assert len(served(out)) == 3
    assert (llm.core.status().decided, llm.core.status().charged) == (1, 2)


@pytest.mark.parametrize("by", ["runtime", "configuration"])
def test_a_run_is_paid_and_ended_in_its_scope(by):
    llm, _ = routed(scopes={"a": Budget(10.0, 100)}, steps=1)
    scope = (lambda runtime: "a") if by == "runtime" else None
    out = agent_of(llm, scope=scope).invoke(ASK, {"configurable": {"wiserouter_scope": "a"} if scope is None else {}})
    assert llm.core.status("a").decided == 1
    assert llm.core.snapshot("a").committed_usd == 0
    assert llm.paid_by("a").feedback(out["wise_run"], 1.0) == 1
    with pytest.raises(UnknownDecision):
        llm.feedback(out["wise_run"], 1.0)


def test_a_run_whose_scope_is_bound_ends_in_it_whatever_the_configuration_says():
    llm, _ = routed(scopes={"a": Budget(10.0, 100), "b": Budget(10.0, 100)}, steps=1)
    agent_of(llm.paid_by("a")).invoke(ASK, {"configurable": {"wiserouter_scope": "b"}})
    assert (llm.core.status("a").decided, llm.core.status("b").decided) == (1, 0)
    assert llm.core.snapshot("a").committed_usd == 0


def test_a_response_format():
    llm, _ = routed(steps=1)
    agent = create_agent(BARE, [], response_format=City, middleware=[WiseRouterMiddleware(llm)])
    out = agent.invoke({"messages": [("human", "a city like 'Rome'")]})
    assert out["structured_response"] == City(city="Rome")


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_fallback_is_called_where_it_is_listed_after_the_router_and_announced_where_it_is_not(way, is_first, caplog):
    llm, providers = routed()
    for provider in providers.values():
        provider.down = True
    chosen = [WiseRouterMiddleware(llm), ModelFallbackMiddleware(StubChat(model="backup"))]
    agent = create_agent(llm, [], middleware=chosen if is_first else chosen[::-1])
    if is_first:
        assert call(agent, way)["messages"][-1].text == StubChat().text
    else:
        with pytest.raises(Exception, match="down"):
            call(agent, way)
    assert ("names another model (StubChat)" in caplog.text) == (not is_first)


def test_an_agent_whose_requests_name_one_model_is_warned_of_none(caplog):
    llm, _ = routed(steps=2)
    agent_of(llm).invoke(ASK)
    assert "names another model" not in caplog.text


def test_the_unit_of_the_middleware():
    llm, _ = routed(unit=None)
    assert WiseRouterMiddleware(llm)._router.unit == "run"
    assert (llm.unit, llm.core.conversations) == ("call", Conversations("run"))
    with pytest.raises(InvalidInput, match="under one setting"):
        WiseRouterMiddleware(llm, unit="conversation")
    with pytest.raises(InvalidInput, match="unit must be one of"):
        WiseRouterMiddleware(llm, unit="day")
    with pytest.raises(InvalidInput, match="in_run needs unit='run', got unit='call'"):
        llm.in_run("a")
    assert llm.deciding_by("run").in_run("a").invoke("hello")
    assert WiseRouterMiddleware(routed(unit="conversation")[0])._router.unit == "conversation"


def test_a_preferred_model_that_is_too_expensive_is_not_taken():
    models = {
        name: StubChat(model=name, max_tokens=20, profile={"max_input_tokens": 1_000}) for name in ("small", "large")
    }
    poor = RunnableWiseRouter(models=models, prices=RATES, budget=Budget(3e-4, 100, limit="hard"))
    for _ in range(3):
        answer = poor.preferring("large").invoke("hello")
    assert model_of(answer) == "small"
