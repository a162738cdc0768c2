"""The usage blocks of OpenAI, Anthropic and LangChain as a `Usage`; mappings, or objects of their clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.pricing.prices import Usage

UsageLike = Usage | Mapping[str, Any] | object
"""A `Usage`, or a usage block of a provider or a framework."""

_INPUT, _OUTPUT = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details", "output_token_details")


def usage_from(block: UsageLike) -> Usage:
    """Return the tokens that a provider's or a framework's usage block counts.

    Parameters
    ----------
    block : Usage, mapping or object
        The usage of OpenAI's chat completions, embeddings or responses, of Anthropic's messages, of LiteLLM, or
        LangChain's `usage_metadata`.

    Returns
    -------
    Usage
        Cached tokens are part of the input, which Anthropic counts apart. Parts that exceed their whole are cut.

    Raises
    ------
    InvalidInput
        If the block counts neither input nor output, or a count is no whole number of at least 0.

    Examples
    --------
    >>> usage_from({"prompt_tokens": 9, "completion_tokens": 5}).output_tokens
    5
    >>> usage_from({"input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": 90}).input_tokens
    99
    """
    if isinstance(block, Usage):
        return block
    if not any(_get(block, name) is not None for name in (*_INPUT, *_OUTPUT)):
        raise InvalidInput(
            f"usage must be a Usage, or a usage block of OpenAI, Anthropic or LangChain with prompt_tokens or "
            f"input_tokens, got {type(block).__name__}",
            value=block,
        )
    prompt, answer = _count(block, _INPUT), _count(block, _OUTPUT)
    read = _count(_first(block, _INPUT_DETAILS), ("cached_tokens", "cache_read"))
    written = _count(_first(block, _INPUT_DETAILS), ("cache_creation", "cache_creation_tokens"))
    if _get(block, "prompt_tokens") is None:  # Anthropic's, whose input is what the cache did not hold
        own_read, own_written = (
            _count(block, (name,)) for name in ("cache_read_input_tokens", "cache_creation_input_tokens")
        )
        prompt, read, written = prompt + own_read + own_written, read + own_read, written + own_written
    reasoning = _count(_first(block, _OUTPUT_DETAILS), ("reasoning_tokens", "reasoning"))
    read = min(read, prompt)
    return Usage(prompt, answer, read, min(written, prompt - read), min(reasoning, answer))


def _count(block: Any, names: tuple[str, ...]) -> int:
    """Return the first count of these names; 0 where there is none."""
    value = _first(block, names)
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if number is None:
        return 0
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise InvalidInput(f"{names[0]} must be a whole number of at least 0, got {value!r:.60}", value=value)
    return number


def _first(block: Any, names: tuple[str, ...]) -> Any:
    return next((value for name in names if (value := _get(block, name)) is not None), None)


def _get(block: Any, name: str) -> Any:
    return block.get(name) if isinstance(block, Mapping) else getattr(block, name, None)
