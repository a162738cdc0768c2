"""Graphs without the middleware, and random histories of runs: their budgets hold, and bills equal the ledger."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from support.agent_runs import MIXED, ledger_usd, model_of, routed, thread
from support.chat_calls import weather
from wiserouter import Budget
from wiserouter.errors import RunBudgetExhausted


def answers(out):
    return [model_of(message) for message in out["messages"] if isinstance(message, AIMessage)]


def graph(llm):
    """Return a graph whose only node calls the router without a configuration."""
    built = StateGraph(MessagesState)
    built.add_node("model", lambda state: {"messages": [llm.invoke(state["messages"])]})
    built.add_edge(START, "model")
    return built.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("checkpointed", [True, False])
def test_an_agent_without_the_middleware_is_known_by_its_thread_or_by_its_answers(checkpointed):
    llm, providers = routed(MIXED, steps=5)
    agent = create_agent(llm, [weather], checkpointer=InMemorySaver() if checkpointed else None)
    asked = {"messages": [("human", "weather in 'Rome'?")]}
    runs = [agent.invoke(asked, thread(f"t{i}") if checkpointed else None) for i in range(8)]
    models = [answers(out) for out in runs]
    assert all(len(each) == 6 and len(set(each)) == 1 for each in models)
    assert llm.core.status().decided == 8
    assert llm.core.status().spent_usd == pytest.approx(ledger_usd(providers), rel=1e-12)
    if checkpointed:
        assert {each[0] for each in models} == {"small", "large"}
        assert [llm.feedback(f"t{i}", 1.0) for i in range(8)] == [1] * 8


def test_the_turns_of_a_graph_are_one_conversation():
    llm, _ = routed(unit="conversation")
    chat = graph(llm)
    for turn in range(5):
        out = chat.invoke({"messages": [("human", f"question {turn}")]}, thread("t"))
    assert len(answers(out)) == 5
    assert llm.core.conversation("t").calls == 5
    assert llm.core.status().conversations.stays == 4


RUNS = [{"wiserouter_run": "a"}, {"wiserouter_run": "b"}, {"wiserouter_run": "c", "wiserouter_parent": "a"}]
EVENTS = st.lists(
    st.tuples(
        st.integers(0, len(RUNS) - 1),
        st.sampled_from(["invoke", "invoke", "stream", "leave", "small down", "large down", "up"]),
        st.integers(1, 40),
    ),
    max_size=40,
)


@given(EVENTS, st.sampled_from([0.004, 0.02, 0.1]))
@settings(max_examples=15, deadline=None)
def test_no_history_of_runs_exceeds_their_budgets(events, run_budget_usd):
    llm, providers = routed(Budget(10.0, 100), run_budget_usd=run_budget_usd, max_wait_s=0.0, rest_s=0.0)
    spent_usd = {"a": 0.0, "b": 0.0}
    for run, event, words in events:
        if event in {"small down", "large down", "up"}:
            for name, provider in providers.items():
                provider.down = event == f"{name} down"
            continue
        before_usd = ledger_usd(providers)
        config = {"configurable": RUNS[run]}
        with suppress(RunBudgetExhausted, RuntimeError):
            if event == "invoke":
                llm.invoke([HumanMessage("word " * words)] * 5, config)
            else:
                stream = llm.stream([HumanMessage("word " * words)] * 5, config)
                next(stream) if event == "leave" else list(stream)
                stream.close()
        spent_usd["b" if run == 1 else "a"] += ledger_usd(providers) - before_usd
    status = llm.core.status()
    assert max(spent_usd.values()) <= run_budget_usd
    assert status.in_flight == 0
    assert status.spent_usd >= ledger_usd(providers) * (1 - 1e-12)
    assert status.decided <= 3
    if not status.presumed:
        assert status.spent_usd == pytest.approx(ledger_usd(providers), rel=1e-12)
