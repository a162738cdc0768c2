"""Checks of the values of parameters that are harmless with some values only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from wiserouter_litellm.requests.tools import BrokenRule, broken_tool_rule

Check = Callable[[object], BrokenRule | None]

EXTRA_BODY = frozenset(
    {
        *("chat_template_kwargs", "guided_choice", "guided_grammar", "guided_json", "guided_regex", "metadata"),
        *("min_p", "repetition_penalty", "seed", "stop_token_ids", "top_a", "top_k", "typical_p", "user"),
    }
)
"""The keys of `extra_body` that do not change what a call can cost."""

EXTRA_HEADERS = frozenset(
    {
        *("anthropic-beta", "anthropic-version", "openai-beta", "openai-organization", "openai-project", "user-agent"),
        *("traceparent", "tracestate", "baggage", "x-request-id", "x-correlation-id", "x-session-id", "x-title"),
        *("http-referer", "idempotency-key"),
    }
)
"""The keys of `extra_headers` that do not."""

TEXT_ITEMS = frozenset(
    {
        *("message", "reasoning", "function_call", "function_call_output", "custom_tool_call"),
        *("custom_tool_call_output", "local_shell_call", "local_shell_call_output", "apply_patch_call"),
        *("apply_patch_call_output",),
    }
)
"""The items in the input of a response whose text is all that they bring."""

INPUT_ITEMS = TEXT_ITEMS | {
    *("item_reference", "compaction", "computer_call", "computer_call_output", "web_search_call", "file_search_call"),
    *("image_generation_call", "code_interpreter_call", "mcp_list_tools", "mcp_call", "shell_call"),
    *("shell_call_output", "input_text", "input_image", "input_file"),
}
"""The items that bring nothing but input, if of unknown length."""

BOUNDING = frozenset(
    {"max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of", "extra_body", "stream_options"}
)
"""Parameters that must not be dropped on the way to the provider."""

STANDARD_TIERS = frozenset({"auto", "default", "standard", "standard_only", "flex"})
PRICED_TIERS = frozenset({"priority", "fast", "ultrafast", "balanced"})

_PRICED_HEADER = ("tier", "priority", "speed", "request-type", "throughput", "latency")
_OTHER_PRICE = "is not known to leave the cost of a call as it was bounded: leave it out"


def tier_of(service_tier: object) -> str:
    """Return the tier that a call is priced by; "" for the standard one.

    Examples
    --------
    >>> tier_of("fast"), tier_of("auto"), tier_of(None)
    ('priority', '', '')
    """
    tier = str(service_tier)
    return {"fast": "priority"}.get(tier, tier) if tier in PRICED_TIERS else ""


def _keys_of(*allowed: str) -> Check:
    """Return a check that an object has no other keys."""

    def check(value: object) -> BrokenRule | None:
        if isinstance(value, str | bool):
            return None
        return _first_other(value, frozenset(allowed), _OTHER_PRICE)

    return check


def _only(*allowed: object) -> Check:
    """Return a check that a value is one of a few."""

    def check(value: object) -> BrokenRule | None:
        if any(value is one or (isinstance(one, str) and value == one) for one in allowed):
            return None
        return BrokenRule("", f"must be {' or '.join(map(repr, allowed))}, got {value!r:.60}")

    return check


def _reasoning(value: object) -> BrokenRule | None:
    mode = value.get("mode") if isinstance(value, Mapping) else None
    if mode is not None and mode != "standard":
        return BrokenRule(".mode", f"must be 'standard', got {mode!r:.60}: others have another price")
    return _keys_of("effort", "summary", "generate_summary", "context", "enabled", "exclude", "mode")(value)


def _service_tier(value: object) -> BrokenRule | None:
    known = sorted(STANDARD_TIERS | PRICED_TIERS)
    if isinstance(value, str) and value in known:
        return None
    return BrokenRule("", f"must be one of {', '.join(known)}, got {value!r:.60}")


def _items(value: object) -> BrokenRule | None:
    """Return the rule that an item of a response's input breaks: some ask for work, or bring tools."""
    for i, item in enumerate(value if isinstance(value, list | tuple) else ()):
        kind = str(item.get("type") or "message") if isinstance(item, Mapping) else "message"
        if kind not in INPUT_ITEMS:
            return BrokenRule(f"[{i}].type", f"{kind!r:.40} may ask for work that nothing bounds")
    return None


def _modalities(value: object) -> BrokenRule | None:
    if isinstance(value, list | tuple) and all(one == "text" for one in value):
        return None
    return BrokenRule("", f"must be ['text'], got {value!r:.60}: other output has prices of its own")


def _context_management(value: object) -> BrokenRule | None:
    edits = value.get("edits") if isinstance(value, Mapping) and value.keys() <= {"edits"} else None
    if isinstance(edits, list | tuple) and all(_clears(edit) for edit in edits):
        return None
    return BrokenRule("", "may only clear parts of the prompt: a compaction is a call of its own")


def _clears(edit: object) -> bool:
    return isinstance(edit, Mapping) and str(edit.get("type")).startswith("clear_")


def _extra_body(value: object) -> BrokenRule | None:
    return _first_other(value, EXTRA_BODY, "may change the cost: pass it as a parameter of the call")


def _extra_headers(value: object) -> BrokenRule | None:
    names = {str(name).lower(): None for name in value} if isinstance(value, Mapping) else value
    return _first_other(names, EXTRA_HEADERS, "may choose another price")


def _headers(value: object) -> BrokenRule | None:
    """Return the rule that headers break which the proxy forwards because its configuration says so."""
    names = [str(name).lower() for name in value] if isinstance(value, Mapping) else []
    priced = [name for name in names if any(word in name for word in _PRICED_HEADER)]
    return BrokenRule(f".{priced[0]:.40}", "may choose another price") if priced else None


def _provider_headers(value: object) -> BrokenRule | None:
    """Return the rule that headers for some providers break; the proxy makes them of Anthropic's that a client sent."""
    entries = value if isinstance(value, list | tuple) else [value]
    headers = [one.get("extra_headers") if isinstance(one, Mapping) else one for one in entries]
    names = {str(name).lower(): None for each in headers if isinstance(each, Mapping) for name in each}
    return _first_other(names, EXTRA_HEADERS | {"authorization"}, "may choose another price")


def _dropped(value: object) -> BrokenRule | None:
    names: Iterable[object] = value if isinstance(value, list | tuple) else [value]
    for name in names:
        if str(name).partition(".")[0].partition("[")[0] in BOUNDING:
            return BrokenRule("", f"must not name {str(name)!r:.60}, which bounds the cost")
    return None


def _retries(value: object) -> BrokenRule | None:
    if isinstance(value, int) and value == 0:
        return None
    return BrokenRule("", f"must be 0, got {value!r:.20}: nothing is reserved for retries there, use num_retries")


def _priority(value: object) -> BrokenRule | None:
    """Return the rule that a place in LiteLLM's queue breaks: LiteLLM sends others on to the provider."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return None
    return BrokenRule("", f"must be a whole number from 1, got {value!r:.20}")


def _object_of_litellm(value: object) -> BrokenRule | None:
    """Return the rule that a value of JSON breaks where LiteLLM keeps an object of its own."""
    if isinstance(value, str | int | float | list | dict):
        return BrokenRule("", "is set by LiteLLM itself: leave it out")
    return None


def _first_other(value: object, allowed: frozenset[str], rule: str) -> BrokenRule | None:
    """Return the rule that the first key of an object breaks which is not allowed."""
    if not isinstance(value, Mapping):
        return BrokenRule("", f"must be an object, got {type(value).__name__}")
    other = next((str(name) for name in value if name not in allowed), None)
    return None if other is None else BrokenRule(f".{other:.40}", rule)


CHECKS: Mapping[str, Check] = {
    "_alias_marker_forwarded_params": _object_of_litellm,
    "_encrypted_content_affinity_pinned": _only(True),
    "_mid_stream_fallback_controls": _object_of_litellm,
    "additional_drop_params": _dropped,
    "background": _only(False),
    "client": _object_of_litellm,
    "complete_response": _only(False),
    "context_management": _context_management,
    "conversation": _keys_of("id"),
    "deployment": _object_of_litellm,
    "extra_body": _extra_body,
    "extra_headers": _extra_headers,
    "headers": _headers,
    "include_fallback_errors": _only(True, False),
    "input": _items,
    "inference_geo": _only("global", "not_available"),
    "max_retries": _retries,
    "modalities": _modalities,
    "output_config": _keys_of("effort", "format", "task_budget"),
    "priority": _priority,
    "provider_specific_header": _provider_headers,
    "reasoning": _reasoning,
    "service_tier": _service_tier,
    "speed": _only("standard"),
    "stream_options": _keys_of("include_usage", "include_obfuscation"),
    "thinking": _keys_of("type", "budget_tokens", "display"),
    "tools": broken_tool_rule,
    "user_api_key_auth": _object_of_litellm,
}
"""The check of each parameter whose value matters; null is never checked."""
