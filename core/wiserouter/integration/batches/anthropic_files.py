"""The files of Anthropic's Message Batches: https://docs.anthropic.com/en/api/creating-message-batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter.integration.batches.chat_messages import Image, chosen_parameters, output_names, split_messages
from wiserouter.integration.batches.results import BatchResult, Outcome
from wiserouter.pricing.usage_shapes import usage_from

_NAMES = {**output_names("max_tokens"), "stop": "stop_sequences", "thinking": "thinking"}
"""Sampling parameters, such as the temperature, are no longer part of the API."""

_NOT_RUN: dict[str, Outcome] = {"expired": "expired", "canceled": "canceled"}


def anthropic_request(custom_id: str, model: str, body: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Return the entry of a request in `requests`.

    Examples
    --------
    >>> anthropic_request("a", "claude", {"messages": [{"role": "user", "content": "hi"}]}, 100)["params"]
    {'max_tokens': 100, 'model': 'claude', 'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'hi'}]}]}
    """
    system, turns = split_messages(body, "Anthropic")
    params = {"max_tokens": max_tokens, **chosen_parameters(body, _NAMES, "Anthropic"), "model": model}
    if system:
        params["system"] = system
    params["messages"] = [{"role": role, "content": [_block(part) for part in parts]} for role, parts in turns]
    return {"custom_id": custom_id, "params": params}


def _block(part: str | Image) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.url:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}


def anthropic_result(line: Mapping[str, Any]) -> BatchResult | None:
    """Return the result that a line of a results file holds; None for another line.

    Examples
    --------
    >>> anthropic_result({"custom_id": "a", "result": {"type": "expired"}}).outcome
    'expired'
    """
    result = line.get("result")
    if "custom_id" not in line or not isinstance(result, Mapping):
        return None
    name, kind = line["custom_id"], result.get("type")
    if kind == "succeeded":
        usage = result["message"].get("usage")
        return BatchResult(name, "succeeded", usage_from(usage) if usage else None)
    if kind in _NOT_RUN:
        return BatchResult(name, _NOT_RUN[kind], error=kind)
    error = result.get("error") or {}
    inner = error.get("error") or error
    return BatchResult(name, "errored", error=str(inner.get("message") or inner.get("type") or "errored"))
