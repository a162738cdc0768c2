"""The closed list of parameters: complete for what real clients send, and the same in the documentation."""

import typing
from pathlib import Path

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.completion_create_params import CompletionCreateParamsNonStreaming as TextParams
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from wiserouter.integration import FRAME_TOKENS, TOOLS_TOKENS
from wiserouter_litellm.deployments.deployment_defaults import Defaults, defaults_of, unknown_limits
from wiserouter_litellm.requests.parameters import (
    ALLOWED,
    ANSWERS,
    OUTPUT_LIMITS,
    OWN_REFUSED,
    PROVIDER_LIMITS,
    SENT_REFUSED,
    SURFACES,
    broken_default,
    broken_parameter,
)

DOCS = Path(__file__).parents[3] / "docs" / "litellm.md"

NOT_ALLOWED = {
    "chat": {"moderation"},
    "responses": {"moderation", "context_management", "access_programs", "background_options", "image"},
    "messages": {"diagnostics", "user_profile_id", "workspace_id"},
}
"""Parameters of the clients that are neither allowed nor refused by name."""


def names(params: type) -> set[str]:
    return set(typing.get_type_hints(params))


@pytest.mark.parametrize(
    ("surface", "params"),
    [
        ("chat", CompletionCreateParamsNonStreaming),
        ("chat", TextParams),
        ("responses", ResponseCreateParamsNonStreaming),
        ("messages", MessageCreateParamsNonStreaming),
    ],
)
def test_each_parameter_of_the_clients_is_decided(surface, params):
    allowed = {name for one in ALLOWED if surface in one.surfaces for name in one.names.split()}
    known = allowed | SENT_REFUSED.keys() | set(OUTPUT_LIMITS[surface]) | set(ANSWERS[surface])
    assert names(params) - known <= NOT_ALLOWED[surface]


def test_the_documentation_has_the_same_list():
    rows = [line.split("|")[1:-1] for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    documented = {
        tuple(name.strip(" `") for name in row[0].split(",")): tuple(cell.strip() for cell in row[1:]) for row in rows
    }
    for one in ALLOWED:
        marks = tuple("yes" if surface in one.surfaces else "" for surface in SURFACES)
        assert documented[tuple(one.names.split())] == (*marks, one.reason)
    text = DOCS.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in {*OWN_REFUSED, *SENT_REFUSED} - PROVIDER_LIMITS)


FROM_THE_PROXY = (
    *("litellm_call_id", "litellm_logging_obj", "litellm_trace_id", "proxy_server_request", "secret_fields"),
    *("shared_session", "metadata", "litellm_metadata", "_context_compaction_state", "_litellm_strip_stream_usage"),
    *("num_retries", "headers", "timeout", "tags", "cache", "guardrails", "api_key", "fallbacks", "client"),
    *("_target_order", "_excluded_deployment_ids", "context_window_fallbacks", "mock_response"),
    "provider_specific_header",
)


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("name", FROM_THE_PROXY)
def test_what_litellm_adds_passes(surface, name):
    assert broken_parameter(surface, {name: object()}) is None


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize(
    "name", ["input_cost_per_token", "tiered_pricing", "turbo", "_turbo", "", "Temperature", "n\n"]
)
def test_prices_and_unknown_names_are_refused(surface, name):
    assert broken_parameter(surface, {name: 1})[0] == name


SENT_ON = [("deployment", "x"), ("user_api_key_auth", "x"), ("client_disconnected", True)]
SENT_AS_THEY_ARE = [
    *((name, "x") for name in ("mock_delay", "session_id", "trace_id", "user_id")),
    *((name, {}) for name in ("original_model_group", "router_settings_override")),
    *((name, "x") for name in ("include_fallback_errors", "_encrypted_content_affinity_pinned")),
]
NOT_UNDERSTOOD = [("client", "x"), ("complete_response", True), ("priority", "x"), ("priority", 0), ("priority", True)]


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize(("name", "value"), [*SENT_ON, *SENT_AS_THEY_ARE, *NOT_UNDERSTOOD])
def test_values_that_litellm_sends_on_or_does_not_understand_are_refused(surface, name, value):
    assert broken_parameter(surface, {name: value})[0] == name


@pytest.mark.parametrize("tool", [{"function": {"name": "litellm_web_search"}}, {"name": "litellm_web_search"}])
def test_a_tool_that_litellm_runs_is_refused(tool):
    assert broken_parameter("chat", {"tools": [{"type": "function", **tool}]})[0] == "tools[0].name"


@pytest.mark.parametrize("name", ["include_fallback_errors", "_encrypted_content_affinity_pinned"])
def test_flags_that_litellm_sets_pass(name):
    assert broken_parameter("responses", {name: True}) is None


def test_the_thread_of_a_tool_runner_is_refused_with_what_to_give_to_the_client():
    name, rule = broken_parameter("messages", {"thread": {"type": "create"}})
    assert name == "thread"
    assert rule.endswith("give Anthropic's client thread=False")


def test_a_place_in_the_queue_of_litellm_passes():
    assert broken_parameter("chat", {"priority": 3}) is None


@pytest.mark.parametrize("name", sorted({**SENT_REFUSED, **OWN_REFUSED}))
def test_null_is_always_allowed(name):
    for surface in SURFACES:
        assert broken_parameter(surface, {name: None}) is None
        assert broken_parameter(surface, {name: {"a": 1}}) is not None


@pytest.mark.parametrize(
    ("params", "defaults"),
    [
        ({"model": "openai/small", "api_key": "x", "drop_params": True, "max_retries": 3}, Defaults()),
        ({"max_tokens": 50, "max_completion_tokens": "80"}, Defaults(output_tokens=80)),
        ({"max_tokens": -1, "n": -1}, Defaults()),
        ({"n": 3, "service_tier": "fast"}, Defaults(answers=3, tier="priority")),
        ({"extra_body": {"top_k": 3}, "service_tier": "flex"}, Defaults()),
        ({"extra_body": {"max_tokens": 3}}, Defaults(unbounded="extra_body.max_tokens")),
        ({"web_search_options": {}}, Defaults(unbounded="web_search_options")),
        ({"additional_drop_params": ["max_tokens"]}, Defaults(unbounded="additional_drop_params")),
        ({"tools": [{"type": "web_search"}]}, Defaults(unbounded="tools[0].type")),
        ({"prompt_id": "greeting"}, Defaults(unbounded="prompt_id")),
        ({"user_continue_message": {"role": "user", "content": "go on"}}, Defaults(unbounded="user_continue_message")),
        ({"vector_store_ids": ["kb"]}, Defaults(unbounded="vector_store_ids")),
        ({"roles": {"user": {"pre_message": "Q: "}}}, Defaults(unbounded="roles")),
        ({"initial_prompt_value": "Be brief."}, Defaults(unbounded="initial_prompt_value")),
        ({"plugins": [{"id": "web"}]}, Defaults(unbounded="plugins")),
        ({"fallbacks": ["openai/large"]}, Defaults(unbounded="fallbacks")),
        ({"cached_content": "cachedContents/1"}, Defaults(unbounded="cached_content")),
        ({"performanceConfig": {"latency": "optimized"}}, Defaults(unbounded="performanceConfig")),
        ({"serviceTier": {"type": "priority"}}, Defaults(unbounded="serviceTier")),
        ({"data_sources": [{"type": "azure_search"}]}, Defaults(unbounded="data_sources")),
    ],
)
def test_the_parameters_that_a_deployment_adds(params, defaults):
    assert defaults_of(params)._replace(input_tokens=0) == defaults
    assert broken_default(params) == defaults.unbounded


@pytest.mark.parametrize(
    ("model", "unknown"),
    [
        ("replicate/a/b", {"max_completion_tokens"}),
        ("openai/small", set()),
        ("anthropic/small", set()),
        ("no-such-provider/x", set()),
        ("v0/v0-1.5-md", {"max_tokens", "max_completion_tokens"}),
        ("bedrock/agent/AGENT/ALIAS", {"max_tokens", "max_completion_tokens"}),
    ],
)
def test_the_limits_that_a_provider_does_not_know(model, unknown):
    assert unknown_limits({"model": model}) == unknown
    assert unknown_limits({"model": model, "allowed_openai_params": ["max_tokens"]}) == unknown - {"max_tokens"}


@pytest.mark.parametrize(
    ("params", "n_tokens"),
    [
        ({"model": "openai/small", "max_tokens": 50, "stop": ["###"]}, 0),
        ({"litellm_system_prompt": "Be brief. " * 10}, FRAME_TOKENS + 100),
        ({"tools": []}, 0),
        ({"tools": [{"type": "function"}]}, TOOLS_TOKENS + FRAME_TOKENS + len('[{"type": "function"}]')),
    ],
)
def test_the_texts_that_a_deployment_adds_are_counted(params, n_tokens):
    assert defaults_of(params).input_tokens == n_tokens
