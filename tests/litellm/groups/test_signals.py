"""Certain failures of answers as scores, through a real `litellm.Router`."""

import httpx
import litellm
import pytest
import respx

from support.groups import HI, RICH, fitted, llms
from support.providers import URL, answer, chat
from wiserouter_litellm import attach
from wiserouter_litellm.errors import SettingsError
from wiserouter_litellm.groups.signals import answers_of
from wiserouter_litellm.settings.proxy_settings import settings_of

TOOL = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a"'}}
USED = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def scores(router):
    return [record.scores for record, _ in router._store._records.values()]


def answering(reply):
    mock = respx.mock(assert_all_called=False)
    mock.route(url__startswith=URL).respond(json=reply)
    return mock


def replied(reason="stop", **message):
    body = chat("large", **message)
    body["choices"][0]["finish_reason"] = reason
    return body


FAILED = {
    "truncated": (replied("length"), {}),
    "content_filter": (replied("content_filter"), {}),
    "invalid_tool_call": (replied("tool_calls", tool_calls=[TOOL], content=None), {}),
    "schema_error": (replied(content="no json"), {"response_format": {"type": "json_object"}}),
}


@pytest.mark.parametrize("redacts", [False, True])
@pytest.mark.parametrize("rule", FAILED)
async def test_a_failed_answer_scores_0_by_its_rule(settled, monkeypatch, rule, redacts):
    monkeypatch.setattr(litellm, "turn_off_message_logging", redacts)
    reply, asked = FAILED[rule]
    router = fitted()
    with answering(reply):
        callback = attach(llms(), "wise", router=router, budget=RICH, signals=["all"])
        await callback._router.acompletion(model="wise", messages=HI, **asked)
        await settled(lambda: router.status().charged == 1)
    ((source, score),) = scores(router)[0].items()
    assert (source, score.reward) == (f"rule:{rule}", 0.0)


@pytest.mark.parametrize(
    ("reply", "asked"),
    [
        (replied(content='{"a": 1}'), {"response_format": {"type": "json_object"}}),
        (replied("tool_calls", tool_calls=[USED], content=None), {}),
    ],
    ids=["format", "tool"],
)
async def test_an_answer_that_litellm_has_redacted_is_not_taken_for_a_failed_one(settled, monkeypatch, reply, asked):
    monkeypatch.setattr(litellm, "turn_off_message_logging", True)
    router = fitted()
    with answering(reply):
        callback = attach(llms(), "wise", router=router, budget=RICH, signals=["all"])
        await callback._router.acompletion(model="wise", messages=HI, **asked)
        await settled(lambda: router.status().charged == 1)
    assert scores(router) == [{}]
    assert callback.groups["wise"].faults == {}


@pytest.mark.parametrize("arguments", ["{}", "redacted-by-litellm"])
def test_of_what_litellm_has_redacted_nothing_is_checked(arguments):
    called = {**USED, "function": {"name": "f", "arguments": arguments}}
    message = {"content": "redacted-by-litellm", "tool_calls": [called]}
    choices = [{"finish_reason": "stop", "message": message}]
    (answer,) = answers_of({"choices": choices}, {"type": "json_object"})
    assert answer.failures() == ()


async def test_a_good_answer_and_rules_that_are_off_score_nothing(provider, settled):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH, signals=["all"])
    await callback._router.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status().charged == 1)
    assert scores(router) == [{}]
    assert callback.groups["wise"].faults["signals"] == 0


async def test_the_same_prompt_again_fails_the_former_answer(provider, settled):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH, signals=["regenerated"])
    for i in range(2):
        await callback._router.acompletion(model="wise", messages=HI)
        await settled(lambda i=i: router.status().charged == i + 1)
    assert [list(one) for one in scores(router)] == [["rule:regenerated"], []]


@pytest.mark.parametrize(
    "others",
    [
        [{"user": "ann"}, {"user": "bob"}],
        [{"metadata": {"session_id": "chat-1"}}, {"metadata": {"session_id": "chat-2"}}],
        [{"metadata": {"user_api_key_end_user_id": "ann"}}, {"metadata": {"user_api_key_end_user_id": "bob"}}],
    ],
)
async def test_the_same_prompt_of_another_user_or_session_of_one_key_fails_none(provider, settled, others):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH, signals=["regenerated"])
    for i, asked in enumerate([*others, others[0]]):
        await callback._router.acompletion(model="wise", messages=HI, **asked)
        await settled(lambda i=i: router.status().charged == i + 1)
    assert [list(one) for one in scores(router)] == [["rule:regenerated"], [], []]


async def test_a_tool_that_failed_scores_the_answer_that_called_it(settled):
    router = fitted()
    called = httpx.Response(200, json=replied("tool_calls", tool_calls=[USED], content=None))
    with respx.mock(assert_all_called=False) as mock:
        mock.route(url__startswith=URL).mock(
            side_effect=lambda request: called if "chat" in str(request.url) else answer(request)
        )
        callback = attach(llms(), "wise", router=router, budget=RICH, signals=["tool_error"])
        await callback._router.acompletion(model="wise", messages=HI)
        await settled(lambda: router.status().charged == 1)
        result = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "no such city"}
        used = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
        turns = [*HI, {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
        await callback._router.aanthropic_messages(model="wise", messages=turns, max_tokens=40)
        await settled(lambda: router.status().charged == 2)
    assert [list(one) for one in scores(router)] == [["rule:tool_error"], []]


def test_answers_of_other_surfaces_are_read():
    message = {"content": [{"type": "text", "text": "a"}], "stop_reason": "max_tokens"}
    part = {"type": "output_text", "text": "a"}
    response = {
        "output": [{"type": "message", "content": [part]}],
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    for one in (message, response):
        (answer,) = answers_of(one)
        assert answer.failures() == ("truncated",)


def chat_of(**message):
    return {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": None, **message}}]}


def items(*kinds):
    return {"output": [{"type": kind} for kind in ("reasoning", *kinds)]}


WHOLE = {
    "a function": chat_of(function_call={"name": "f", "arguments": "{}"}),
    "a tool without JSON": chat_of(tool_calls=[{"id": "t", "type": "custom", "custom": {"name": "f", "input": "x"}}]),
    "audio": chat_of(audio={"id": "a", "data": "x"}),
    "images": chat_of(images=[{"type": "image_url", "image_url": {"url": "data:image/png;base64,x"}}]),
    "a patch of Codex": items("custom_tool_call"),
    "a shell of Codex": items("local_shell_call"),
    "an image": items("image_generation_call"),
    "a search that goes on": {"content": [{"type": "server_tool_use", "input": {}}], "stop_reason": "pause_turn"},
}


@pytest.mark.parametrize("case", WHOLE)
def test_an_answer_of_other_parts_is_not_empty(case):
    (answer,) = answers_of(WHOLE[case])
    assert answer.failures() == ()


def test_an_answer_without_any_part_is_empty():
    for one in (chat_of(), items(), {"content": [{"type": "thinking", "thinking": "hm"}], "stop_reason": "end_turn"}):
        (answer,) = answers_of(one)
        assert answer.failures() == ("empty_answer",)


def test_the_arguments_of_a_function_are_read():
    (answer,) = answers_of(chat_of(function_call={"name": "f", "arguments": "{"}))
    assert answer.failures() == ("invalid_tool_call",)


def test_a_response_that_is_still_made_has_not_failed():
    assert not list(answers_of({"output": [], "status": "queued"}))


@pytest.mark.parametrize("more", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
async def test_equal_texts_of_stored_conversations_are_not_one_prompt(provider, settled, more):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH, signals=["regenerated"])
    for i in range(2):
        await callback._router.aresponses(model="wise", input="Go on.", **more)
        await settled(lambda i=i: router.status().charged == i + 1)
    assert [list(one) for one in scores(router)] == [[], []]


async def test_equal_texts_with_images_are_not_one_prompt(provider, settled):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH, signals=["regenerated"])
    for i in range(2):
        image = {"type": "image_url", "image_url": {"url": f"https://example.com/{i}.png"}}
        content = [{"type": "text", "text": "What is this?"}, image]
        await callback._router.acompletion(model="wise", messages=[{"role": "user", "content": content}])
        await settled(lambda i=i: router.status().charged == i + 1)
    assert [list(one) for one in scores(router)] == [[], []]


def test_the_setting_names_rules():
    wise = {"budget_usd": 1.0, "every": "1d", "signals": ["truncated", "tool_error"]}
    assert settings_of({"groups": {"wise": wise}}).groups["wise"].signals == ["truncated", "tool_error"]
    with pytest.raises(SettingsError, match="signals"):
        settings_of({"groups": {"wise": {**wise, "signals": ["truncate"]}}})
