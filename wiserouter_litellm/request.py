"""What a LiteLLM request says, in our words: the question, how long it is, how long the answer may be.

Covers the five text surfaces: chat, text completions, the responses API, `/v1/messages`, and their streams. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
"""What LiteLLM passes for calls that have no text to route by: images, audio, files, batches."""

_TEXT_ROUTES = ("/chat/completions", "/completions", "/responses", "/messages")
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "tool_result", "tool_use", "thinking", "refusal"})
_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_COUNTED = ("tools", "functions", "response_format", "system", "instructions", "text", "output_config")
_STORED = ("previous_response_id", "conversation", "prompt", "web_search_options", "mcp_servers", "container")
_NAMED = frozenset({*_OUTPUT_LIMITS, *_COUNTED, *_STORED, "n", "service_tier"})
FRAME_TOKENS = 8
"""What chat formats add per message, generously; and once for the reply."""
TOOLS_TOKENS = 1_000
"""What providers add to the prompt where tools are given, generously."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes
    ----------
    question : str
        The last user text: what the query is about.
    counted : str
        All text that is billed as input.
    overhead_tokens : int
        What the provider adds to it.
    countable : bool
        Whether the text is all there is: False with images, audio, files, a stored conversation or a search.
    output_tokens : int or None
        The most tokens that one answer may have; None where the request names no limit.
    choices : int
        How many answers it asks for.
    tier : str
        The service tier asked for.
    limit_name : str
        How this surface calls the limit of the output.
    """

    question: str
    counted: str
    overhead_tokens: int
    countable: bool
    output_tokens: int | None
    choices: int
    tier: str
    limit_name: str


def request_of(messages: object, kwargs: Mapping[str, Any]) -> Request | None:
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
    turns = _turns(messages if messages is not None else kwargs.get("input"))
    if not turns or _is_placeholder(turns, kwargs):
        return None
    texts, all_text = _content(turns)
    given = {name: kwargs[name] for name in kwargs.keys() & _NAMED if kwargs[name] is not None}
    extras = [_dump(given[name]) for name in _COUNTED if name in given] if given else []
    tools = TOOLS_TOKENS if given.get("tools") or given.get("functions") else 0
    return Request(
        question=_question(turns),
        counted="\n".join([*texts, *extras]),
        overhead_tokens=FRAME_TOKENS * (len(turns) + 1) + tools,
        countable=all_text and not _brings_more(given),
        output_tokens=_output_limit(given),
        choices=_whole(given.get("n")) or 1,
        tier=str(given.get("service_tier") or ""),
        limit_name="max_output_tokens" if messages is None else "max_tokens",
    )


def _turns(source: object) -> list[Mapping[str, Any]]:
    """Return messages as dictionaries; a bare string, or a list of strings, is what the user said."""
    if isinstance(source, str):
        return [{"role": "user", "content": source}]
    if not isinstance(source, Sequence) or isinstance(source, bytes):
        return []
    return [_turn(item) for item in source]


def _turn(item: object) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    dump = getattr(item, "model_dump", None)
    return dump() if callable(dump) else {"role": "user", "content": item}


def _is_placeholder(turns: list[Mapping[str, Any]], kwargs: Mapping[str, Any]) -> bool:
    content = turns[0].get("content")
    if len(turns) != 1 or not isinstance(content, str) or content not in PLACEHOLDERS:
        return False
    url = (kwargs.get("proxy_server_request") or {}).get("url") or ""  # a client may well say "prompt" in a chat
    return not str(url).partition("?")[0].endswith(_TEXT_ROUTES)


def _content(turns: Iterable[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return every text of the messages, and whether there is nothing else."""
    texts: list[str] = []
    all_text = True
    for turn in turns:
        content = turn.get("content")
        rest = {key: value for key, value in turn.items() if key not in {"role", "content"} and value}
        texts += [_dump(rest)] if rest else []
        for part in _parts(content):
            all_text &= _is_text(part)
            texts.append(part if isinstance(part, str) else _dump(part) if _is_text(part) else "")
    return texts, all_text


def _brings_more(kwargs: Mapping[str, Any]) -> bool:
    """Return whether the provider adds text of its own: a stored conversation, a stored prompt, a search."""
    tools = [tool for tool in kwargs.get("tools") or () if isinstance(tool, Mapping)]
    hosted = any(tool.get("type", "function") not in {"function", "custom"} for tool in tools)
    return hosted or any(name in kwargs for name in _STORED)


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


def _question(turns: Sequence[Mapping[str, Any]]) -> str:
    """Return the last text of the user, or all text where there is none."""
    for turn in reversed(turns):
        text = _plain(turn.get("content")) if turn.get("role", "user") == "user" else ""
        if text:
            return text
    return "\n".join(filter(None, (_plain(turn.get("content")) for turn in turns)))


def _plain(content: object) -> str:
    """Return the text of a message, tool results and media left out."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
    return "\n".join(part for part in parts if isinstance(part, str))


def _output_limit(kwargs: Mapping[str, Any]) -> int | None:
    named = [limit for name in _OUTPUT_LIMITS if (limit := _whole(kwargs.get(name)))]
    return max(named) if named else None  # which of two a provider heeds is not ours to know


def _whole(value: object) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value < 1e15:
        return None
    return int(value)


def _dump(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
