"""Stand-ins for model providers: OpenAI-shaped answers with usage, over respx or a real socket on 127.0.0.1."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx

URL = "http://provider.test/v1"
INPUT_USD, OUTPUT_USD = {"small": 1e-6, "large": 1e-5}, {"small": 2e-6, "large": 3e-5}
TOKENS = (20, 50)
"""Prompt and completion tokens of every answer."""


def cost_usd(model: str, tokens: tuple[int, int] = TOKENS) -> float:
    return tokens[0] * INPUT_USD[model] + tokens[1] * OUTPUT_USD[model]


def deployment(name: str, group: str = "wise", *, url: str = URL, **params: Any) -> dict[str, Any]:
    """Return a priced deployment of `group`, whose model id is `name`."""
    info = {"id": name, "max_input_tokens": 8_000, "max_output_tokens": 1_000, **params.pop("info", {})}
    prices = {"input_cost_per_token": INPUT_USD.get(name, 1e-6), "output_cost_per_token": OUTPUT_USD.get(name, 2e-6)}
    return {
        "model_name": group,
        "litellm_params": {"model": f"openai/{name}", "api_base": url, "api_key": "sk-provider", **prices, **params},
        "model_info": info,
    }


def chat(model: str, content: str = "an answer", tokens: tuple[int, int] = TOKENS, **message: Any) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **message}}
        ],
        "usage": usage(tokens),
    }


def usage(tokens: tuple[int, int] = TOKENS) -> dict[str, int]:
    prompt, completion = tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def chunks(model: str, words: int = 5, *, with_usage: bool = True) -> Iterator[str]:
    """Yield the server-sent events of a stream."""
    head = {"id": "chatcmpl-s", "object": "chat.completion.chunk", "created": 1, "model": model}
    for i in range(words):
        delta = {"content": "word ", **({"role": "assistant"} if i == 0 else {})}
        yield sse({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield sse({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if with_usage:
        yield sse({**head, "choices": [], "usage": usage()})
    yield "data: [DONE]\n\n"


def sse(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"


def responses_body(model: str) -> dict[str, Any]:
    text = {"type": "output_text", "text": "an answer", "annotations": []}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": model,
        "output": [{"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [text]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
        "max_output_tokens": None,
        "previous_response_id": None,
        "usage": {
            "input_tokens": TOKENS[0],
            "output_tokens": TOKENS[1],
            "total_tokens": sum(TOKENS),
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def response_events(model: str) -> Iterator[str]:
    """Yield the server-sent events of a streamed response."""
    body = responses_body(model)
    item = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    yield sse({"type": "response.created", "sequence_number": 0, "response": {**body, "status": "in_progress"}})
    for i in range(5):
        delta = {"type": "response.output_text.delta", "sequence_number": i + 1, "delta": "word ", "logprobs": []}
        yield sse({**delta, **item})
    yield sse({"type": "response.completed", "sequence_number": 6, "response": body})


def text_part(model: str, text: str, finish_reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "finish_reason": finish_reason, "logprobs": None}
    return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": model, "choices": [choice]}


def text_chunks(model: str) -> Iterator[str]:
    """Yield the server-sent events of a streamed text completion, without its usage."""
    for _ in range(5):
        yield sse(text_part(model, "word ", None))
    yield sse(text_part(model, "", "stop"))
    yield "data: [DONE]\n\n"


def answer(request: httpx.Request) -> httpx.Response:
    """Answer any of the OpenAI routes for the model that the request names."""
    body = json.loads(request.content)
    model, path = body["model"], request.url.path
    if path.endswith("/responses"):
        return (
            streamed(response_events(model)) if body.get("stream") else httpx.Response(200, json=responses_body(model))
        )
    if path.endswith("/chat/completions"):
        if body.get("stream"):
            with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
            return streamed(chunks(model, with_usage=with_usage))
        return httpx.Response(200, json=chat(model))
    if path.endswith("/completions"):
        if body.get("stream"):
            return streamed(text_chunks(model))
        return httpx.Response(200, json={**text_part(model, "an answer", "stop"), "usage": usage()})
    return httpx.Response(404, json={"error": {"message": path}})


def streamed(events: Iterator[str]) -> httpx.Response:
    return httpx.Response(200, content="".join(events).encode(), headers={"content-type": "text/event-stream"})


def failing(*models: str, status: int = 500) -> Callable[[httpx.Request], httpx.Response]:
    """Return a responder that fails for some models."""

    def respond(request: httpx.Request) -> httpx.Response:
        if json.loads(request.content)["model"] in models:
            return httpx.Response(status, json={"error": {"message": "out of order", "type": "server_error"}})
        return answer(request)

    return respond
