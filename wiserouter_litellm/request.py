"""The parser of LiteLLM's requests: the question, the text that is billed as input, the limit of the output.

It covers the five text surfaces: chat, text completions, the responses API, `/v1/messages`, and their streams.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wiserouter.integration import FRAME_TOKENS, TOOLS_TOKENS, CallRequest
from wiserouter_litellm.limits import ANSWERS, OUTPUT_LIMITS, n_prompts

PLACEHOLDERS = frozenset(
    {
        "prompt",
        "default text",
        "files-api-fake-text",
        "vector-store-api-fake-text",
        "retrieve-api-fake-text",
        "batch-api-fake-text",
    }
)
"""The texts that LiteLLM passes for calls without text to route by: images, audio, files, batches."""

_TEXT_ROUTES = ("/chat/completions", "/completions", "/responses", "/messages")
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "tool_result", "tool_use", "thinking", "refusal"})
_COUNTED = ("tools", "functions", "response_format", "system", "instructions", "text", "output_config")
_STORED = ("previous_response_id", "conversation", "prompt", "web_search_options", "mcp_servers", "container")
_READ = frozenset({*OUTPUT_LIMITS, *ANSWERS, *_COUNTED, *_STORED, "service_tier"})


def request_of(messages: object, kwargs: Mapping[str, Any]) -> CallRequest | None:
    """Return the request that a selection hook was given, or None where there is no text to route by.

    Parameters
    ----------
    messages : list of dict or None
        Chat messages; None for the responses API, whose text is in `kwargs["input"]`.
    kwargs : mapping
        The request's keyword arguments.

    Examples
    --------
    >>> request_of([{"role": "user", "content": "hi"}], {"max_tokens": 5}).output_tokens
    5
    >>> request_of([{"role": "user", "content": "files-api-fake-text"}], {}) is None
    True
    """
    source = messages if messages is not None else kwargs.get("input")
    chat = _messages(source)
    if (not chat and source != []) or _is_placeholder(chat, kwargs):
        return None
    texts, all_text = _content(chat)
    given = {name: kwargs[name] for name in kwargs.keys() & _READ if kwargs[name] is not None}
    extras = [_dump(given[name]) for name in _COUNTED if name in given] if given else []
    tools = TOOLS_TOKENS if given.get("tools") or given.get("functions") else 0
    return CallRequest(
        question=_question(chat),
        counted="\n".join([*texts, *extras]),
        overhead_tokens=FRAME_TOKENS * (len(chat) + 1) + tools,
        countable=all_text and not _has_more_input(given),
        output_tokens=_output_limit(given),
        choices=n_prompts(chat) * max(_whole(given.get(name)) or 1 for name in ANSWERS),
        tier=str(given.get("service_tier") or ""),
        limit_name="max_output_tokens" if messages is None else "max_tokens",
    )


def _messages(source: object) -> list[Mapping[str, Any]]:
    """Return messages as dictionaries; a bare string, or a list of strings, is one of the user."""
    if isinstance(source, str):
        return [{"role": "user", "content": source}]
    if not isinstance(source, Sequence) or isinstance(source, bytes):
        return []
    return [_message(item) for item in source]


def _message(item: object) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    dump = getattr(item, "model_dump", None)
    return dump() if callable(dump) else {"role": "user", "content": item}


def _is_placeholder(chat: list[Mapping[str, Any]], kwargs: Mapping[str, Any]) -> bool:
    content = chat[0].get("content") if len(chat) == 1 else None
    if not isinstance(content, str) or content not in PLACEHOLDERS:
        return False
    url = (kwargs.get("proxy_server_request") or {}).get("url") or ""  # a client may well say "prompt" in a chat
    return not str(url).partition("?")[0].endswith(_TEXT_ROUTES)


def _content(chat: Iterable[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return every text of the messages, and True if there is nothing but text."""
    texts: list[str] = []
    all_text = True
    for message in chat:
        rest = {key: value for key, value in message.items() if key not in {"role", "content"} and value}
        texts += [_dump(rest)] if rest else []
        for part in _parts(message.get("content")):
            all_text &= _is_text(part)
            texts.append(part if isinstance(part, str) else _dump(part) if _is_text(part) else "")
    return texts, all_text


def _has_more_input(given: Mapping[str, Any]) -> bool:
    """Return True if the provider adds text: a stored conversation, a stored prompt, a search."""
    tools = [tool for tool in given.get("tools") or () if isinstance(tool, Mapping)]
    hosted = any(tool.get("type", "function") not in {"function", "custom"} for tool in tools)
    return hosted or any(name in given for name in _STORED)


def _parts(content: object) -> Sequence[object]:
    """Return the parts of a message; a bare text is one."""
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        return content
    return [] if content is None else [content]


def _is_text(part: object) -> bool:
    if isinstance(part, str | int):  # token ids of a text completion are whole numbers
        return True
    if not isinstance(part, Mapping) or str(part.get("type", "text")) not in _TEXT_PARTS:
        return False
    inner = part.get("content")
    return not isinstance(inner, list) or all(_is_text(piece) for piece in inner)


def _question(chat: Sequence[Mapping[str, Any]]) -> str:
    """Return the last text of the user, or all text where there is none."""
    for message in reversed(chat):
        text = _plain(message.get("content")) if message.get("role", "user") == "user" else ""
        if text:
            return text
    return "\n".join(filter(None, (_plain(message.get("content")) for message in chat)))


def _plain(content: object) -> str:
    """Return the text of a message without tool results and media."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
    return "\n".join(part for part in parts if isinstance(part, str))


def _output_limit(given: Mapping[str, Any]) -> int | None:
    limits = [limit for name in OUTPUT_LIMITS if (limit := _whole(given.get(name)))]
    return max(limits) if limits else None  # providers differ in which of two they heed


def _whole(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:16])
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value < 1e15:
        return None
    return int(value)


def _dump(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
