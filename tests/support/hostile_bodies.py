"""Request bodies that try to make a call cost more than was bounded, for every text surface of a proxy.

A body is an overlay of a harmless one. The key LIMIT stands for the surface's own name of the output limit, and INPUT
for that of its question.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

SURFACES = ("chat", "streams", "completions", "responses", "messages")
LIMITS = {"responses": "max_output_tokens"}
INPUTS = {"completions": "prompt", "responses": "input"}
QUESTION = "What is the capital of France?"
HI = [{"role": "user", "content": QUESTION}]

NOT_TEXT = ("chat", "streams", "messages")
CHATS = ("chat", "streams")
OPENAI = ("chat", "streams", "completions", "responses")


@dataclass(frozen=True)
class Body:
    """One overlay, what a hard budget makes of it, and the surfaces that it is for.

    Attributes
    ----------
    overlay : mapping
        Replaces parts of a harmless body.
    hard : str
        "served", "refused", or "either" where LiteLLM decides.
    surfaces : tuple of str
        Where it is sent.
    """

    overlay: Mapping[str, Any]
    hard: str = "either"
    surfaces: tuple[str, ...] = SURFACES


def function(name: str = "weather", text: str = "tells the weather") -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": text, "parameters": parameters}}


def claude_tool(name: str = "weather") -> dict[str, Any]:
    return {"name": name, "description": "tells the weather", "input_schema": {"type": "object", "properties": {}}}


def flat_function() -> dict[str, Any]:
    return {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


LIMIT_BODIES = {
    "limit-none": Body({"LIMIT": None}, "either"),
    "limit-absent": Body({"LIMIT": "ABSENT"}, "either"),
    "limit-text": Body({"LIMIT": "40"}, "served"),
    "limit-float": Body({"LIMIT": 40.0}, "served"),
    "limit-one": Body({"LIMIT": 1}, "served"),
    "limit-huge": Body({"LIMIT": 10**9}, "served"),
    **{
        f"limit-{name}": Body({"LIMIT": value}, "refused")
        for name, value in {
            "minus": -1,
            "zero": 0,
            "word": "many",
            "empty": "",
            "fraction": 40.5,
            "true": True,
            "list": [40],
            "object": {"value": 40},
            "beyond": 10**12,
            "overflow": 1e308,
            "blank": " 40",
            "exponent": "1e3",
            "wide": "\N{FULLWIDTH DIGIT SEVEN}",
            "minus-text": "-1",
            "nan": math.nan,
            "infinite": math.inf,
        }.items()
    },
    "limit-twice": Body({"max_tokens": 5, "max_completion_tokens": 60}, "served", CHATS),
    "limit-of-chat": Body({"max_tokens": 5, "LIMIT": "ABSENT"}, "refused", ("responses",)),
    "limit-of-responses": Body({"max_output_tokens": 5}, "refused", ("chat", "streams", "completions", "messages")),
    "limit-of-newer-chat": Body({"max_completion_tokens": 5}, "refused", ("responses", "messages")),
}

ANSWER_BODIES = {
    "n-text": Body({"n": "7"}, "served", ("chat", "streams", "completions")),
    "n-number": Body({"n": 7}, "served", ("chat", "streams", "completions")),
    "n-foreign": Body({"n": 20}, "refused", ("responses", "messages")),
    "best-of": Body({"best_of": 9}, "served", ("completions",)),
    "best-of-text": Body({"best_of": "9", "n": 2}, "served", ("completions",)),
    **{
        f"n-{name}": Body({"n": value}, "refused")
        for name, value in {"minus": -1, "zero": 0, "true": True, "word": "x", "beyond": 5_000, "list": [2]}.items()
    },
    "n-none": Body({"n": None}, "served"),
    **{
        f"alias-{name}": Body({name: 500}, "refused")
        for name in ("max_new_tokens", "max_tokens_to_sample", "maxOutputTokens", "num_predict", "min_tokens")
    },
    **{
        f"alias-{name}": Body({name: 30}, "refused")
        for name in ("candidate_count", "candidateCount", "num_return_sequences", "num_generations")
    },
    "alias-beams": Body({"use_beam_search": True}, "refused"),
    "alias-nested": Body({"generationConfig": {"maxOutputTokens": 4_000}}, "refused"),
    "extra-body-n": Body({"extra_body": {"n": 20}}, "refused"),
    "extra-body-limit": Body({"extra_body": {"max_tokens": 4_000}}, "refused"),
    "extra-body-text": Body({"extra_body": "max_tokens"}, "refused"),
    "extra-body-nested": Body({"extra_body": {"extra_body": {"n": 20}}}, "refused"),
    "extra-body-free": Body({"extra_body": {"top_k": 5}}, "served", CHATS),
    "drop": Body({"drop_params": True}, "refused"),
    "drop-limit": Body({"additional_drop_params": ["LIMIT"]}, "refused"),
    "drop-limit-text": Body({"additional_drop_params": "LIMIT"}, "refused"),
    "drop-path": Body({"additional_drop_params": ["max_tokens[0].x"]}, "refused"),
    "drop-usage": Body({"additional_drop_params": ["stream_options"]}, "refused"),
}

PRICE_BODIES = {
    "tier-priority": Body({"service_tier": "priority"}, "refused"),
    "tier-fast": Body({"service_tier": "fast"}, "refused"),
    "tier-unknown": Body({"service_tier": "turbo"}, "refused"),
    "tier-number": Body({"service_tier": 5}, "refused"),
    "tier-auto": Body({"service_tier": "auto"}, "served", ("chat", "streams", "responses")),
    "speed": Body({"speed": "fast"}, "refused"),
    "geo": Body({"inference_geo": "us"}, "refused"),
    "audio": Body({"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}, "refused"),
    "modalities": Body({"modalities": ["image"]}, "refused"),
    "prediction": Body({"prediction": {"type": "content", "content": "word " * 900}}, "refused"),
    "search": Body({"web_search_options": {}}, "refused"),
    "mcp-servers": Body({"mcp_servers": [{"type": "url", "url": "http://x", "name": "x"}]}, "refused"),
    "container": Body({"container": "c1"}, "refused"),
    "unknown": Body({"turbo_mode": True}, "refused"),
    "unknown-private": Body({"_turbo": 1}, "refused"),
    "unknown-accented": Body({"tempér\N{LATIN SMALL LETTER A WITH GRAVE}ture": 1}, "refused"),
    "unknown-long": Body({"x" * 3_000: 1}, "refused"),
    "price": Body({"input_cost_per_token": 1e-12, "output_cost_per_token": 1e-12}, "either"),
    "base-model": Body({"base_model": "gpt-4o-mini"}, "either"),
    "provider": Body({"custom_llm_provider": "azure"}, "either"),
    "prompt-id": Body({"prompt_id": "p1"}, "either"),
    "system-prompt": Body({"litellm_system_prompt": "word " * 900}, "either"),
    "headers": Body({"extra_headers": {"X-Vertex-AI-LLM-Shared-Request-Type": "priority"}}, "either"),
    "query": Body({"extra_query": {"tier": "priority"}}, "either"),
    "client-retries": Body({"max_retries": 5}, "either"),
    "plugins": Body({"plugins": [{"id": "web"}]}, "refused"),
    "more-models": Body({"models": ["large", "small"]}, "refused"),
    "reasoning-limit": Body({"reasoning": {"max_tokens": 4_000}}, "refused"),
    "reasoning-pro": Body({"reasoning": {"effort": "low", "mode": "pro"}}, "refused"),
    "thinking-limit": Body({"thinking": {"type": "enabled", "max_tokens": 4_000}}, "refused"),
    "moderation": Body({"moderation": {"model": "m"}}, "refused"),
}

TOOL_BODIES = {
    "tools": Body({"tools": [function()], "tool_choice": "auto"}, "served", CHATS),
    "tools-many": Body({"tools": [function(f"f{i}", "word " * 20) for i in range(20)]}, "served", CHATS),
    "tools-flat": Body({"tools": [flat_function()]}, "served", ("responses",)),
    "tools-claude": Body({"tools": [claude_tool()]}, "served", ("messages",)),
    "tools-bash": Body({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "served", ("messages",)),
    "functions": Body({"functions": [function()["function"]]}, "either", CHATS),
    **{
        f"tools-{kind}": Body({"tools": [{"type": kind, "name": "x"}]}, "refused")
        for kind in (
            *("web_search", "web_search_20250305", "web_search_preview", "code_interpreter", "file_search", "mcp"),
            *("image_generation", "code_execution_20250522", "web_fetch_20250910", "tool_search_tool_bm25_20251119"),
        )
    },
    "tools-google": Body({"tools": [{"googleSearch": {}}]}, "refused"),
    "tools-text": Body({"tools": "weather"}, "refused"),
    "tools-words": Body({"tools": ["weather"]}, "refused"),
    "context": Body({"context_management": {"edits": [{"type": "compact_20260112"}]}}, "refused"),
    "context-clear": Body(
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "either", ("messages",)
    ),
    "background": Body({"background": True}, "refused"),
    "background-false": Body(
        {"background": False, "truncation": "auto", "max_tool_calls": 3}, "served", ("responses",)
    ),
    "stored": Body({"previous_response_id": "resp_1"}, "either", ("responses",)),
    "stored-foreign": Body(
        {"previous_response_id": "resp_1"}, "refused", ("chat", "streams", "completions", "messages")
    ),
    "conversation": Body({"conversation": "conv_1"}, "either", ("responses",)),
    "conversation with a limit": Body({"conversation": {"id": "c", "maxOutputTokens": 9}}, "refused", ("responses",)),
    "stored-prompt": Body({"prompt": {"id": "pmpt_1"}}, "refused", ("responses", "chat", "streams", "messages")),
    "compaction": Body({"input": [{"type": "compaction_trigger"}]}, "refused", ("responses",)),
    "more-tools": Body(
        {"input": [{"type": "additional_tools", "tools": [{"type": "web_search"}]}]}, "refused", ("responses",)
    ),
    "reference": Body({"input": [*HI, {"type": "item_reference", "id": "msg_1"}]}, "either", ("responses",)),
    "tool-result": Body(
        {"input": [*HI, {"type": "function_call_output", "call_id": "c", "output": "9 degrees"}]},
        "served",
        ("responses",),
    ),
}

HARMLESS = {
    "plain": Body({}, "served"),
    "sampling": Body({"temperature": 0.2, "top_p": 0.9}, "served"),
    "penalties": Body(
        {"presence_penalty": 0.5, "frequency_penalty": 0.5, "seed": 3}, "served", ("chat", "completions")
    ),
    "stop": Body({"stop": ["\n"]}, "served", ("chat", "streams", "completions")),
    "stop-sequences": Body({"stop_sequences": ["\n"], "top_k": 5}, "served", ("messages",)),
    "labels": Body({"user": "ann", "metadata": {"team": "a"}}, "served", OPENAI),
    "metadata": Body({"metadata": {"user_id": "ann"}}, "served"),
    "logprobs": Body({"logprobs": True, "top_logprobs": 2}, "served", CHATS),
    "bias": Body({"logit_bias": {"50256": -100}}, "served", CHATS),
    "json": Body({"response_format": {"type": "json_object"}}, "served", CHATS),
    "schema": Body({"text": {"format": {"type": "text"}, "verbosity": "low"}}, "served", ("responses",)),
    "cache": Body({"prompt_cache_key": "k", "safety_identifier": "s"}, "served", ("chat", "responses")),
    "store": Body({"store": True}, "served", ("chat", "responses")),
    "text-only": Body({"modalities": ["text"]}, "served", CHATS),
    "parallel": Body({"tools": [function()], "parallel_tool_calls": False}, "served", CHATS),
    "thinking": Body(
        {"thinking": {"type": "enabled", "budget_tokens": 1_024}, "LIMIT": 2_000}, "served", ("messages",)
    ),
    "usage-off": Body({"stream_options": {"include_usage": False}}, "served", ("streams",)),
    "usage-none": Body({"stream_options": None}, "served", ("streams", "chat")),
    "litellm": Body({"num_retries": 2, "tags": ["a"], "cache": {"no-cache": True}, "guardrails": []}, "served"),
    "system": Body({"system": "Be brief.", "cache_control": {"type": "ephemeral"}}, "either", ("messages",)),
    "instructions": Body({"instructions": "Be brief. " * 50}, "served", ("responses",)),
    "suffix": Body({"suffix": "word " * 300}, "served", ("completions",)),
    "echo": Body({"echo": True, "logprobs": 2}, "served", ("completions",)),
}

INPUT_BODIES = {
    "no-messages": Body({"INPUT": []}),
    "null-messages": Body({"INPUT": None}),
    "object-messages": Body({"INPUT": {"role": "user"}}),
    "number-messages": Body({"INPUT": 7}),
    "null-message": Body({"INPUT": [None]}),
    "list-message": Body({"INPUT": [[]]}),
    "deep-message": Body({"INPUT": [{"role": "user", "content": nested(150)}]}),
    "text-messages": Body({"messages": "hello"}, surfaces=NOT_TEXT),
    "placeholder": Body({"messages": [{"role": "user", "content": "prompt"}]}, "served", NOT_TEXT),
    "no-content": Body({"messages": [{"role": "user"}]}, surfaces=NOT_TEXT),
    "null-content": Body({"messages": [{"role": "user", "content": None}]}, surfaces=NOT_TEXT),
    "empty-content": Body({"messages": [{"role": "user", "content": []}]}, surfaces=NOT_TEXT),
    "word-contents": Body({"messages": [{"role": "user", "content": ["a"] * 30}]}, surfaces=NOT_TEXT),
    "many-parts": Body(
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 200}]}, "served", NOT_TEXT
    ),
    "many-messages": Body(
        {"messages": [{"role": r, "content": "a"} for r in ("user", "assistant") * 150] + HI}, "served", NOT_TEXT
    ),
    "special-tokens": Body(
        {"messages": [{"role": "user", "content": "<|endoftext|><|im_start|>" * 40}]}, "served", NOT_TEXT
    ),
    "emoji": Body(
        {"messages": [{"role": "user", "content": "\N{PILE OF POO}\N{VARIATION SELECTOR-16}" * 200}]},
        "served",
        NOT_TEXT,
    ),
    "surrogate": Body({"messages": [{"role": "user", "content": "\ud800" * 20}]}, surfaces=NOT_TEXT),
    "long": Body({"messages": [{"role": "user", "content": "word " * 1_200}]}, "served", NOT_TEXT),
    "too-long": Body({"messages": [{"role": "user", "content": "word " * 40_000}]}, "refused", NOT_TEXT),
    "named": Body({"messages": [{"role": "user", "content": "hi", "name": "n" * 400}]}, surfaces=NOT_TEXT),
    "tool-turn": Body(
        {
            "messages": [
                *HI,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}" * 300}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "9 degrees"},
            ]
        },
        "served",
        CHATS,
    ),
    "image": Body(
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    ],
                }
            ]
        },
        "served",
        CHATS,
    ),
    "sound": Body(
        {
            "messages": [
                {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}
            ]
        },
        "either",
        CHATS,
    ),
    "spoken": Body({"messages": [*HI, {"role": "assistant", "audio": {"id": "audio_1"}}, *HI]}, "either", CHATS),
    "unknown-part": Body(
        {"messages": [{"role": "user", "content": [{"type": "hologram", "id": "h1"}]}]}, "either", NOT_TEXT
    ),
    "picture": Body(
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
                    ],
                }
            ]
        },
        "either",
        ("messages",),
    ),
    "prompts": Body({"prompt": [f"prompt {i}" for i in range(40)]}, "served", ("completions",)),
    "prompts-empty": Body({"prompt": [""] * 30}, "served", ("completions",)),
    "token-ids": Body({"prompt": [15496, 0, 50256]}, "served", ("completions",)),
    "token-id-lists": Body({"prompt": [[15496, 0], [50256], [11, 11]]}, "served", ("completions",)),
    "prompts-mixed": Body({"prompt": ["a", 5, [7]]}, surfaces=("completions",)),
    "prompts-and-n": Body({"prompt": ["a", "b", "c"], "n": "3"}, "served", ("completions",)),
    "empty-prompt": Body({"prompt": ""}, surfaces=("completions",)),
}

BODIES = LIMIT_BODIES | ANSWER_BODIES | PRICE_BODIES | TOOL_BODIES | HARMLESS | INPUT_BODIES


def cases() -> Iterator[tuple[str, str]]:
    """Yield each surface with each body that is sent to it."""
    for name, body in BODIES.items():
        yield from ((surface, name) for surface in body.surfaces)


def marked_cases():
    """Return all cases as parameters of a test: each body on one surface, all surfaces in turn, the rest as slow."""
    first = {name: body.surfaces[i % len(body.surfaces)] for i, (name, body) in enumerate(BODIES.items())}
    return [
        pytest.param(surface, name, marks=[] if first[name] == surface else [pytest.mark.slow])
        for surface, name in cases()
    ]


def overlay_for(surface: str, body: Body) -> dict[str, Any]:
    """Return the overlay with the surface's own names."""
    names = {"LIMIT": LIMITS.get(surface, "max_tokens"), "INPUT": INPUTS.get(surface, "messages")}

    def named(value: Any) -> Any:
        if isinstance(value, list) and len(value) < 3:
            return [named(one) for one in value]
        return names.get(value, value) if isinstance(value, str) else value

    return {names.get(key, key): named(value) for key, value in body.overlay.items()}


def body_for(surface: str, model: str, body: Body) -> dict[str, Any]:
    """Return a whole body: a harmless one of at most 30 tokens, with the overlay; ABSENT takes a key out."""
    question = QUESTION if surface in INPUTS else HI
    base = {"model": model, INPUTS.get(surface, "messages"): question, LIMITS.get(surface, "max_tokens"): 30}
    if surface == "streams":
        base["stream"] = True
    whole = {**base, **overlay_for(surface, body)}
    return {key: value for key, value in whole.items() if not (isinstance(value, str) and value == "ABSENT")}
