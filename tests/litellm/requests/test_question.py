"""The text by which requests of real programs are routed, on every surface."""

import pytest

from support.groups import asked, fitted, llms
from support.harness_shapes import SHAPES, TASK, assistant, user
from support.providers import cost_usd
from wiserouter import Budget
from wiserouter.errors import InvalidInput
from wiserouter_litellm import attach
from wiserouter_litellm.requests.request import request_of
from wiserouter_litellm.settings.proxy_settings import settings_of

MIXED = Budget((cost_usd("small") + cost_usd("large")) / 2 * 1_000, 1_000)
"""Half of the calls go to each model."""


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_question_is_what_the_person_asks_for(shape):
    request = request_of(None, {"input": shape.messages}) if shape.items else request_of(shape.messages, {})
    assert request.question == shape.question
    assert request.informative == (shape.question == TASK)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_text_is_billed_whatever_the_question_is(shape):
    counted = request_of(shape.messages, {}).counted
    for message in shape.messages:
        if isinstance(content := message.get("content"), str):
            assert content in counted


def test_a_conversation_of_nothing_but_noise_is_routed_by_its_last_text():
    request = request_of([user("<system-reminder>one</system-reminder>")], {})
    assert (request.question, request.informative) == ("<system-reminder>one</system-reminder>", False)


def models_of(provider, questions, **options):
    """Return the model that answered each question."""
    router = llms()
    attach(router, "wise", router=fitted(), budget=MIXED, **options)
    for question in questions:
        router.completion(model="wise", messages=[user("hello"), *question])
    return asked(provider)


def test_calls_of_equal_questions_get_one_model(provider):
    chat = [[user(TASK)], [user(TASK), user("ok, go on")], [user(f"{TASK.upper()} "), user("Observation: a.py")]]
    assert len(set(models_of(provider, 8 * chat, draw_by="question"))) == 1


def test_different_questions_draw_for_themselves(provider):
    assert len(set(models_of(provider, [[user(f"question {i}")] for i in range(24)], draw_by="question"))) == 2


@pytest.mark.parametrize("options", [{}, {"draw_by": "request"}])
def test_each_call_draws_for_itself_by_default(provider, options):
    assert len(set(models_of(provider, 24 * [[user(TASK)]], **options))) == 2


def test_callers_draw_for_themselves():
    keys = {request_of([user(TASK)], {}).draw_key("question", caller) for caller in (None, "key-1", "key-2")}
    assert len(keys) == 3
    assert request_of([user("ok")], {}).draw_key("question") is None
    assert request_of([user(TASK)], {}).draw_key("request") is None


def test_the_setting_is_checked():
    with pytest.raises(InvalidInput, match="draw_by must be one of request, question, context, got 'key'"):
        attach(llms(), "wise", budget=MIXED, draw_by="key")
    block = {"groups": {"wise": {"budget_usd": 1, "requests": 10, "draw_by": "question"}}}
    assert settings_of(block).groups["wise"].draw_by == "question"


@pytest.mark.parametrize("answer", ["Observation: file {}", "<returncode>0</returncode>\n<output>\n{}\n</output>"])
def test_all_calls_of_an_agents_run_have_the_question_of_its_task(answer):
    conversation, questions = [user(TASK)], []
    for i in range(40):
        questions.append(request_of(conversation, {}).question)
        conversation += [assistant(f"```bash\ncat file_{i}\n```"), user(answer.format(i))]
    assert set(questions) == {TASK}
    assert request_of([*conversation, user("Now write the tests")], {}).question == "Now write the tests"
