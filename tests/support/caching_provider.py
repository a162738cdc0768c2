"""A provider on 127.0.0.1 that caches prefixes, bills what it reads from its cache at a discount, and keeps a ledger.

It speaks OpenAI's chat and Anthropic's messages. While tools are given it calls one after the other, as many as the
task says (`steps=39`), and it refuses a history whose tool calls or signed thoughts do not fit, as providers do.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from support.providers import INPUT_USD, OUTPUT_USD, sse

READ_SHARE, WRITE_SHARE = 0.1, 1.25
"""Prices of tokens that are read from the cache, and of Anthropic's that are written to it, of that of the input."""

OUTPUT_TOKENS = 30


class Served(NamedTuple):
    """One call that was answered, and its bill."""

    model: str
    task: str
    read_tokens: int
    fresh_tokens: int
    cost_usd: float


def prices(model: str, *, writes: bool) -> dict[str, float]:
    """Return the prices of a model, as a deployment states them."""
    usd = INPUT_USD[model]
    return {
        "input_cost_per_token": usd,
        "output_cost_per_token": OUTPUT_USD[model],
        "cache_read_input_token_cost": READ_SHARE * usd,
        "cache_creation_input_token_cost": (WRITE_SHARE if writes else 1.0) * usd,
    }


class CachingProvider:
    """The provider's caches, its ledger and its switches.

    Attributes
    ----------
    served : list of Served
        The calls that were answered.
    failing : dict of str to list of int
        The statuses that the next calls of a model fail with, which cost nothing.
    failed : Counter of str
        Failures by model.
    refused : list of str
        The histories that did not fit.
    """

    def __init__(self) -> None:
        self.served: list[Served] = []
        self.failing: dict[str, list[int]] = {}
        self.failed: Counter[str] = Counter()
        self.refused: list[str] = []
        self._caches: dict[str, dict[str, int]] = {}
        routes = [("/v1/chat/completions", self._chat), ("/v1/messages", self._messages)]
        self.app = Starlette(routes=[Route(path, answer, methods=["POST"]) for path, answer in routes])

    @property
    def ledger_usd(self) -> float:
        """The total of its bills."""
        return sum(call.cost_usd for call in self.served)

    def models_of(self, task: str) -> list[str]:
        """Return the models that served a task, in order."""
        return [call.model for call in self.served if call.task == task]

    def bill_of(self, task: str) -> float:
        """Return the total of the bills of a task."""
        return sum(call.cost_usd for call in self.served if call.task == task)

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        model, messages = body["model"], body["messages"]
        if failure := self._failure(model) or self._misfit(model, _openai_calls(messages)):
            return failure
        read, fresh = self._read(body, messages)
        self._bill(model, messages, read, fresh, writes=False)
        tokens = {"prompt_tokens": read + fresh, "completion_tokens": OUTPUT_TOKENS}
        tokens["total_tokens"] = sum(tokens.values())
        usage = {**tokens, "prompt_tokens_details": {"cached_tokens": read}}
        head = {"id": f"chatcmpl-{len(self.served)}", "created": 1, "model": model}
        done = sum(message["role"] == "tool" for message in messages)
        if body.get("tools") and done < _steps(messages):
            call = {"id": f"call_{model}_{done}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        else:
            message = {"role": "assistant", "content": f"answer {len(messages)} of {model}"}
        if body.get("stream"):
            return StreamingResponse(_chunks(head, message, usage), media_type="text/event-stream")
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    async def _messages(self, request: Request) -> Response:
        body = await request.json()
        model, messages = body["model"], body["messages"]
        if failure := self._failure(model) or self._misfit(model, _anthropic_calls(messages)):
            return failure
        read, fresh = self._read(body, messages)
        self._bill(model, messages, read, fresh, writes=True)
        usage = {
            "input_tokens": 0,
            "output_tokens": OUTPUT_TOKENS,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": fresh,
        }
        done = sum(1 for message in messages for part in _parts(message) if part.get("type") == "tool_result")
        thought = {"type": "thinking", "thinking": f"step {done}", "signature": f"{model}/{done}"}
        if body.get("tools") and done < _steps(messages):
            content = [thought, {"type": "tool_use", "id": f"toolu_{model}_{done}", "name": "ls", "input": {}}]
        else:
            content = [thought, {"type": "text", "text": f"answer {len(messages)} of {model}"}]
        head = {"id": f"msg_{len(self.served)}", "type": "message", "role": "assistant", "model": model}
        return JSONResponse(
            {**head, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
        )

    def _failure(self, model: str) -> Response | None:
        statuses = self.failing.get(model)
        if not statuses:
            return None
        self.failed[model] += 1
        return JSONResponse({"error": {"message": "out of order", "type": "server_error"}}, statuses.pop(0))

    def _misfit(self, model: str, calls: Iterator[tuple[str, bool]]) -> Response | None:
        """Return the refusal of a history; `calls` are its ids and signatures, and whether each one fits."""
        wrong = [name for name, fits in calls if not fits or ("/" in name and not name.startswith(f"{model}/"))]
        if not wrong:
            return None
        self.refused.append(f"{model}: {wrong[0]}")
        return JSONResponse({"error": {"message": f"invalid {wrong[0]}", "type": "invalid_request_error"}}, 400)

    def _read(self, body: dict[str, Any], messages: list[Any]) -> tuple[int, int]:
        """Return the tokens that the cache has of a prompt, and the others; now it has all of them."""
        hashed, tokens, read = blake2b(digest_size=16), 0, 0
        cache = self._caches.setdefault(body["model"], {})
        for part in [body.get("system"), body.get("tools"), *messages]:
            text = json.dumps(part, sort_keys=True)
            hashed.update(text.encode())
            tokens += 1 + len(text) // 4
            read = tokens if hashed.hexdigest() in cache else read
            cache[hashed.hexdigest()] = tokens
        return read, tokens - read

    def _bill(self, model: str, messages: list[Any], read: int, fresh: int, *, writes: bool) -> None:
        usd = prices(model, writes=writes)
        cost = read * usd["cache_read_input_token_cost"] + OUTPUT_TOKENS * usd["output_cost_per_token"]
        cost += fresh * usd["cache_creation_input_token_cost" if writes else "input_cost_per_token"]
        self.served.append(Served(model, _task(messages), read, fresh, cost))


def _task(messages: list[Any]) -> str:
    """Return the name of a task, which its first message states."""
    found = re.search(r"task=(\S+)", json.dumps(messages))
    return found[1].rstrip('".}],') if found else ""


def _steps(messages: list[Any]) -> int:
    found = re.search(r"steps=(\d+)", json.dumps(messages))
    return int(found[1]) if found else 0


def _openai_calls(messages: list[Any]) -> Iterator[tuple[str, bool]]:
    """Yield the ids of tool results, and whether the message of the model before them has such a call."""
    known: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            yield message["tool_call_id"], message["tool_call_id"] in known
        else:
            known = {call["id"] for call in message.get("tool_calls") or ()}


def _anthropic_calls(messages: list[Any]) -> Iterator[tuple[str, bool]]:
    """Yield the signatures of thoughts and the ids of tool results, and whether they fit."""
    known: set[str] = set()
    for message in messages:
        parts = list(_parts(message))
        thinks = bool(parts) and parts[0].get("type") == "thinking"
        for part in parts:
            if part.get("type") == "thinking":
                yield part["signature"], True
            elif part.get("type") == "tool_result":
                yield part["tool_use_id"], part["tool_use_id"] in known
            elif part.get("type") == "tool_use":
                yield part["id"], thinks
        known = {part["id"] for part in parts if part.get("type") == "tool_use"}


def _parts(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    yield from (part for part in content if isinstance(part, dict)) if isinstance(content, list) else ()


def _chunks(head: dict[str, Any], message: dict[str, Any], usage: dict[str, Any]) -> Iterator[str]:
    """Yield a streamed answer."""
    head = {**head, "object": "chat.completion.chunk"}
    words = re.findall(r"\S+\s*", message["content"])
    for word in words:
        yield sse({**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": word}}]})
    yield sse({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield sse({**head, "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"
