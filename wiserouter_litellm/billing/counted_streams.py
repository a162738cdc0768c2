"""Streams that report no usage: LiteLLM counts their tokens itself, and its answer does not say so.

A provider may bill more tokens than such a count has, so it bounds no bill. It is recognised by counting again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import litellm

from wiserouter_litellm.billing.redacted_texts import REDACTED


def may_be_counted(kwargs: Mapping[str, Any], response: object) -> bool:
    """Return True if the usage of a streamed chat answer lacks the details that only a provider knows."""
    usage = getattr(response, "usage", None)
    if not kwargs.get("stream") or usage is None or not hasattr(response, "choices"):
        return False
    return getattr(usage, "prompt_tokens_details", None) is None


def is_counted(kwargs: Mapping[str, Any], response: Any) -> bool:
    """Return True if a streamed answer has exactly the tokens that LiteLLM counts where the provider reports none.

    Parameters
    ----------
    kwargs : mapping
        The event, as loggers get it.
    response : object
        The answer that LiteLLM put together.

    Notes
    -----
    A provider whose report agrees with LiteLLM's count of both prompt and answer is mistaken for one that reports
    nothing; where LiteLLM redacts the answer, so is one whose report agrees on the prompt. Counting takes time, and
    LiteLLM loads the tokenizers of some models first: not on an event loop.
    """
    if not may_be_counted(kwargs, response):
        return False
    model, usage = str(getattr(response, "model", None) or kwargs.get("model")), response.usage
    answer_agrees = _is_redacted(response) or usage.completion_tokens == _count_of_answer(model, response)
    return bool(answer_agrees and usage.prompt_tokens == _count_of_prompt(model, kwargs))


def has_counted_prompt(kwargs: Mapping[str, Any], response: object, input_tokens: int) -> bool:
    """Return True if a prompt has exactly the tokens that LiteLLM counts in its messages; not on an event loop."""
    return input_tokens == _count_of_prompt(str(getattr(response, "model", None) or kwargs.get("model")), kwargs)


def _is_redacted(response: Any) -> bool:
    """Return True if LiteLLM redacts the text of an answer, after it has counted it."""
    messages = [message for choice in response.choices if (message := getattr(choice, "message", None)) is not None]
    return any(message.content == REDACTED for message in messages)


def _count_of_answer(model: str, response: Any) -> int:
    """Return LiteLLM's count of an answer: of its text and its calls, and of its reasoning apart."""
    messages = [message for choice in response.choices if (message := getattr(choice, "message", None)) is not None]
    thoughts = [thought for message in messages if (thought := getattr(message, "reasoning_content", None))]
    written = "".join(map(_written, messages))
    counted = litellm.token_counter(model=model, text=written, count_response_tokens=True)
    return int(counted + sum(litellm.token_counter(text=each, count_response_tokens=True) for each in thoughts))


def _written(message: Any) -> str:
    calls = [message.function_call] if getattr(message, "function_call", None) else []
    calls += getattr(message, "tool_calls", None) or []
    return (message.content or "") + "".join(call.model_dump_json() for call in calls)


def _count_of_prompt(model: str, kwargs: Mapping[str, Any]) -> int:
    try:
        return int(litellm.token_counter(model=model, messages=kwargs.get("messages") or []))
    except Exception:  # LiteLLM takes a prompt that it cannot count for an empty one
        return 0
