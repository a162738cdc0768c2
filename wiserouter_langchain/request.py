"""The parser of a call: the question, the text that is billed as input and what a model must be able to do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from wiserouter.integration import FRAME_TOKENS, TOOLS_TOKENS, CallRequest

_MEDIA = {
    "image": "image",
    "image_url": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "file": "pdf",
}
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def request_of(
    messages: Sequence[BaseMessage], kwargs: Mapping[str, Any], operations: Sequence[Any] = ()
) -> CallRequest:
    """Return the request of a call.

    Parameters
    ----------
    messages : sequence of BaseMessage
        The conversation.
    kwargs : mapping
        Keyword arguments of the call.
    operations : sequence of (str, tuple, dict)
        The queued operations: `bind_tools`, `with_structured_output`.

    Examples
    --------
    >>> from langchain_core.messages import HumanMessage
    >>> request_of([HumanMessage("hi")], {"max_tokens": 5}).output_tokens
    5
    """
    schemas = [*(kwargs.get("tools") or ()), *(schema for _, args, _ in operations for schema in _listed(args))]
    given = {**kwargs, **{key: value for _, _, keywords in operations for key, value in keywords.items()}}
    human = next((message.text for message in reversed(messages) if message.type == "human" and message.text), "")
    texts = [text for message in messages for text in _texts(message)]
    media = frozenset(kind for message in messages for kind in _media(message))
    return CallRequest(
        question=human or "\n".join(message.text for message in messages),
        counted="\n".join([*texts, *map(_schema_text, schemas)]),
        overhead_tokens=FRAME_TOKENS * (len(messages) + 1) + (TOOLS_TOKENS if schemas else 0),
        countable=not media,
        media=media,
        tools=bool(kwargs.get("tools")) or any(name == "bind_tools" for name, _, _ in operations),
        structured=any(name == "with_structured_output" for name, _, _ in operations),
        output_tokens=max((int(given[name]) for name in _LIMITS if given.get(name)), default=None),
        choices=int(given.get("n") or 1),
    )


def _listed(args: Sequence[Any]) -> Sequence[Any]:
    first = args[0] if args else []
    return first if isinstance(first, list | tuple) else [first]


def _schema_text(schema: Any) -> str:
    """Return the JSON that a tool or schema becomes; its name alone where LangChain cannot convert it."""
    try:
        return json.dumps(convert_to_openai_tool(schema), default=str)
    except (ValueError, TypeError):
        return json.dumps(schema, default=str)


def _texts(message: BaseMessage) -> list[str]:
    parts = [message.content] if isinstance(message.content, str) else message.content
    texts = [part if isinstance(part, str) else json.dumps(part, default=str) for part in parts if not _kind(part)]
    calls = getattr(message, "tool_calls", None)
    return [*texts, json.dumps(calls, default=str)] if calls else texts


def _media(message: BaseMessage) -> list[str]:
    parts = [] if isinstance(message.content, str) else message.content
    return [kind for part in parts if (kind := _kind(part))]


def _kind(part: str | dict[str, Any]) -> str:
    """Return the medium of a content block; empty where it is text."""
    return "" if isinstance(part, str) else _MEDIA.get(str(part.get("type")), "")
