"""The parameters that a request under a hard budget may have, by surface: a closed list.

A parameter that is not on the list is refused, since a provider may charge for it what nothing has bounded. Parameters
that LiteLLM keeps to itself pass, but for those that change models, prices or prompts after the call was bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from wiserouter_litellm.requests.parameter_checks import CHECKS

CHAT, RESPONSES, MESSAGES = "chat", "responses", "messages"
"""The surfaces: chat and text completions, the responses API, and `/v1/messages`."""

SURFACES = (CHAT, RESPONSES, MESSAGES)

OUTPUT_LIMITS = {
    CHAT: ("max_tokens", "max_completion_tokens"),
    RESPONSES: ("max_output_tokens",),
    MESSAGES: ("max_tokens",),
}
"""The names of the limit of one answer, by surface."""

ANSWERS = {CHAT: ("n", "best_of"), RESPONSES: (), MESSAGES: ()}
"""The names of the number of answers that are billed, by surface."""


class Allowed(NamedTuple):
    """Parameters that are allowed on some surfaces, and the reason."""

    names: str
    surfaces: tuple[str, ...]
    reason: str


ALLOWED = (
    Allowed("model stream timeout", SURFACES, "routing and transport"),
    Allowed("temperature top_p top_k min_p top_a typical_p seed", SURFACES, "choose tokens, not their number"),
    Allowed("presence_penalty frequency_penalty repetition_penalty logit_bias", (CHAT,), "choose tokens"),
    Allowed("logprobs top_logprobs echo", SURFACES, "report tokens that are billed anyway"),
    Allowed("stop stop_sequences stop_token_ids", SURFACES, "only end an answer earlier"),
    Allowed("user metadata safety_identifier store", SURFACES, "labels and storage, free of charge"),
    Allowed("prompt_cache_key prompt_cache_retention prompt_cache_options", SURFACES, "the bound pays cache writes"),
    Allowed("cache_control", SURFACES, "the bound pays cache writes"),
    Allowed("messages", (CHAT, MESSAGES), "counted as input"),
    Allowed("functions response_format suffix chat_template_kwargs", (CHAT,), "counted as input"),
    Allowed("input instructions text", (RESPONSES,), "counted as input"),
    Allowed("system output_config output_format", (MESSAGES,), "counted as input"),
    Allowed("tools", SURFACES, "counted as input; tools that the provider may run are refused"),
    Allowed("tool_choice parallel_tool_calls function_call", SURFACES, "choose among tools that are counted"),
    Allowed("guided_choice guided_grammar guided_json guided_regex", (CHAT,), "shape the answer within its limit"),
    Allowed("reasoning_effort reasoning thinking verbosity", SURFACES, "reasoning counts against the output limit"),
    Allowed("modalities", (CHAT,), "text only: other output has prices of its own"),
    Allowed("stream_options", SURFACES, "`include_usage` is set to true, since the bill needs it"),
    Allowed("service_tier", SURFACES, "a tier with another price needs that price on the deployment"),
    Allowed("extra_body extra_headers", SURFACES, "keys that are known to be free"),
    Allowed("previous_response_id conversation", (RESPONSES,), "the whole context window is reserved"),
    Allowed("truncation include max_tool_calls", (RESPONSES,), "leave out parts, or only report them"),
    Allowed("background", (RESPONSES,), "false only: what runs later reports no cost"),
    Allowed("context_management speed inference_geo", (MESSAGES,), "only with values that cost nothing more"),
)

PROVIDER_LIMITS = frozenset(
    {
        *("candidate_count", "candidateCount", "num_return_sequences", "num_generations", "use_beam_search"),
        *("max_new_tokens", "max_tokens_to_sample", "maxOutputTokens", "num_predict", "min_tokens"),
        *("generationConfig", "generation_config", "inferenceConfig", "inference_config", "text_generation_config"),
    }
)
"""Providers' own names of limits: LiteLLM forwards them as they are, next to or in place of the bounded ones."""

SENT_REFUSED = {
    **dict.fromkeys(PROVIDER_LIMITS, "is a provider's own limit, which is not bounded: use max_tokens and n"),
    "audio": "asks for spoken output, which has prices of its own",
    "prediction": "may be billed beyond the limit of the output: rejected tokens count as well",
    "web_search_options": "adds fees per search",
    "mcp_servers": "lets the provider call tools, in any number of turns",
    "container": "has the provider run code, for a fee",
    "prompt": "adds a stored prompt of unknown length",
    "thread": "goes on with what the provider holds, and LiteLLM leaves it out: give Anthropic's client thread=False",
}
"""Parameters of providers that are refused, each with the reason."""

_TEMPLATES = (
    *("litellm_system_prompt", "user_continue_message", "assistant_continue_message", "custom_prompt_dict", "roles"),
    *("ensure_alternating_roles", "bos_token", "eos_token", "final_prompt_value", "hf_model_name"),
)
_STORED_PROMPT = ("prompt_id", "prompt_variables", "prompt_version", "prompt_environment", "prompt_label")
_ADDING = frozenset(
    {
        *("prompt_id", "user_continue_message", "assistant_continue_message", "vector_store_ids"),
        *("custom_prompt_dict", "roles", "initial_prompt_value", "final_prompt_value", "bos_token", "eos_token"),
        *("hf_model_name", "text_completion", "fallbacks", "model_list", "models", "plugins"),
        *("search_parameters", "enable_search", "connectors", "data_sources", "cached_content"),
        *("performanceConfig", "serviceTier"),
    }
)
"""Parameters of deployments that add text of unknown length, searches, or models and tiers of other prices."""

_MODELS = (
    *("custom_llm_provider", "model_list", "model_alias_map", "model_config", "silent_model", "use_litellm_proxy"),
)

_FLAGS = frozenset({"use_litellm_proxy"})
"""Those that LiteLLM's auto routers add to each call as false, which changes nothing."""

_ENDPOINTS = ("api_base", "api_version", "litellm_credential_name", "region_name")

OWN_REFUSED = {
    "drop_params": "may drop the limit of the output: leave it out",
    "text_completion": "may make a prompt of each message, which has an answer of its own: leave it out",
    **dict.fromkeys(_STORED_PROMPT, "replaces the prompt after it was counted"),
    **dict.fromkeys(_TEMPLATES, "adds text after the prompt was counted"),
    **dict.fromkeys(_MODELS, "may send the call to a model of another price"),
    **dict.fromkeys(_ENDPOINTS, "sends the call to a provider, an account or a region with prices of its own"),
    **dict.fromkeys(("base_model", "data_residency"), "changes the price at which LiteLLM bills the call"),
    **dict.fromkeys(("max_agentic_loops", "search_tool_name"), "lets LiteLLM make further calls"),
}
"""Parameters of LiteLLM that are refused, each with the reason."""

_ROUTER_KEYS = frozenset(
    {
        *("client", "organization", "priority", "specific_deployment", "disable_fallbacks", "include_fallback_errors"),
        *("context_window_fallbacks", "content_policy_fallbacks", "model_group_retry_policy", "attempted_targets"),
        *("mock_testing_fallbacks", "mock_testing_context_fallbacks", "mock_testing_content_policy_fallbacks"),
        *("mock_testing_rate_limit_error", "mock_tool_calls", "deployment", "user_api_key_auth"),
        *("_target_order", "_excluded_deployment_ids", "_retry_skipped_deployment_ids"),
        *("_encrypted_content_affinity_pinned", "_mid_stream_fallback_controls", "_alias_marker_forwarded_params"),
    }
)
"""Keys of LiteLLM's router that its own list of internal parameters leaves out."""


def broken_parameter(surface: str, kwargs: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first parameter that a hard budget does not allow, with the rule that it breaks; None for none.

    Parameters
    ----------
    surface : str
        "chat", "responses" or "messages".
    kwargs : mapping
        The request's keyword arguments, but for its limits.

    Examples
    --------
    >>> broken_parameter("chat", {"temperature": 0, "web_search_options": {}})
    ('web_search_options', 'adds fees per search')
    """
    harmless = _harmless_names()[surface]
    if harmless.issuperset(kwargs):  # as almost always
        return None
    for name, value in kwargs.items():
        if value is None or name in harmless or (value is False and name in _FLAGS):
            continue
        rule = _rule_of_name(surface, name)
        if rule is not None:
            return f"{name:.60}", rule
        if name in CHECKS and (broken := CHECKS[name](value)) is not None:
            return f"{name}{broken.at}", broken.rule
    return None


def broken_default(params: Mapping[str, Any]) -> str | None:
    """Return the parameter in a deployment's own `litellm_params` that nothing bounds; None if there is none."""
    for name, value in params.items():
        if value is None or value is False or name in {"max_retries", "headers", "extra_headers", "priority"}:
            continue
        if name in SENT_REFUSED or (name in _ADDING and value):
            return name
        if name in CHECKS and (broken := CHECKS[name](value)) is not None:
            return f"{name}{broken.at}"
    return None


def is_kept(name: str) -> bool:
    """Return True if LiteLLM keeps a parameter to itself.

    Examples
    --------
    >>> [is_kept(name) for name in ("litellm_metadata", "documents")]
    [True, False]
    """
    return name in _names_of_litellm() or name.startswith("_litellm_")


def is_passed_on(name: str) -> bool:
    """Return True if LiteLLM knows nothing of a parameter of a deployment, and so sends it to the provider as it is.

    Examples
    --------
    >>> [is_passed_on(name) for name in ("documents", "temperature", "api_key", "input_cost_per_token")]
    [True, False, False, False]
    """
    return name not in _known_names()


def _rule_of_name(surface: str, name: str) -> str | None:
    """Return the rule that a parameter breaks by being there at all."""
    refused = SENT_REFUSED.get(name) or OWN_REFUSED.get(name)
    if refused or name in _allowed_names()[surface] or is_kept(name):
        return refused
    return f"is not among the parameters of {surface} calls that are known not to change their cost: leave it out"


@lru_cache(maxsize=1)
def _allowed_names() -> Mapping[str, frozenset[str]]:
    return {
        surface: frozenset(name for one in ALLOWED if surface in one.surfaces for name in one.names.split())
        for surface in SURFACES
    }


@lru_cache(maxsize=1)
def _harmless_names() -> Mapping[str, frozenset[str]]:
    """Return the parameters that may have any value, by surface."""
    not_harmless = SENT_REFUSED.keys() | OWN_REFUSED.keys() | CHECKS.keys()
    return {surface: (names | _names_of_litellm()) - not_harmless for surface, names in _allowed_names().items()}


@lru_cache(maxsize=1)
def _known_names() -> frozenset[str]:
    from litellm.types.router import GenericLiteLLMParams

    listed = (*_allowed_names().values(), *OUTPUT_LIMITS.values(), *ANSWERS.values(), _ADDING, SENT_REFUSED, CHECKS)
    return _names_of_litellm().union(GenericLiteLLMParams.model_fields, *listed)


@lru_cache(maxsize=1)
def _names_of_litellm() -> frozenset[str]:
    """Return the parameters that LiteLLM keeps to itself; prices are not among them."""
    from litellm.types.utils import CustomPricingLiteLLMParams, all_litellm_params

    own = frozenset(all_litellm_params) - CustomPricingLiteLLMParams.model_fields.keys()
    return own | _ROUTER_KEYS | {"additional_drop_params"}
