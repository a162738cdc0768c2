"""The files of Gemini's Batch API: https://ai.google.dev/gemini-api/docs/batch-api; the model is named at the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.chat_messages import Image, chosen_parameters, output_names, split_messages
from wiserouter.integration.batches.results import BatchResult
from wiserouter.pricing.prices import Usage

_NAMES = {
    **output_names("maxOutputTokens"),
    "stop": "stopSequences",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
}
_ROLES = {"user": "user", "assistant": "model"}


def gemini_request(custom_id: str, model: str, body: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Return the line of a request.

    Examples
    --------
    >>> gemini_request("a", "gemini", {"messages": [{"role": "user", "content": "hi"}]}, 100)
    {'key': 'a', 'request': {'contents': [{'role': 'user', 'parts': [{'text': 'hi'}]}]}}
    """
    del model, max_tokens
    system, turns = split_messages(body, "Gemini")
    contents = [{"role": _ROLES[role], "parts": [_part(part) for part in parts]} for role, parts in turns]
    request: dict[str, Any] = {"contents": contents}
    if system:
        request["systemInstruction"] = {"parts": [{"text": system}]}
    config = chosen_parameters(body, _NAMES, "Gemini")
    return {"key": custom_id, "request": request | ({"generationConfig": config} if config else {})}


def _part(part: str | Image) -> dict[str, Any]:
    if isinstance(part, str):
        return {"text": part}
    if part.url:
        raise InvalidInput("an image needs its bytes in base64 for Gemini's batches, got an address", value=part.url)
    return {"inlineData": {"mimeType": part.media_type, "data": part.data}}


def gemini_result(line: Mapping[str, Any]) -> BatchResult | None:
    """Return the result that a line of a results file holds; None for another line.

    Examples
    --------
    >>> gemini_result({"key": "a", "error": {"code": 13, "message": "internal"}})
    BatchResult(custom_id='a', outcome='errored', usage=None, error='internal')
    """
    if "key" not in line or "request" in line:
        return None
    name, response = line["key"], line.get("response")
    if isinstance(response, Mapping):
        usage = response.get("usageMetadata") or response.get("usage_metadata")
        return BatchResult(name, "succeeded", _usage(usage) if usage else None)
    error = line.get("error") or line.get("status") or {}
    return BatchResult(name, "errored", error=str(error.get("message") or error.get("code") or "errored"))


def _usage(block: Mapping[str, Any]) -> Usage:
    """Return the tokens of a call: thoughts are part of the output, cached ones of the prompt."""

    def count(name: str) -> int:
        snake = "".join(f"_{one.lower()}" if one.isupper() else one for one in name)
        return int(block.get(name) or block.get(snake) or 0)

    prompt = count("promptTokenCount") + count("toolUsePromptTokenCount")
    thoughts = count("thoughtsTokenCount")
    cached = min(count("cachedContentTokenCount"), prompt)
    output = count("candidatesTokenCount") + thoughts
    return Usage(prompt, output, cache_read_tokens=cached, reasoning_tokens=thoughts)
