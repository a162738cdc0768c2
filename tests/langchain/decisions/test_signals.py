"""Certain failures as scores: of answers, of tools, of parsers, of agents that end at the limit of their steps."""

from contextlib import nullcontext

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import BaseModel

from support.chat_stub import PRICES, StubChat, core
from wiserouter.errors import InvalidInput
from wiserouter_langchain import RunnableWiseRouter, WiseFeedbackHandler


class Scripted(StubChat):
    """Answers with a given message."""

    message: AIMessage = AIMessage("fine", response_metadata={"finish_reason": "stop"})

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        usage = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10}
        return ChatResult(
            generations=[ChatGeneration(message=self.message.model_copy(update={"usage_metadata": usage}))]
        )

    def _stream(self, *args, **kwargs):
        raise NotImplementedError


def scripted(message, signals=("all",)):
    models = {name: Scripted(model=f"stub-{name}", message=message) for name in ("small", "large")}
    return RunnableWiseRouter(models=models, router=core(), prices=PRICES, signals=list(signals))


def sources(llm):
    return [list(record.scores) for record, _ in llm.core._store._records.values()]


BROKEN = {"name": "f", "args": '{"a"', "id": "t1", "error": None, "type": "invalid_tool_call"}
FAILED = {
    "truncated": AIMessage("The", response_metadata={"finish_reason": "length"}),
    "content_filter": AIMessage("I", response_metadata={"finish_reason": "content_filter"}),
    "empty_answer": AIMessage("", response_metadata={"stop_reason": "end_turn"}),
    "invalid_tool_call": AIMessage("", invalid_tool_calls=[BROKEN]),
}


WHOLE = {
    "an image": AIMessage([{"type": "image", "base64": "x", "mime_type": "image/png"}]),
    "audio": AIMessage("", additional_kwargs={"audio": {"data": "x"}}),
    "a function": AIMessage("", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}}),
    "a tool without JSON": AIMessage([{"type": "custom_tool_call", "name": "f", "input": "x"}]),
    "a search that goes on": AIMessage([{"type": "server_tool_use", "name": "web_search", "input": {}, "id": "1"}]),
    "a refusal of Claude": AIMessage("", response_metadata={"stop_reason": "refusal"}),
}


@pytest.mark.parametrize("case", WHOLE)
def test_an_answer_of_other_parts_has_not_failed(case):
    llm = scripted(WHOLE[case])
    llm.invoke("a")
    assert sources(llm) == [[]]


@pytest.mark.parametrize("rule", FAILED)
def test_a_failed_answer_scores_0_by_its_rule(rule):
    llm = scripted(FAILED[rule])
    llm.invoke("a")
    assert sources(llm) == [[f"rule:{rule}"]]


def test_a_good_answer_and_rules_that_are_off_score_nothing():
    llm = scripted(AIMessage("fine", response_metadata={"finish_reason": "stop"}))
    llm.invoke("a")
    off = scripted(FAILED["truncated"], signals=())
    off.invoke("a")
    assert sources(llm) == sources(off) == [[]]


async def test_the_same_prompt_again_fails_the_former_answer():
    llm = scripted(AIMessage("fine"), ["regenerated"])
    await llm.ainvoke("a")
    await llm.ainvoke("b")
    await llm.ainvoke("a")
    assert sources(llm) == [["rule:regenerated"], [], []]


async def test_the_same_prompt_in_another_thread_fails_no_answer():
    llm = scripted(AIMessage("fine"), ["regenerated"])
    for thread in ("1", "2", "1"):
        await llm.ainvoke("a", {"configurable": {"thread_id": thread}})
    assert sources(llm) == [["rule:regenerated"], [], []]


def test_a_tool_that_failed_scores_the_answer_that_called_it():
    call = {"name": "f", "args": {}, "id": "t1", "type": "tool_call"}
    llm = scripted(AIMessage("", tool_calls=[call]), ["tool_error"])
    question = HumanMessage("a")
    answer = llm.invoke([question])
    llm.invoke([question, answer, ToolMessage("no such city", tool_call_id="t1", status="error")])
    assert sources(llm) == [["rule:tool_error"], []]


class Town(BaseModel):
    """A town."""

    name: int


WRONG = {"name": "Town", "args": {"name": "Rome"}, "id": "t1", "type": "tool_call"}
RIGHT = {"name": "Town", "args": {"name": 7}, "id": "t1", "type": "tool_call"}


@pytest.mark.parametrize("include_raw", [True, False])
@pytest.mark.parametrize(("calls", "fails"), [([WRONG], True), ([], True), ([RIGHT], False)])
def test_an_answer_that_does_not_parse_scores_0(include_raw, calls, fails):
    llm = scripted(AIMessage("a town", tool_calls=calls), ["schema_error"])
    raises = calls == [WRONG] and not include_raw
    with pytest.raises(Exception, match="valid integer") if raises else nullcontext():
        llm.with_structured_output(Town, include_raw=include_raw).invoke("where is 'Rome'?")
    assert sources(llm) == [["rule:schema_error"] if fails else []]


class GraphRecursionError(RecursionError):
    """LangGraph's error of the same name."""


def test_an_agent_at_the_limit_of_its_steps_scores_its_calls_0():
    from langchain_core.runnables import RunnableLambda

    llm = scripted(AIMessage("fine"), ["loop_exhausted"])

    def agent(question, config):
        llm.invoke(question, config)
        raise GraphRecursionError("limit of 25")

    handler = WiseFeedbackHandler(llm)
    with pytest.raises(GraphRecursionError):
        RunnableLambda(agent).invoke("a", {"callbacks": [handler]})
    assert sources(llm) == [["rule:loop_exhausted"]]


def test_an_unknown_rule_is_refused():
    with pytest.raises(InvalidInput, match="did you mean"):
        scripted(AIMessage("a"), ["truncate"])
