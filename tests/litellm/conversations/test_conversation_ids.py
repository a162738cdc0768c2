"""Which ids of conversations a request states, by the rules of LiteLLM's proxy and of agents."""

import pytest
from litellm.constants import SESSION_ID_GENERATED_METADATA_KEY
from litellm.proxy.litellm_pre_call_utils import LiteLLMProxyRequestSetup

from wiserouter_litellm.conversations.conversation_ids import MOST_ID_CHARS, stated_ids, tenant_of
from wiserouter_litellm.conversations.feedback_keys import feedback_key

UUID = "e96634a3-fa28-4083-b354-55542e2dca01"
OTHER = "0b7c6a52-9d0e-4d5e-8f44-1d2f3a4b5c6d"
CODEX = "codex_cli_rs/0.40.0 (Ubuntu 22.4; x86_64)"
READ_BY_LITELLM = [
    {"x-litellm-session-id": UUID},
    {"x-litellm-trace-id": UUID},
    {"x-claude-code-session-id": UUID},
    {"x-session-id": UUID},
    {"session-id": UUID, "user-agent": CODEX},
    {"session_id": UUID, "user-agent": CODEX},
    {"conversation_id": UUID, "user-agent": CODEX},
    {"baggage": f"session.id={UUID}"},
]


def received(headers=(), bucket="metadata", **body):
    """Return the keyword arguments that LiteLLM's proxy makes of a request."""
    headers = dict(headers)
    data = {bucket: {}, **body, "proxy_server_request": {"url": "http://proxy/v1/x", "headers": headers}}
    return LiteLLMProxyRequestSetup.add_litellm_metadata_from_request_headers(headers, data, bucket)


@pytest.mark.parametrize("bucket", ["metadata", "litellm_metadata"])
@pytest.mark.parametrize("headers", READ_BY_LITELLM, ids=lambda headers: next(iter(headers)))
def test_the_headers_that_litellm_reads(headers, bucket):
    assert stated_ids(received(headers, bucket), None).conversation == UUID


@pytest.mark.parametrize(
    "kwargs",
    [
        {"metadata": {"session_id": UUID}},
        {"litellm_metadata": {"session_id": UUID}, "metadata": {}},
        {"litellm_metadata": {}, "metadata": {"session_id": UUID}},
        {"litellm_session_id": UUID},
        {"metadata": {"user_id": f"user_ab12_account__session_{UUID}"}},
        {"metadata": {"user_id": {"device_id": "d", "session_id": UUID}}},
        {"conversation": UUID},
        {"conversation": {"id": UUID}},
    ],
)
def test_ids_of_a_body_or_of_a_program(kwargs):
    assert stated_ids(kwargs, None).conversation == UUID


def test_the_session_of_claude_code_in_the_proxy():
    body = {"user_id": f"user_ab12_account__session_{UUID}"}
    assert stated_ids(received(bucket="litellm_metadata", metadata=body), None).conversation == UUID


def test_an_id_that_litellm_has_generated_says_nothing():
    kwargs = {"metadata": {"session_id": UUID, SESSION_ID_GENERATED_METADATA_KEY: True}, "litellm_session_id": UUID}
    assert stated_ids(kwargs, None).conversation == ""


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"metadata": None},
        {"metadata": {"session_id": ""}},
        {"metadata": {"session_id": ["a"]}},
        {"metadata": {"session_id": True}},
        {"metadata": {"session_id": "x" * (MOST_ID_CHARS + 1)}},
        {"metadata": {"user_id": "someone"}},
        {"metadata": {"trace_id": UUID}, "litellm_trace_id": UUID},
        {"conversation": {"id": None}},
        {"prompt_cache_key": 7.5},
    ],
)
def test_what_is_no_id(kwargs):
    stated = stated_ids(kwargs, None)
    assert (stated.conversation, stated.cache_key, stated.answers, stated.parent) == ("", "", (), "")


def test_a_session_comes_before_the_provider_s_conversation():
    assert stated_ids({"metadata": {"session_id": UUID}, "conversation": OTHER}, None).conversation == UUID


def test_a_sub_agent_names_its_parent():
    kwargs = received({"x-parent-session-id": UUID, "x-session-id": OTHER})
    assert (stated_ids(kwargs, None).parent, stated_ids(kwargs, None).conversation) == (UUID, OTHER)
    alone = stated_ids(received({"x-parent-session-id": UUID}), None)
    assert (alone.parent, alone.conversation) == (UUID, "")  # a run of its own, found by its messages
    explicit = stated_ids(received({"x-wiserouter-parent": UUID, "x-litellm-session-id": OTHER}), None)
    assert (explicit.parent, explicit.conversation) == (UUID, OTHER)
    assert stated_ids({"metadata": {"wiserouter_parent": UUID, "session_id": OTHER}}, None).parent == UUID


def test_a_response_is_found_under_the_caller_s_key_only():
    stated = stated_ids({"previous_response_id": "resp_1", "prompt_cache_key": "k"}, "key-a")
    assert (stated.answers, stated.cache_key) == ([feedback_key("resp_1", "key-a")], "k")
    assert stated.answers != stated_ids({"previous_response_id": "resp_1"}, "key-b").answers


def test_callers_are_told_apart_by_key_else_by_the_user_and_team_of_a_token():
    by_key = [tenant_of({"user_api_key_hash": key, "user_api_key_user_id": "u"}) for key in ("a", "b")]
    by_user = [tenant_of({"user_api_key_hash": None, "user_api_key_user_id": user}) for user in ("a", "b")]
    by_team = tenant_of({"user_api_key_team_id": "a"})
    assert len({*by_key, *by_user, by_team, tenant_of({})}) == 6
