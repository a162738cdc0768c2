"""The text by which requests of real programs are routed, on every surface."""

import pytest

from support.harness_shapes import SHAPES, TASK, user
from wiserouter_litellm.request import request_of


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
