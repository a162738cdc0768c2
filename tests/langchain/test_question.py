"""The text by which calls are routed, for LangChain's messages of every kind."""

import pytest
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)

from support.harness_shapes import SHAPES, TASK
from wiserouter_langchain.request import request_of

TOOL_CALLING = AIMessage("", tool_calls=[{"name": "ls", "args": {}, "id": "1"}])
OWN = {
    "agent": [SystemMessage("Be brief."), HumanMessage(TASK), TOOL_CALLING, ToolMessage("a.py", tool_call_id="1")],
    "agent after a confirmation": [HumanMessage(TASK), AIMessage("Shall I?"), HumanMessage("yes, please")],
    "blocks": [HumanMessage([{"type": "text", "text": TASK}, {"type": "image", "url": "http://127.0.0.1/a.png"}])],
    "standard blocks": [HumanMessage(content_blocks=[{"type": "text", "text": TASK}])],
    "text blocks": [HumanMessage([TASK])],
    "chat message": [ChatMessage(role="user", content=TASK), ChatMessage(role="assistant", content="Done.")],
    "react": [HumanMessage(TASK), AIMessage("Action: ls"), HumanMessage("Observation: a.py")],
    "react in one prompt": [HumanMessage(f"Question: {TASK}\nThought: look\nAction: ls\nObservation: a.py\nThought:")],
    "system alone": [SystemMessage(TASK)],
}


@pytest.mark.parametrize("messages", OWN.values(), ids=OWN)
def test_the_question_is_what_the_person_asks_for(messages):
    request = request_of(messages, {})
    assert (request.question, request.informative) == (TASK, True)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if not shape.items], ids=str)
def test_messages_of_other_programs_are_read_as_in_a_chat(shape):
    request = request_of(convert_to_messages(shape.messages), {})
    assert request.question == shape.question
    assert request.informative == (shape.question == TASK)


def test_all_text_is_billed_whatever_the_question_is():
    messages = [
        HumanMessage(TASK),
        AIMessage("Shall I?"),
        HumanMessage("<system-reminder>be brief</system-reminder>ok"),
    ]
    assert all(message.text in request_of(messages, {}).counted for message in messages)
