"""The parser of requests on every surface, and calls that have no text to route by."""

import json

import litellm
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter_litellm.requests.request import PLACEHOLDERS, admitted_request, request_of

USER = [{"role": "user", "content": "what is 2 + 2?"}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("messages", "kwargs", "question"),
    [
        (USER, {}, "what is 2 + 2?"),
        (
            [{"role": "system", "content": "be brief"}, *USER, {"role": "assistant", "content": "4"}],
            {},
            "what is 2 + 2?",
        ),
        ([*USER, {"role": "tool", "content": "result"}], {}, "what is 2 + 2?"),
        ([{"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]}], {}, "look"),
        ([{"role": "system", "content": "only this"}], {}, "only this"),
        (None, {"input": "a question"}, "a question"),
        (None, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]}, "hello"),
        ([{"role": "user", "content": ["one", "two"]}], {}, "one\ntwo"),
        ([*USER, {"role": "user", "content": [{"type": "tool_result", "content": "42"}]}], {}, "what is 2 + 2?"),
    ],
)
def test_the_question_is_the_last_user_text(messages, kwargs, question):
    assert request_of(messages, kwargs).question == question


@pytest.mark.parametrize("messages", [None, 3])
def test_a_call_without_text_is_none(messages):
    assert request_of(messages, {}) is None


def test_an_empty_chat_is_a_request():
    request = request_of([], {"max_tokens": 5})
    assert (request.question, request.counted, request.output_tokens) == ("", "", 5)
    assert request.input_bound_tokens > 0


@pytest.mark.parametrize("content", sorted(PLACEHOLDERS))
def test_placeholders_are_none_unless_a_client_said_so_on_a_text_route(content):
    messages = [{"role": "user", "content": content}]
    assert request_of(messages, {}) is None
    url = "http://proxy/v1/images/generations"
    assert request_of(messages, {"proxy_server_request": {"url": url}}) is None
    for path in ("/v1/chat/completions", "/chat/completions?x=1", "/v1/responses", "/v1/messages", "/completions"):
        assert request_of(messages, {"proxy_server_request": {"url": f"http://proxy{path}"}}).question == content


@pytest.mark.parametrize(
    ("kwargs", "limit", "choices"),
    [
        ({}, None, 1),
        ({"max_tokens": 10}, 10, 1),
        ({"max_completion_tokens": 20, "n": 3}, 20, 3),
        ({"max_output_tokens": 30}, None, 1),
        ({"max_tokens": 10, "max_completion_tokens": 20}, 20, 1),
        ({"max_tokens": 0, "n": None}, None, 1),
        ({"max_tokens": "many", "n": True}, None, 1),
        ({"max_tokens": "40", "n": "20"}, 40, 20),
        ({"n": 2, "best_of": 5}, None, 5),
    ],
)
def test_the_limit_of_the_output(kwargs, limit, choices):
    request = request_of(USER, kwargs)
    assert (request.output_tokens, request.choices) == (limit, choices)


def test_everything_that_is_billed_as_input_is_counted():
    tools = [{"type": "function", "function": {"name": "weather", "description": "tells the weather"}}]
    request = request_of(
        [{"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "{'x': 1}"}}]}, *USER],
        {"tools": tools, "system": "be brief", "response_format": {"type": "json_object"}},
    )
    for text in ("what is 2 + 2?", "tells the weather", "be brief", "json_object", "{'x': 1}"):
        assert text in request.counted
    assert request.overhead_tokens >= 1_000
    assert request.countable


@pytest.mark.parametrize(
    ("messages", "kwargs"),
    [
        ([{"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]}], {}),
        ([{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image"}]}]}], {}),
        (None, {"input": "go on", "previous_response_id": "resp_1"}),
        (None, {"input": "search", "tools": [{"type": "web_search"}]}),
        (USER, {"web_search_options": {}}),
        (USER, {"mcp_servers": [{"url": "x"}]}),
    ],
)
def test_what_brings_more_than_its_text_cannot_be_counted(messages, kwargs):
    assert not request_of(messages, kwargs).countable


@pytest.mark.parametrize(("messages", "name"), [(USER, "max_tokens"), (None, "max_output_tokens")])
def test_each_surface_has_its_name_for_the_limit(messages, name):
    assert request_of(messages, {"input": "x"}).limit_name == name


texts = st.text(min_size=1, max_size=30)
parts = st.one_of(texts, st.lists(st.builds(lambda t: {"type": "text", "text": t}, texts), max_size=3), st.none())
turns = st.lists(st.builds(lambda r, c: {"role": r, "content": c}, st.sampled_from(["user", "system", "x"]), parts))
junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=10,
)


@pytest.mark.parametrize("blank", ["", "\r", " " * 10_000])
def test_a_blank_text_counts_as_it_is_and_as_what_litellm_may_send_in_its_place(blank):
    counted = request_of([{"role": "user", "content": blank}], {}).counted
    assert blank in counted
    assert "Empty message content" in counted


@given(turns)
def test_no_text_of_a_chat_is_left_uncounted(messages):
    request = request_of(messages, {"proxy_server_request": {"url": "/v1/chat/completions"}})
    for turn in messages:
        for part in turn["content"] or []:
            text = part if isinstance(part, str) else part["text"]
            assert request is None or text in request.counted or json.dumps(text, ensure_ascii=False) in request.counted


@given(st.lists(st.dictionaries(st.sampled_from(["role", "content", "type", "text"]), junk, max_size=4), max_size=3))
def test_malformed_messages_are_never_a_crash(messages):
    request_of(messages, {"max_tokens": float("inf"), "n": float("nan")})


CHAT_URL, TEXT_URL = "/v1/chat/completions", "/v1/completions"
TOOL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def admitted(messages, url):
    kwargs = {"proxy_server_request": {"url": url}}
    return admitted_request("wise", messages, kwargs, hard=False, reads_question=True)


def prompt(content):
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize(
    ("messages", "url", "rule"),
    [
        ([1], CHAT_URL, r"messages\[0\] must be an object, got int"),
        ([{"role": "user", "content": "hi"}, "ho"], CHAT_URL, r"messages\[1\] must be an object, got str"),
        ([None], CHAT_URL, r"messages\[0\] must be an object, got null"),
        (prompt(5), CHAT_URL, r"messages\[0\].content must be text, a list of parts or null, got int"),
        (prompt(True), "/v1/messages", r"messages\[0\].content must be .*, got bool"),
        (prompt([]), TEXT_URL, r"prompt must be text, or a list of texts or tokens, got list"),
        (prompt(5), TEXT_URL, "prompt must be .*, got int"),
    ],
)
def test_what_no_provider_takes_is_refused(messages, url, rule):
    with pytest.raises(litellm.BadRequestError, match=rule):
        admitted(messages, url)


@pytest.mark.parametrize(
    ("messages", "url"),
    [
        ([{"role": "assistant", "content": None, "tool_calls": [TOOL]}], CHAT_URL),
        ([{"role": "assistant", "tool_calls": [TOOL]}], CHAT_URL),
        (prompt([{"type": "text", "text": "hi"}]), CHAT_URL),
        (prompt([]), CHAT_URL),
        (prompt(["hi", "ho"]), CHAT_URL),
        ([litellm.Message(role="user", content="hi")], CHAT_URL),
        ([], CHAT_URL),
        (prompt(""), TEXT_URL),
        (prompt(["one", "two"]), TEXT_URL),
        (prompt([15496, 0]), TEXT_URL),
        (prompt([[15496], [0]]), TEXT_URL),
    ],
)
def test_what_a_provider_may_take_is_not_refused(messages, url):
    assert admitted(messages, url) is not None


@pytest.mark.parametrize("asked", ["hi", ["hi"], [{"role": "user", "content": "hi"}], [{"type": "item_reference"}]])
def test_no_input_of_a_response_is_refused(asked):
    kwargs = {"input": asked, "proxy_server_request": {"url": "/v1/responses"}}
    assert admitted_request("wise", None, kwargs, hard=False, reads_question=True) is not None
