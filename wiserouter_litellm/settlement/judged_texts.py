"""What a judge reads of a call: its request with the tools that were called and what they returned, and its answer.

Messages are read in the formats of chats, of responses and of Anthropic's messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wiserouter_litellm.requests.json_objects import field_of

INSTRUCTIONS = ("instructions", "system")
"""The parameters of responses and of Anthropic's messages that stand for a system message."""


def instructions_of(kwargs: Mapping[str, Any]) -> object:
    """Return the instructions that stand beside the messages of a call; None where there are none.

    Of a response that LiteLLM makes of a chat, the proxy's request alone has them.
    """
    request = field_of(kwargs.get("litellm_params"), "proxy_server_request")
    sources = (kwargs, kwargs.get("optional_params"), field_of(request, "body"))
    found = (field_of(source, name) for source in sources for name in INSTRUCTIONS)
    return next(filter(None, found), None)


def question_text(messages: object, instructions: object = None) -> str:
    r"""Return the text of a request: its instructions and messages by role, or the text that it consists of.

    Items without a text, such as hidden thoughts and the tokens of a prompt, are left out.

    Examples
    --------
    >>> question_text([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    'system: Be brief.\n\nuser: Hi'
    """
    given = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(messages, str):
        return "\n\n".join([*(f"system: {_said(one)}" for one in given), messages])
    parts = [*given, *(messages if isinstance(messages, list | tuple) else [])]
    return "\n\n".join(f"{_role(one)}: {said}" for one in parts if (said := _said(one)))


def answer_text(response: object) -> str:
    """Return the text of an answer, and the calls of tools in it."""
    choices, output = field_of(response, "choices"), field_of(response, "output")
    messages = list(map(_message_of, choices)) if isinstance(choices, list) else []
    messages = messages or (output if isinstance(output, list) else [response])
    return "\n".join(filter(None, map(_said, messages)))


def _message_of(choice: object) -> object:
    """Return the message of a choice; one of a text completion is a text alone."""
    return field_of(choice, "message") or {"content": field_of(choice, "text")}


def _role(one: object) -> str:
    """Return the role of a message; an item of a response that is none is a call of the model, or what a tool gave."""
    if field_of(one, "output") is not None:
        return "tool"
    return str(field_of(one, "role") or ("assistant" if field_of(one, "name") else "user"))


def _said(one: object) -> str:
    """Return the text of a message or an item, with the calls of tools in it, or what a tool returned."""
    calls = field_of(one, "tool_calls") or [field_of(one, "function_call")]
    if not field_of(one, "role") and field_of(one, "name"):
        calls = [one]
    texts = [_content_text(field_of(one, "content")), _content_text(field_of(one, "output"))]
    return "\n".join(filter(None, [*texts, *map(_call_text, filter(None, calls))]))


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(map(_part_text, content if isinstance(content, list | tuple) else []))


def _part_text(part: object) -> str:
    kind = field_of(part, "type")
    if kind == "tool_use":
        return _call_text(part)
    if kind == "tool_result":
        return _content_text(field_of(part, "content"))
    return str(field_of(part, "text") or f"[{kind}]")


def _call_text(call: object) -> str:
    called = field_of(call, "function") or field_of(call, "custom") or call
    given = (field_of(called, name) for name in ("arguments", "input"))
    arguments = next((one for one in given if one is not None), "")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
    return f"calls {field_of(called, 'name')} with {written}"
