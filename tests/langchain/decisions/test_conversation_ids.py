"""Which ids of conversations a call states, and the turns of LangChain's messages."""

from uuid import uuid4

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    ChatMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    ToolMessage,
)

from wiserouter_langchain.decisions.conversation_ids import MOST_ANSWERS, stated_ids, turns_of
from wiserouter_langchain.decisions.routed_call import RECORD


def answered(id_, text="hi"):
    return AIMessage(text, response_metadata={RECORD: {"decision_id": id_}})


@pytest.mark.parametrize(
    "config",
    [
        {"configurable": {"thread_id": "t"}},
        {"metadata": {"thread_id": "t"}},
        {"metadata": {"session_id": "t"}},
        {"metadata": {"conversation_id": "t"}},
        {"configurable": {"wiserouter_run": "t", "thread_id": "u"}},
        {"configurable": {"thread_id": "t"}, "metadata": {"session_id": "u", "thread_id": "u"}},
    ],
)
def test_threads_and_runs(config):
    assert stated_ids(config, [], tracked="root").conversation == "t"


@pytest.mark.parametrize("config", [{}, {"configurable": None}, {"metadata": {"thread_id": None, "session_id": True}}])
def test_without_a_thread_the_tracked_run_counts(config):
    assert stated_ids(config, [], tracked="root").conversation == "root"
    assert stated_ids(config, []).conversation == ""


def test_a_thread_may_be_a_uuid_or_a_number():
    id_ = uuid4()
    found = [stated_ids({"configurable": {"thread_id": thread}}, []).conversation for thread in (id_, 7)]
    assert found == [str(id_), "7"]


def test_a_run_that_the_program_sets_comes_before_a_thread_and_after_a_run_that_the_configuration_names():
    thread, run = {"configurable": {"thread_id": "t"}}, {"metadata": {"wiserouter_run": "r"}}
    assert [stated_ids(config, [], "root", "set").conversation for config in (thread, run, {})] == ["set", "r", "set"]


def test_the_parent_of_a_run():
    assert stated_ids({"configurable": {"wiserouter_parent": "p"}}, []).parent == "p"
    assert stated_ids({"metadata": {"wiserouter_parent": "p"}}, []).parent == "p"


def test_a_sum_of_streamed_chunks_is_an_answer_like_any_other():
    chunk = AIMessageChunk("h") + AIMessageChunk("i", response_metadata={RECORD: {"decision_id": "d"}})
    assert stated_ids({}, [HumanMessage("a"), chunk]).answers == ["d"]
    assert turns_of([HumanMessageChunk("a"), chunk, ChatMessageChunk("x", role="critic")]) == turns_of(
        [HumanMessage("a"), AIMessage("hi"), ChatMessage("x", role="critic")]
    )


def test_the_decisions_behind_the_latest_answers():
    history = [HumanMessage("a"), *(answered(f"d{n}") for n in range(9)), AIMessage("by hand"), HumanMessage("b")]
    found = list(stated_ids({}, history).answers)
    assert found == ["d8", "d7", "d6", "d5"]
    assert len(found) == MOST_ANSWERS
    odd = [AIMessage("x", response_metadata={RECORD: value}) for value in ("text", {"decision_id": 7}, {})]
    assert stated_ids({}, odd).answers == []


def test_turns_of_messages():
    call = {"name": "ls", "args": {}, "id": "c1", "type": "tool_call"}
    messages = [
        SystemMessage("be brief"),
        HumanMessage("list"),
        AIMessage([{"type": "text", "text": "I look"}], tool_calls=[call]),
        ToolMessage("a.py", tool_call_id="c1"),
        ChatMessage("go on", role="user"),
    ]
    turns = turns_of(messages)
    assert [turn["role"] for turn in turns] == ["system", "human", "assistant", "tool", "user"]
    assert turns[2]["tool_calls"][0]["id"] == turns[3]["tool_call_id"] == "c1"
