"""The text by which calls are routed, for LangChain's messages of every kind."""

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)

from support.harness_shapes import SHAPES, TASK
from wiserouter import Budget, Estimates, Model, Offline, Price, WiseRouter
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.requests.request import request_of

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


DATA = "QUJD" * 100_000
MEDIA = {
    "of Anthropic": {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": DATA}},
    "of Google": {"type": "media", "mime_type": "application/pdf", "data": DATA},
    "of OpenAI": {"type": "input_file", "filename": "a.pdf", "file_data": DATA},
    "an image of OpenAI": {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
    "an image of Bedrock": {"image": {"format": "png", "source": {"bytes": DATA}}},
    "in the result of a tool": {
        "type": "tool_result",
        "tool_use_id": "1",
        "content": [{"type": "text", "text": "a plot"}, {"type": "image", "source": {"type": "base64", "data": DATA}}],
    },
    "not standard": {"type": "non_standard", "value": {"type": "document", "source": {"type": "url", "url": DATA}}},
}


@pytest.mark.parametrize("block", MEDIA.values(), ids=MEDIA)
def test_files_and_images_in_the_formats_of_providers_are_no_text(block):
    request = request_of([HumanMessage([{"type": "text", "text": TASK}, block])], {})
    assert request.media == ({"image"} if "image" in str(block) else {"pdf"})
    assert (DATA in request.counted, TASK in request.counted, request.countable) == (False, True, False)


def test_the_texts_of_documents_and_of_results_of_tools_are_counted():
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a story"}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "sunny"}, "and warm"]}
    request = request_of([HumanMessage([document, result])], {})
    assert all(text in request.counted for text in ("a story", "sunny", "and warm"))
    assert (request.media, request.countable) == (frozenset(), False)
    assert request_of([HumanMessage([result])], {}).countable


def router(**options):
    """Return a router of which half of the calls go to each model."""
    estimates = Estimates(1, 2)
    for _ in range(1_000):  # so that the cost of some calls changes nothing
        for k, reward in enumerate((0.2, 0.9)):
            estimates.add_cost(0, k, 1.0 + 2.0 * k)
            estimates.add_reward(0, k, reward)
    core = WiseRouter([Model("small"), Model("large")], estimates=estimates, policy=Offline(), seed=0)
    return RunnableWiseRouter(
        models={name: FakeListChatModel(responses=[name]) for name in ("small", "large")},
        router=core,
        prices={"small": Price(1e-7, 4e-7), "large": Price(3e-6, 1.5e-5)},
        budget=Budget(2.0 * 10_000, 10_000),
        **options,
    )


def test_calls_of_equal_questions_get_one_model():
    llm = router(draw_by="question")
    run = [[HumanMessage(TASK)], [HumanMessage(TASK), AIMessage("Shall I?"), HumanMessage("yes, please")]]
    assert len({llm.invoke(messages).content for messages in 10 * run}) == 1
    assert {llm.invoke(f"question {i}").content for i in range(30)} == {"small", "large"}


def test_each_call_draws_for_itself_by_default():
    llm = router()
    assert {llm.invoke(TASK).content for _ in range(30)} == {"small", "large"}


def test_calls_of_one_context_and_hour_get_one_model():
    llm = router(draw_by="context")
    assert len({llm.invoke(f"wording {i}").content for i in range(30)}) == 1
    keys = {
        request_of([HumanMessage("hi")], {}).draw_key("context", None, 0, lambda s=s: s) for s in (0.0, 9.0, 3_600.0)
    }
    assert len(keys) == 2
