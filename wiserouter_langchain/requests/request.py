"""The parser of a call: the question, the text that is billed as input and what a model must be able to do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from wiserouter.integration import FRAME_TOKENS, TOOLS_TOKENS, CallRequest, Message, Question, question_of
from wiserouter_langchain.requests.limits import NO_LIMITS, requested_limits
from wiserouter_langchain.requests.operations import OPERATIONS, Operation
from wiserouter_langchain.requests.sent_text import sent_text, sent_texts

_MEDIA = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "image_generation_call": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "file": "pdf",
    "input_file": "pdf",
}
_TEXT_PARTS = frozenset(
    {
        *("text", "input_text", "output_text", "text-plain", "refusal", "thinking", "redacted_thinking", "reasoning"),
        *("reasoning_content", "tool_use", "tool_call", "tool_call_chunk", "function_call", "custom_tool_call"),
        *("tool_result", "function_call_output", "invalid_tool_call", "summary_text"),
    }
)
"""The types of content blocks that are billed as the text that they hold; of any other, the length is not known."""

NOT_READ = Question("", informative=False)


def request_of(
    messages: Sequence[BaseMessage], kwargs: Mapping[str, Any], *, reads_question: bool = True
) -> CallRequest:
    """Return the request of a call.

    Parameters
    ----------
    messages : sequence of BaseMessage
        The conversation.
    kwargs : mapping
        Keyword arguments of the call, and the queued operations.
    reads_question : bool, default True
        Whether the question is looked for; False where nothing is routed by it.

    Examples
    --------
    >>> from langchain_core.messages import HumanMessage
    >>> request_of([HumanMessage("hi")], {"max_tokens": 5}).output_tokens
    5
    """
    operations: Sequence[Operation] = kwargs.get(OPERATIONS, ())
    schemas = [schema for _, args, _ in operations for schema in _listed(args)]
    settings = [kwargs, *(keywords for _, _, keywords in operations)]
    has_tools = any(one.get("tools") for one in settings)
    question = _question(messages) if reads_question else NOT_READ
    texts = [text for message in messages for text in _texts(message)]
    media = frozenset(kind for message in messages for kind in _media(message))
    limits = requested_limits(kwargs) if kwargs else NO_LIMITS
    return CallRequest(
        question=question.text,
        informative=question.informative,
        counted="\n".join([*texts, *map(sent_text, schemas), *(text for one in settings for text in sent_texts(one))]),
        overhead_tokens=FRAME_TOKENS * (len(messages) + 1) + (TOOLS_TOKENS if schemas or has_tools else 0),
        countable=all(_is_text(part) for message in messages for part in _all_parts(message)),
        media=media,
        tools=has_tools or any(name == "bind_tools" for name, _, _ in operations),
        structured=any(name == "with_structured_output" for name, _, _ in operations),
        output_tokens=limits.output_tokens,
        choices=limits.answers or 1,
        messages=len(messages),
    )


def _question(messages: Sequence[BaseMessage]) -> Question:
    return question_of([Message(_role(message), _plain(message)) for message in messages])


def role_of(message: BaseMessage) -> str | None:
    """Return the role of a message; a sum of streamed chunks has that of the message which it is a part of.

    Examples
    --------
    >>> from langchain_core.messages import AIMessageChunk, ChatMessage
    >>> role_of(AIMessageChunk("hi")), role_of(ChatMessage("hi", role="critic"))
    ('ai', 'critic')
    """
    kind = message.type.removesuffix("MessageChunk").lower()
    return getattr(message, "role", None) if kind == "chat" else kind


def _role(message: BaseMessage) -> str:
    """Return "user" for messages of a person, whichever of LangChain's names they have."""
    role = role_of(message)
    return "user" if role in {"human", "user"} else str(role)


def _plain(message: BaseMessage) -> list[str]:
    """Return the texts of a message without tool results and media."""
    parts = (part.get("text") if isinstance(part, Mapping) else part for part in _parts(message))
    return [part for part in parts if isinstance(part, str)]


def _listed(args: Sequence[Any]) -> Sequence[Any]:
    first = args[0] if args else []
    return first if isinstance(first, list | tuple) else [first]


def _texts(message: BaseMessage) -> list[str]:
    """Return all text of a message: its content without media, its calls of tools, and what else is sent with it."""
    texts = [part if isinstance(part, str) else _dump(part) for part in _all_parts(message) if not _kind(part)]
    names = ("tool_calls", "invalid_tool_calls", "name", "tool_call_id", "additional_kwargs")
    return [*texts, *(_dump(value) for name in names if (value := getattr(message, name, None)))]


def _media(message: BaseMessage) -> list[str]:
    return [kind for part in _all_parts(message) if (kind := _kind(part))]


def _parts(message: BaseMessage) -> Sequence[Any]:
    return [message.content] if isinstance(message.content, str) else message.content


def _all_parts(message: BaseMessage) -> list[Any]:
    """Return the content blocks of a message; those within a block, as of a tool's result, follow it."""
    return [each for part in _parts(message) for each in _unfolded(part)]


def _unfolded(part: Any) -> list[Any]:
    inner = part.get("content") if isinstance(part, Mapping) else None
    if not isinstance(inner, list):
        return [part]
    return [{**part, "content": []}, *(each for one in inner for each in _unfolded(one))]


def _kind(part: Any) -> str:
    """Return the medium of a content block, in the format of LangChain or of a provider; empty where it is text."""
    if not isinstance(part, Mapping):
        return ""
    kind = str(part.get("type"))
    if kind == "non_standard":
        return _kind(part.get("value"))
    if kind == "media":  # of Google
        medium = str(part.get("mime_type")).partition("/")[0]
        return medium if medium in {"image", "audio", "video"} else "pdf"
    if kind == "document":  # of Anthropic
        source = part.get("source")
        return "pdf" if isinstance(source, Mapping) and source.get("type") not in {"text", "content"} else ""
    return _MEDIA.get(kind, "") if "type" in part else _untyped_kind(part)


def _untyped_kind(part: Mapping[str, Any]) -> str:
    """Return the medium of a block of Bedrock, whose one key says what it is."""
    for name, kind in (("image", "image"), ("video", "video"), ("document", "pdf")):
        block = part.get(name)
        source = block.get("source") if isinstance(block, Mapping) else None
        if isinstance(source, Mapping) and "text" not in source:
            return kind
    return ""


def _is_text(part: Any) -> bool:
    """Return True if the text of a content block is all that is billed for it."""
    if isinstance(part, str):
        return True
    return isinstance(part, Mapping) and str(part.get("type", "text")) in _TEXT_PARTS and not _kind(part)


def _dump(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
