"""Chat messages as programs keep them: OpenAI, Anthropic, Gemini, LangChain, OpenTelemetry, and texts that hold JSON.

A log holds the messages of a call, a router routes by its question; `question_text` leads from one to the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wiserouter.prompts.question import Message, question_of

_WRAPPERS = ("messages", "input", "contents", "inputs", "prompt", "question")
"""Keys of an object that hold its messages or its text."""

_TEXT_KEYS = ("text", "content")
"""Keys of a part that hold its text: `content` in OpenTelemetry, `text` elsewhere."""

_TEXT_TYPES = frozenset({"text", "input_text", "output_text", ""})

_USERS = frozenset({"user", "human"})

_MARKS = ('"role"', '"type"', '"kwargs"', '"messages"', '"contents"', '"input"')
"""A text without any of these holds no messages."""

_MAX_DEPTH = 20


def question_text(value: object) -> str | None:
    """Return the text by which a call with this input is routed.

    Parameters
    ----------
    value : object
        A text; a message or a list of messages, of OpenAI, Anthropic, Gemini, LangChain or OpenTelemetry; an object
        that holds one of these under `messages`, `input` or the like; or a text that holds such a list as JSON.

    Returns
    -------
    str or None
        A plain text as it is; of messages what the person asks for (`question_of`); None where there is neither.

    Examples
    --------
    >>> question_text("sort a list")
    'sort a list'
    >>> question_text('[{"role": "user", "content": "sort a list"}, {"role": "assistant", "content": "How?"}]')
    'sort a list'
    >>> question_text({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi there"}]}]})
    'hi there'
    """
    if isinstance(value, str):
        messages = messages_in(_parsed(value))
        return value if messages is None else question_of(messages).text
    messages = messages_in(value)
    if messages is not None:
        return question_of(messages).text
    return _wrapped_text(value)


def messages_in(value: object, depth: int = 0) -> list[Message] | None:
    """Return the messages that a value holds, or None where it holds none."""
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        return [_message(value)] if _is_message(value) else _wrapped_messages(value, depth)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        return None
    if isinstance(value[0], Sequence):
        return messages_in(value[0], depth + 1)  # LangChain's batches of conversations
    kept = [_message(one) for one in value if isinstance(one, Mapping)]
    return kept if any(_is_message(one) for one in value) else None


def _wrapped_messages(value: Mapping[str, Any], depth: int) -> list[Message] | None:
    found = (messages_in(value[key], depth + 1) for key in _WRAPPERS if key in value)
    return next((messages for messages in found if messages is not None), None)


def _parsed(text: str) -> object:
    """Return the JSON value that a text holds; None where it is plain text."""
    if text.lstrip()[:1] not in {"[", "{"} or not any(mark in text for mark in _MARKS):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _wrapped_text(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return None
    return next((text for key in _WRAPPERS if isinstance(text := value.get(key), str)), None)


def _is_message(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    inner = value.get("kwargs") or value.get("data")
    return "role" in value or isinstance(inner, Mapping) or ("content" in value and "type" in value)


def _message(value: Mapping[str, Any]) -> Message:
    inner = value.get("kwargs") or value.get("data")
    fields = inner if isinstance(inner, Mapping) else value
    content = fields.get("content", fields.get("parts"))
    return Message(_role(value, fields), _texts(content))


def _role(value: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    of_class = value["id"][-1:] if isinstance(value.get("id"), list) else ()  # LangChain names the class of a message
    named = (fields.get("role"), fields.get("type"), *of_class, value.get("type"))
    role = next((str(name).lower() for name in named if name), "")
    role = role.removesuffix("chunk").removesuffix("message")
    return "user" if role in _USERS else role


def _texts(content: object) -> list[str]:
    """Return the texts of a message without results of tools and media."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, Sequence):
        return []
    return [text for part in content if (text := _part_text(part)) is not None]


def _part_text(part: object) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or str(part.get("type") or "") not in _TEXT_TYPES:
        return None
    return next((text for key in _TEXT_KEYS if isinstance(text := part.get(key), str)), None)
