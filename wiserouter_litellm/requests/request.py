"""The parser of LiteLLM's requests: the question, the text that is billed as input, the limit of the output.

It covers the five text surfaces: chat, text completions, the responses API, `/v1/messages`, and their streams.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from wiserouter.integration import FRAME_TOKENS, TOOLS_TOKENS, CallRequest, Message, Question, count_tokens, question_of
from wiserouter_litellm.requests.json_objects import MAPPING, SEQUENCE
from wiserouter_litellm.requests.limits import LIMIT_NAMES, drop_null_limits, write_limits
from wiserouter_litellm.requests.malformed import refuse_malformed
from wiserouter_litellm.requests.parameter_checks import TEXT_ITEMS, tier_of
from wiserouter_litellm.requests.parameters import ANSWERS, CHAT, MESSAGES, OUTPUT_LIMITS, RESPONSES, is_passed_on
from wiserouter_litellm.requests.tools import is_hosted, n_known_schemas

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
_TEXT_KEYS = frozenset(
    {
        *("role", "content", "name", "type", "id", "status", "tool_calls", "function_call", "tool_call_id", "call_id"),
        *("arguments", "output", "input", "refusal", "reasoning_content", "reasoning", "thinking_blocks", "summary"),
        *("encrypted_content", "cache_control", "phase", "annotations", "action", "operation", "namespace", "prefix"),
        *("provider_specific_fields",),
    }
)
_COUNTED = (
    *("tools", "functions", "response_format", "system", "instructions", "text", "output_config", "output_format"),
    *("suffix", "chat_template_kwargs", "extra_body"),
)
_SYSTEM = frozenset({"system", "instructions"})
_ADDED = frozenset({*_COUNTED, "litellm_system_prompt", "input", "messages"})
_STORED = ("previous_response_id", "conversation", "prompt", "web_search_options", "mcp_servers", "container")
_PLAIN_KEYS = {"role", "content"}
_EMPTY = "[System: Empty message content sanitised to satisfy protocol]"
NOT_READ = Question("", informative=False)
_READ = {
    surface: frozenset({*limits, *ANSWERS[surface], *_COUNTED, *_STORED, "service_tier"})
    for surface, limits in OUTPUT_LIMITS.items()
}
_READ[CHAT] -= {"prompt"}  # the question of a text completion, where LiteLLM passes it at all


def request_of(
    messages: object, kwargs: Mapping[str, Any], surface: str = "", *, reads_question: bool = True
) -> CallRequest | None:
    """Return the request that a selection hook was given, or None where there is no text to route by.

    Parameters
    ----------
    messages : list of dict or None
        Chat messages; None for the responses API, whose text is in `kwargs["input"]`.
    kwargs : mapping
        The request's keyword arguments.
    surface : str, optional
        "chat", "responses" or "messages"; by default as `messages` and `kwargs` show it.
    reads_question : bool, default True
        Whether the question is looked for; False where nothing is routed by it.

    Examples
    --------
    >>> request_of([{"role": "user", "content": "hi"}], {"max_tokens": 5}).output_tokens
    5
    >>> request_of([{"role": "user", "content": "files-api-fake-text"}], {}) is None
    True
    """
    chat = _chat(messages, kwargs)
    return None if chat is None else _read(chat, kwargs, surface or surface_of(messages, kwargs), reads_question)


def admitted_request(
    group: str,
    messages: object,
    kwargs: dict[str, Any],
    surface: str = "",
    given: Collection[str] | None = None,
    *,
    hard: bool,
    reads_question: bool,
) -> CallRequest | None:
    """Return the request as `request_of` does, after its limits were checked and written back.

    Parameters
    ----------
    group : str
        The model group, for the error.
    messages, kwargs, surface, reads_question
        As in `request_of`; the limits in `kwargs` are changed in place.
    given : collection of str, optional
        As in `write_limits`.
    hard : bool
        Whether the limits must bound the cost.

    Raises
    ------
    litellm.BadRequestError
        If a hard budget cannot bound the call because of a parameter. If no provider takes its messages or its prompt.
    """
    refuse_malformed(group, messages, is_prompt=_is_prompt(kwargs))
    chat = _chat(messages, kwargs)
    if chat is None:
        return None
    surface = surface or surface_of(messages, kwargs)
    if hard:
        write_limits(group, kwargs, surface, given)
    elif not LIMIT_NAMES.isdisjoint(kwargs):
        drop_null_limits(kwargs)
    return _read(chat, kwargs, surface, reads_question)


def surface_of(messages: object, kwargs: Mapping[str, Any]) -> str:
    """Return the surface of a call with text: "chat", "responses" or "messages".

    Parameters
    ----------
    messages : list of dict or None
        As LiteLLM passes them: None for the responses API.
    kwargs : mapping
        The request's keyword arguments, which hold the messages of `/v1/messages`.
    """
    if messages is None:
        return RESPONSES
    return MESSAGES if "messages" in kwargs else CHAT


def added_tokens(params: Mapping[str, Any], encoding_of: str | None = None) -> int:
    """Return the most tokens that the texts in a deployment's own `litellm_params` add to the input of each call.

    Parameters
    ----------
    params : mapping
        The `litellm_params`.
    encoding_of : str, optional
        The model whose encoding counts them.

    Examples
    --------
    >>> added_tokens({"model": "openai/small", "litellm_system_prompt": "Be brief."})
    17
    """
    texts = [_dump(value) for name, value in params.items() if value and _adds_text(name, value)]
    counted = sum(count_tokens(text, encoding_of).at_most + FRAME_TOKENS for text in texts)
    return counted + _tools_tokens(params)


def _adds_text(name: str, value: object) -> bool:
    """Return True if a deployment's own parameter is text in the prompt, or may be for its provider."""
    return name in _ADDED or (isinstance(value, (*SEQUENCE, *MAPPING)) and is_passed_on(name))


def n_prompts(messages: object) -> int:
    """Return the number of prompts of a text completion; 1 for a chat.

    Examples
    --------
    >>> n_prompts([{"role": "user", "content": ["one", "two"]}]), n_prompts([{"role": "user", "content": [15496, 0]}])
    (2, 1)
    """
    if not isinstance(messages, SEQUENCE) or len(messages) != 1 or not isinstance(messages[0], MAPPING):
        return 1
    content = messages[0].get("content")
    if isinstance(content, str) or not isinstance(content, SEQUENCE) or all(isinstance(part, int) for part in content):
        return 1  # a text, or the ids of its tokens
    return max(1, sum(not isinstance(part, Mapping) for part in content))


def _read(chat: list[Mapping[str, Any]], kwargs: Mapping[str, Any], surface: str, reads_question: bool) -> CallRequest:
    prompts = n_prompts(chat)
    names = _READ[surface].intersection(kwargs)
    given = {name: value for name in names if (value := kwargs[name]) is not None}
    texts, all_text = _content(chat)
    question = _question(chat) if reads_question else NOT_READ
    limit_names = OUTPUT_LIMITS[surface]
    overhead_tokens = FRAME_TOKENS * (len(chat) + prompts) + (_tools_tokens(given) or _called_tools_tokens(chat))
    if not given:
        return CallRequest(
            question.text,
            "\n".join(texts),
            overhead_tokens,
            all_text,
            choices=prompts,
            limit_name=limit_names[0],
            informative=question.informative,
            messages=len(chat),
        )
    limits = [name for name in limit_names if name in given]
    extras = [_dump(given[name]) for name in _COUNTED if name in given]
    return CallRequest(
        question.text,
        "\n".join([*texts, *extras]),
        overhead_tokens,
        all_text and not _has_more_input(given),
        output_tokens=_output_limit(given, limits),
        choices=prompts * max((_whole(given.get(name)) or 1 for name in ANSWERS[surface]), default=1),
        tier=tier_of(given["service_tier"]) if "service_tier" in given else "",
        limit_name=(limits or limit_names)[0],
        informative=question.informative,
        messages=len(chat) + len(_SYSTEM & given.keys()),
    )


def _tools_tokens(given: Mapping[str, Any]) -> int:
    """Return the most tokens that a provider adds to the prompt for tools, and for a format that is sent as one."""
    tools = given.get("tools") or given.get("functions")
    if tools:
        return TOOLS_TOKENS * (1 + n_known_schemas(tools))
    return TOOLS_TOKENS if _has_format(given) else 0


def _called_tools_tokens(chat: Iterable[Mapping[str, Any]]) -> int:
    """Return the most tokens of the tool that LiteLLM adds for some providers to messages that call tools not given."""
    calls = any(
        message.get("tool_calls") is not None
        or message.get("type") == "function_call"
        or any(isinstance(part, MAPPING) and part.get("type") == "tool_use" for part in _parts(message.get("content")))
        for message in chat
    )
    return TOOLS_TOKENS if calls else 0


def _has_format(given: Mapping[str, Any]) -> bool:
    """Return True if answers have to have a certain form: LiteLLM makes a tool of that for some providers."""
    around = [one for name in ("text", "output_config") if isinstance(one := given.get(name), MAPPING)]
    formats = [given.get("response_format"), given.get("output_format"), *(one.get("format") for one in around)]
    return any(one and not (isinstance(one, MAPPING) and one.get("type") == "text") for one in formats)


def _chat(messages: object, kwargs: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """Return the messages of a call; None where it has none."""
    source = messages
    if source is None:
        source = kwargs.get("input") if _is_for_responses(kwargs) else None
    elif isinstance(source, str):  # LiteLLM takes each character for a message
        return None
    chat = _messages(source)
    return None if (not chat and source != []) or _is_placeholder(chat, kwargs) else chat


def _messages(source: object) -> list[Mapping[str, Any]]:
    """Return messages as dictionaries; a bare string, or a list of strings, is one of the user."""
    if isinstance(source, str):
        return [{"role": "user", "content": source}]
    if not isinstance(source, SEQUENCE) or isinstance(source, bytes):
        return []
    return [item if isinstance(item, dict) else _message(item) for item in source]


def _message(item: object) -> Mapping[str, Any]:
    if isinstance(item, MAPPING):
        return item
    dump = getattr(item, "model_dump", None)
    return dump() if callable(dump) else {"role": "user", "content": item}


def _is_placeholder(chat: list[Mapping[str, Any]], kwargs: Mapping[str, Any]) -> bool:
    content = chat[0].get("content") if len(chat) == 1 else None
    if not isinstance(content, str) or content not in PLACEHOLDERS:
        return False
    return not _url(kwargs).endswith(_TEXT_ROUTES)  # a client may well say "prompt" in a chat


def _url(kwargs: Mapping[str, Any]) -> str:
    """Return the URL that a client of the proxy called, without its query; empty in Python."""
    request = kwargs.get("proxy_server_request")
    url = request.get("url") if isinstance(request, MAPPING) else None
    return str(url or "").partition("?")[0]


def _is_prompt(kwargs: Mapping[str, Any]) -> bool:
    """Return True if the messages of a call are the prompt of a text completion."""
    url = _url(kwargs)
    if url:
        return url.endswith("/completions") and not url.endswith("/chat/completions")
    return "prompt" in kwargs and "messages" not in kwargs


def _is_for_responses(kwargs: Mapping[str, Any]) -> bool:
    """Return True if `input` is that of a response, on any route of text; moderations and compactions have one, too."""
    url = _url(kwargs)
    if url:
        return url.endswith(_TEXT_ROUTES)
    return "litellm_metadata" in kwargs or "metadata" not in kwargs  # moderations have only the latter


def _content(chat: Iterable[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return every text of the messages, and True if there is nothing but text."""
    texts: list[str] = []
    all_text = True
    for message in chat:
        content = message.get("content")
        if isinstance(content, str) and message.keys() == _PLAIN_KEYS:
            texts.append(_with_placeholder(content))
            continue
        rest = {key: value for key, value in message.items() if key not in {"role", "content"} and value}
        texts += [_dump(rest)] if rest else []
        all_text &= _is_text_item(message)
        for part in _parts(content):
            all_text &= _is_text(part)
            texts.append(_with_placeholder(part) if isinstance(part, str) else _dump(part) if _is_text(part) else "")
    return texts, all_text


def _with_placeholder(text: str) -> str:
    """Return a text; an empty one with what LiteLLM sends to Anthropic in its place where it may change parameters."""
    return text + _EMPTY if not text or text.isspace() else text


def _is_text_item(message: Mapping[str, Any]) -> bool:
    """Return True if a message has no media, and refers to nothing that the provider keeps."""
    known = str(message.get("type") or "message") in TEXT_ITEMS and all(
        key in _TEXT_KEYS for key, value in message.items() if value
    )
    return known and all(_is_text(part) for part in _parts(message.get("output")))


def _has_more_input(given: Mapping[str, Any]) -> bool:
    """Return True if the provider adds text: a stored conversation, a stored prompt, a search."""
    tools = [tool for tool in _parts(given.get("tools")) if isinstance(tool, MAPPING)]
    more = any(is_hosted(tool) for tool in tools) or not given.keys().isdisjoint(_STORED)
    return more or not all(_is_text(part) for part in _parts(given.get("system")))


def _parts(content: object) -> Sequence[object]:
    """Return the parts of a message; a bare text is one."""
    if content is None:
        return []
    return content if isinstance(content, SEQUENCE) and not isinstance(content, str | bytes) else [content]


def _is_text(part: object) -> bool:
    if isinstance(part, str | int):  # token ids of a text completion are whole numbers
        return True
    if not isinstance(part, MAPPING) or str(part.get("type", "text")) not in _TEXT_PARTS:
        return False
    inner = part.get("content")
    return not isinstance(inner, list) or all(_is_text(piece) for piece in inner)


def _question(chat: Sequence[Mapping[str, Any]]) -> Question:
    latest = next((message for message in reversed(chat) if _role(message) == "user"), None)
    if latest is not None:  # mostly it says what is asked for, so that a long history is not read
        asked = question_of([_as_message(latest)])
        if asked.informative:
            return asked
    return question_of([_as_message(message) for message in chat])


def _as_message(message: Mapping[str, Any]) -> Message:
    return Message(_role(message), _plain(message.get("content")))


def _role(message: Mapping[str, Any]) -> str:
    """Return the role of a message; results and calls of tools among the items of a response have none."""
    default = "user" if message.get("type") in (None, "message") else ""
    return str(message.get("role", default))


def _plain(content: object) -> list[str]:
    """Return the texts of a message without tool results and media."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, SEQUENCE):
        return []
    parts = (part.get("text") if isinstance(part, MAPPING) else part for part in content)
    return [part for part in parts if isinstance(part, str)]


def _output_limit(given: Mapping[str, Any], names: Iterable[str]) -> int | None:
    """Return the largest limit of the output among some that a request gives; None where none is a number."""
    limits = [limit for name in names if (limit := _whole(given[name]))]
    return max(limits) if limits else None  # providers differ in which of two they heed


def _whole(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:16])
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value < 1e15:
        return None
    return int(value)


def _dump(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
