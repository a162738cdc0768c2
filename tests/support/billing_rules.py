"""The rules by which the billing stub reads a body and bills it: an oracle that shares no code with what it tests.

The reading is the most expensive one: of several limits the highest counts, a limit that is no positive number is none,
and a parameter that is not known to be free costs a dollar.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from support.providers import INPUT_USD, OUTPUT_USD

PRICES = {name: (INPUT_USD[name], OUTPUT_USD[name]) for name in INPUT_USD}
"""USD per token of input and of output, by model."""

MAX_OUTPUT_TOKENS = 4_096
MAX_INPUT_TOKENS = 8_000
MESSAGE_TOKENS, TOOLS_TOKENS, MEDIA_TOKENS, STORED_TOKENS = 4, 346, 1_500, 2_000
TOOL_FEE_USD, UNKNOWN_FEE_USD = 0.03, 1.0
OTHER_CALL_USD = 0.02
"""The price of an image, a minute of audio, a search: of any call whose tokens are not counted."""

LIMITS = frozenset(
    {
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens_to_sample"),
        *("maxOutputTokens", "maxTokens", "num_predict", "max_length", "max_gen_len", "min_tokens"),
    }
)
ANSWERS = frozenset(
    {"n", "best_of", "candidate_count", "candidateCount", "num_return_sequences", "num_generations", "numResults"}
)
CONTENT = frozenset({"messages", "input", "prompt", "system", "instructions", "suffix"})
SCHEMAS = frozenset({"tools", "functions", "response_format", "text", "output_config", "output_format"})
FREE = frozenset(
    {
        *("model", "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "stop", "stop_sequences"),
        *("seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "logprobs"),
        *("top_logprobs", "user", "metadata", "tool_choice", "function_call", "parallel_tool_calls", "echo"),
        *("reasoning_effort", "reasoning", "thinking", "verbosity", "store", "include", "truncation", "max_tool_calls"),
        *("safety_identifier", "prompt_cache_key", "prompt_cache_retention", "cache_control", "background"),
        *("modalities", "dimensions", "encoding_format", "context_management", "prompt_cache_options"),
        *("chat_template_kwargs", "guided_choice", "guided_grammar", "guided_json", "guided_regex"),
        *("stop_token_ids", "top_a", "typical_p", "ignore_eos", "effort"),
    }
)
"""Parameters that change neither the number of tokens beyond the limit nor their price."""

PRICED = frozenset(
    {
        *("service_tier", "speed", "inference_geo", "prediction", "audio", "web_search_options", "mcp_servers"),
        *("previous_response_id", "conversation", "container"),
    }
)
"""Parameters with a price of their own below."""

CLIENT_TOOLS = ("function", "custom", "local_shell", "apply_patch", "computer", "bash", "text_editor", "memory")
_NOT_TEXT = frozenset({"type", "id", "url", "data", "file_data", "signature", "encrypted_content", "cache_control"})
_MEDIA = frozenset({"image_url", "input_image", "image", "input_audio", "input_file", "file", "document", "video_url"})


class Tokens(NamedTuple):
    """What a body asks for: tokens of input and of output, prompts, answers to each, and fees and factors."""

    input: int
    output: int
    answers: int
    factor: float
    fees_usd: float

    def cost_usd(self, prices: tuple[float, float]) -> float:
        return self.factor * (self.input * prices[0] + self.output * prices[1]) + self.fees_usd


def read(body: Mapping[str, Any], output_tokens: int | None = None) -> Tokens:
    """Return what a body asks for; each answer has as many tokens as its limit, or `output_tokens` if that is fewer."""
    prompts = body.get("prompt") if "messages" not in body and "input" not in body else None
    answers = _answers(body) * _n_prompts(prompts)
    each = min(limit_of(body), MAX_OUTPUT_TOKENS if output_tokens is None else output_tokens)
    extra = text_tokens(body["prediction"]) if body.get("prediction") else 0
    return Tokens(input_tokens(body), each * answers + extra, answers, _factor(body), _fees_usd(body))


def input_tokens(body: Mapping[str, Any]) -> int:
    messages = body.get("messages", body.get("input"))
    n_messages = len(messages) if isinstance(messages, list) else 1
    content = sum(text_tokens(body[name]) for name in CONTENT & body.keys())
    given = [body[name] for name in SCHEMAS & body.keys() if body[name]]
    schemas = sum(text_tokens(json.dumps(one, ensure_ascii=False)) for one in given)
    tools = TOOLS_TOKENS if body.get("tools") or body.get("functions") else 0
    media = MEDIA_TOKENS * sum(1 for _ in _media(messages))
    stored = STORED_TOKENS if body.get("previous_response_id") or body.get("conversation") else 0
    return content + schemas + tools + media + stored + MESSAGE_TOKENS * (n_messages + 1)


def limit_of(body: Mapping[str, Any]) -> int:
    """Return the highest limit of one answer that stands anywhere outside the content; else the model's own."""
    given = [value for name, value in _parameters(body) if name in LIMITS and value is not None]
    limits = [_positive(value) or MAX_OUTPUT_TOKENS for value in given]
    return min(max(limits, default=MAX_OUTPUT_TOKENS), MAX_OUTPUT_TOKENS)


def text_tokens(value: object) -> int:
    """Return the tokens of all text in a value; a whole number is the id of one token."""
    if isinstance(value, str):
        return len(encoding().encode_ordinary(value))
    if isinstance(value, Mapping):
        return sum(text_tokens(inner) for name, inner in value.items() if name not in _NOT_TEXT)
    if isinstance(value, list):
        return sum(text_tokens(inner) for inner in value)
    return 1 if isinstance(value, int) and not isinstance(value, bool) else 0


@lru_cache(maxsize=1)
def encoding() -> Any:
    """Return o200k_base from the file that LiteLLM brings, without importing LiteLLM."""
    import tiktoken

    found = find_spec("litellm")
    folder = Path((found.submodule_search_locations or [""])[0]) / "litellm_core_utils" / "tokenizers"
    with mock.patch.dict(os.environ, TIKTOKEN_CACHE_DIR=str(folder)):
        return tiktoken.get_encoding("o200k_base")


def _answers(body: Mapping[str, Any]) -> int:
    given = (_positive(value) or 1 for name, value in _parameters(body) if name in ANSWERS)
    return max(given, default=1)


def _n_prompts(prompt: object) -> int:
    if not isinstance(prompt, list) or all(isinstance(one, int) for one in prompt):
        return 1
    return len(prompt)


def _parameters(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all parameters, those of nested objects too, but nothing that is content."""
    for name, value in body.items():
        if name in CONTENT or name in SCHEMAS or name in {"metadata", "prediction"}:
            continue
        yield name, value
        if isinstance(value, Mapping) and (name not in FREE or name in {"reasoning", "thinking"}):
            yield from _parameters(value)


def _positive(value: object) -> int | None:
    """Return a limit as the most lenient provider reads it; None for what limits nothing."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return int(number) if math.isfinite(number) and number >= 1 else None


def _media(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        if value.get("type") in _MEDIA:
            yield value
        for inner in value.values():
            yield from _media(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _media(inner)


def _factor(body: Mapping[str, Any]) -> float:
    tier = 2.0 if str(body.get("service_tier")) in {"priority", "fast", "ultrafast"} else 1.0
    speed = 6.0 if body.get("speed") == "fast" else 1.0
    region = 1.1 if body.get("inference_geo") else 1.0
    audio = 8.0 if body.get("audio") or any(kind != "text" for kind in _items(body.get("modalities"))) else 1.0
    return tier * speed * region * audio


def _fees_usd(body: Mapping[str, Any]) -> float:
    hosted = sum(_is_hosted(tool) for tool in _items(body.get("tools")))
    hosted += sum(bool(body.get(name)) for name in ("web_search_options", "mcp_servers", "container"))
    unknown = body.keys() - LIMITS - ANSWERS - CONTENT - SCHEMAS - FREE - PRICED
    return TOOL_FEE_USD * hosted + UNKNOWN_FEE_USD * sum(body[name] is not None for name in unknown)


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _is_hosted(tool: object) -> bool:
    kind = tool.get("type", "function") if isinstance(tool, Mapping) else "function"
    return not str(kind).startswith(CLIENT_TOOLS)
