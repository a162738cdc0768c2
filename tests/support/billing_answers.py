"""The answers of the billing stub on its surfaces, whole and as server-sent events."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from support.billing_rules import Tokens

MAX_TEXT_TOKENS = 8_192
"""The answers of one call hold no more text than this, whatever is billed."""

WORD = " word"  # one token


class Reply(NamedTuple):
    """What is answered: the model, the tokens billed, the kind of usage block, and the pieces of a stream."""

    id: str
    model: str
    tokens: Tokens
    usage: str = "true"
    pieces: int = 4
    empty: bool = False
    with_usage: bool = True
    tool: str | None = None

    @property
    def text(self) -> str:
        """The text of one answer: one word for each token billed, as far as that is practical."""
        answers = max(1, self.tokens.answers)
        return WORD * max(1, min(self.tokens.output // answers, MAX_TEXT_TOKENS // answers))

    @property
    def parts(self) -> list[str]:
        """The text cut into the pieces of a stream."""
        words = self.text.count(WORD)
        size = max(1, -(-words // self.pieces))
        return [WORD * min(size, words - start) for start in range(0, words, size)]


def body_of(surface: str, reply: Reply) -> dict[str, Any]:
    """Return the whole answer on a surface."""
    return {
        "chat": _chat,
        "completions": _completion,
        "responses": _response,
        "messages": _message,
        "embeddings": _embedding,
    }[surface](reply)


def events_of(surface: str, reply: Reply) -> Iterator[str]:
    """Yield the events of a stream; the last two end the text and report the usage."""
    return {"chat": _chat_events, "completions": _completion_events, "responses": _response_events}.get(
        surface, _message_events
    )(reply)


def openai_usage(reply: Reply) -> dict[str, Any] | None:
    tokens = reply.tokens
    return _odd(
        reply.usage,
        {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "total_tokens": tokens.input + tokens.output,
        },
    )


def _odd(kind: str, usage: dict[str, Any]) -> dict[str, Any] | None:
    """Return a usage block as the switch says: true, absent, or of a kind that no one can add up."""
    odd = {"nan": math.nan, "negative": -7, "text": "many", "null": None, "infinite": math.inf, "zero": 0}
    if kind == "none":
        return None
    return usage if kind == "true" else dict.fromkeys(usage, odd[kind])


def _item_usage(reply: Reply) -> dict[str, Any] | None:
    tokens = reply.tokens
    usage = {"input_tokens": tokens.input, "output_tokens": tokens.output}
    return _odd(reply.usage, usage)


def _with_usage(answer: dict[str, Any], usage: dict[str, Any] | None) -> dict[str, Any]:
    return answer if usage is None else {**answer, "usage": usage}


ARGUMENTS = {"query": "rain"}
"""The arguments of every call of a tool."""


def _called(reply: Reply) -> dict[str, Any]:
    """Return the call of a tool as a chat has it."""
    function = {"name": reply.tool, "arguments": json.dumps(ARGUMENTS)}
    return {"index": 0, "id": "call_1", "type": "function", "function": function}


def _chat(reply: Reply) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "tool_calls": [_called(reply)]}
    calling = [{"index": 0, "finish_reason": "tool_calls", "message": message}]
    choices = [
        {"index": i, "finish_reason": "length", "message": {"role": "assistant", "content": reply.text}}
        for i in range(reply.tokens.answers)
    ]
    head = {"id": reply.id, "object": "chat.completion", "created": 1, "model": reply.model}
    choices = calling if reply.tool else choices
    return _with_usage({**head, "choices": [] if reply.empty else choices}, openai_usage(reply))


def _completion(reply: Reply) -> dict[str, Any]:
    choices = [
        {"index": i, "text": reply.text, "finish_reason": "length", "logprobs": None}
        for i in range(reply.tokens.answers)
    ]
    head = {"id": reply.id, "object": "text_completion", "created": 1, "model": reply.model}
    return _with_usage({**head, "choices": [] if reply.empty else choices}, openai_usage(reply))


def _response(reply: Reply, status: str = "completed") -> dict[str, Any]:
    text = {"type": "output_text", "text": reply.text, "annotations": []}
    item: dict[str, Any] = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant"}
    item["content"] = [text]
    if reply.tool:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed"}
        item |= {"name": reply.tool, "arguments": json.dumps(ARGUMENTS)}
    answer = {
        "id": reply.id,
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": reply.model,
        "output": [] if reply.empty else [item],
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
    }
    usage = _item_usage(reply)
    if usage is None:
        return answer
    total = {"total_tokens": reply.tokens.input + reply.tokens.output}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {**answer, "usage": {**usage, **(_odd(reply.usage, total) or {}), **details}}


def _message(reply: Reply) -> dict[str, Any]:
    content: list[dict[str, Any]] = [] if reply.empty else [{"type": "text", "text": reply.text}]
    if reply.tool:
        content = [{"type": "tool_use", "id": "tu_1", "name": reply.tool, "input": ARGUMENTS}]
    head = {"id": reply.id, "type": "message", "role": "assistant", "model": reply.model}
    reason = "tool_use" if reply.tool else "max_tokens"
    answer = {**head, "content": content, "stop_reason": reason, "stop_sequence": None}
    return _with_usage(answer, _item_usage(reply))


def _embedding(reply: Reply) -> dict[str, Any]:
    data = [{"object": "embedding", "index": i, "embedding": [0.5, 0.5]} for i in range(reply.tokens.answers)]
    usage = {"prompt_tokens": reply.tokens.input, "total_tokens": reply.tokens.input}
    return _with_usage({"object": "list", "model": reply.model, "data": data}, _odd(reply.usage, usage))


def _sse(event: dict[str, Any], *, named: bool = False) -> str:
    name = f"event: {event['type']}\n" if named else ""
    return f"{name}data: {json.dumps(event)}\n\n"


def _chat_events(reply: Reply) -> Iterator[str]:
    head = {"id": reply.id, "object": "chat.completion.chunk", "created": 1, "model": reply.model}
    if reply.tool:
        yield _sse({**head, "choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [_called(reply)]}}]})
        yield _sse({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
        yield f"{_sse({**head, 'choices': [], 'usage': openai_usage(reply)})}data: [DONE]\n\n"
        return
    for k, part in enumerate(reply.parts):
        delta = {"content": part, **({"role": "assistant"} if k == 0 else {})}
        choices = [{"index": i, "delta": delta, "finish_reason": None} for i in range(reply.tokens.answers)]
        yield _sse({**head, "choices": [] if reply.empty else choices})
    ends = [{"index": i, "delta": {}, "finish_reason": "length"} for i in range(reply.tokens.answers)]
    yield _sse({**head, "choices": ends})
    usage = openai_usage(reply)
    last = _sse({**head, "choices": [], "usage": usage}) if reply.with_usage and usage else ""
    yield f"{last}data: [DONE]\n\n"


def _completion_events(reply: Reply) -> Iterator[str]:
    head = {"id": reply.id, "object": "text_completion", "created": 1, "model": reply.model}
    for part in reply.parts:
        choices = [
            {"index": i, "text": part, "finish_reason": None, "logprobs": None} for i in range(reply.tokens.answers)
        ]
        yield _sse({**head, "choices": [] if reply.empty else choices})
    ends = [{"index": i, "text": "", "finish_reason": "length", "logprobs": None} for i in range(reply.tokens.answers)]
    yield _sse({**head, "choices": ends})
    usage = openai_usage(reply)
    last = _sse({**head, "choices": [], "usage": usage}) if reply.with_usage and usage else ""
    yield f"{last}data: [DONE]\n\n"


def _response_events(reply: Reply) -> Iterator[str]:
    done = _response(reply)
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    started = {key: value for key, value in done.items() if key != "usage"} | {"status": "in_progress", "output": []}
    created = _sse({"type": "response.created", "sequence_number": 0, "response": started}, named=True)
    for k, part in enumerate(reply.parts):
        delta = {"type": "response.output_text.delta", "sequence_number": k + 1, "delta": part, "logprobs": []}
        yield (created if k == 0 else "") + _sse({**delta, **place}, named=True)
    text = {"type": "response.output_text.done", "sequence_number": 90, "text": reply.text, "logprobs": []}
    yield _sse({**text, **place}, named=True)
    yield _sse({"type": "response.completed", "sequence_number": 91, "response": done}, named=True)


def _message_events(reply: Reply) -> Iterator[str]:
    usage = _item_usage(reply)
    empty = {**_message(reply), "content": [], "stop_reason": None}
    counted = {} if usage is None else {"usage": {**usage, "output_tokens": 1}}
    head = _sse({"type": "message_start", "message": {**empty, **counted}}, named=True)
    head += _sse({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}, named=True)
    for k, part in enumerate(reply.parts):
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}
        yield (head if k == 0 else "") + _sse(delta, named=True)
    yield _sse({"type": "content_block_stop", "index": 0}, named=True)
    ended = {"type": "message_delta", "delta": {"stop_reason": "max_tokens", "stop_sequence": None}}
    end = _sse({**ended, **({} if usage is None else {"usage": usage})}, named=True)
    yield end + _sse({"type": "message_stop"}, named=True)
