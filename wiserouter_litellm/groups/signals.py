"""Certain failures in LiteLLM's answers and requests, as scores of the calls that they belong to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from wiserouter import Answer
from wiserouter.integration import Signals
from wiserouter_litellm.billing.redacted_texts import REDACTED
from wiserouter_litellm.conversations.conversation_ids import stated_ids

if TYPE_CHECKING:
    from wiserouter_litellm.groups.attempts import Mark
    from wiserouter_litellm.groups.group import Group
    from wiserouter_litellm.groups.selection import RoutingRequest
    from wiserouter_litellm.requests.origin import Origin

PROMPT_KEY = "prompt"
"""Key of a decision's mark under which the hash of its prompt is kept."""


class RequestSigns(NamedTuple):
    """What the rules read of a request.

    Attributes
    ----------
    failed_tools : sequence of str
        The ids of the tool calls whose results are errors.
    asker : str
        Who asks, where one key serves many: the user and the session that the request states.
    """

    failed_tools: Sequence[str] = ()
    asker: str = ""


def signs_of(messages: object, kwargs: Mapping[str, Any], origin: Origin) -> RequestSigns:
    """Return the signs of a request: failed tools, and the user and session that it states."""
    users = (kwargs.get("user"), kwargs.get("safety_identifier"), origin.metadata.get("user_api_key_end_user_id"))
    asker = json.dumps([*users, stated_ids(kwargs, origin.caller).conversation], default=str)
    return RequestSigns(failed_tools(messages, kwargs), asker)


def read_request(group: Group, signals: Signals, routing: RoutingRequest, mark: Mark) -> None:
    """Score the answers that a request shows to have failed; may wait for the store.

    Parameters
    ----------
    group : Group
        The group.
    signals : Signals
        The rules.
    routing : RoutingRequest
        The request.
    mark : Mark
        Takes the key of its prompt.
    """
    signs = routing.signs or RequestSigns()
    try:
        for tool_call in signs.failed_tools:
            caller = signals.caller_of_tool(_scoped(routing.caller, tool_call))
            if caller is not None:
                group.router.fail(caller, "tool_error")
        if "regenerated" in signals.rules and routing.request.countable:  # else equal texts may be other prompts
            mark[PROMPT_KEY] = key = _scoped(routing.caller, f"{signs.asker}\0{routing.request.counted}")
            former = signals.regenerated(key)
            if former is not None:
                group.router.fail(former, "regenerated")
    except Exception as error:  # a score is lost, the request goes on
        group.fault("signals", "the failure of an earlier answer is not scored", error=error)


def read_answer_signals(
    group: Group, signals: Signals, mark: Mapping[str, Any], kwargs: Mapping[str, Any], response: object
) -> None:
    """Score an answer that has certainly failed, and remember it for the requests that follow."""
    try:
        answers = list(answers_of(response, _response_format(kwargs)))
        rules = [set(one.failures()) for one in answers]
        failed = tuple(set.intersection(*rules)) if rules else ()
        group.router.check_answer(mark["id"], Answer("-", failed=failed))
        calls = [_scoped(mark.get("caller"), id_) for id_ in _tool_call_ids(response)]
        signals.answered(mark["id"], mark.get(PROMPT_KEY, ""), calls)
    except Exception as error:  # a score is lost
        group.fault("signals", "an answer is not checked for failures", error=error)


def failed_tools(messages: object, kwargs: Mapping[str, Any]) -> list[str]:
    """Return the ids of the tool calls whose results, at the end of a request, are errors.

    Anthropic's messages say so; OpenAI's have no field for it.

    Examples
    --------
    >>> result = {"type": "tool_result", "tool_use_id": "t1", "is_error": True}
    >>> failed_tools([{"role": "user", "content": [result]}], {})
    ['t1']
    """
    items = kwargs.get("input") if messages is None else messages
    last = items[-1] if isinstance(items, list) and items else None
    content = _get(last, "content")
    parts = content if isinstance(content, list) else []
    return [str(_get(part, "tool_use_id")) for part in parts if _get(part, "is_error") is True]


def answers_of(response: object, response_format: Mapping[str, Any] | None = None) -> Iterator[Answer]:
    """Yield the answers of a chat or a text completion, of Anthropic's messages, or of the responses API.

    A response that is still made in the background has none. Of what LiteLLM has redacted, no format and no arguments
    are checked.
    """
    for choice in _get(response, "choices") or ():
        message = _get(choice, "message")
        text = _text(_get(message, "content")) or str(_get(choice, "text") or "")
        calls = [_get(call, "function") for call in _get(message, "tool_calls") or ()]
        calls += [call] if (call := _get(message, "function_call")) else []
        yield Answer(
            text,
            str(_get(choice, "finish_reason") or ""),
            [_arguments(call) or "" for call in calls],
            refusal=bool(_get(message, "refusal")),
            response_format=None if text == REDACTED else response_format,
            other=any(_get(message, name) for name in ("audio", "images")),
        )
    if isinstance(output := _get(response, "output"), list):
        if _get(response, "status") not in _UNDER_WAY:
            yield _answer_of_items(output, str(_get(_get(response, "incomplete_details"), "reason") or ""))
    elif _get(response, "stop_reason") is not None:
        blocks: Sequence[Any] = _get(response, "content") or ()
        kinds = {_get(block, "type") for block in blocks}
        tools = [_get(block, "input") for block in blocks if _get(block, "type") == "tool_use"]
        reason = str(_get(response, "stop_reason"))
        yield Answer(_text(blocks), reason, tools, refusal=reason == "refusal", other=bool(kinds - _BLOCKS))


def _answer_of_items(output: Sequence[Any], reason: str) -> Answer:
    """Return the answer of the items of the responses API."""
    parts = [part for item in output for part in _get(item, "content") or ()]
    kinds = {_get(item, "type") for item in output}
    return Answer(
        _text(parts),
        reason,
        [_arguments(item) for item in output if _get(item, "type") == "function_call"],
        refusal=any(_get(part, "type") == "refusal" for part in parts),
        other=bool(kinds - _ITEMS),
    )


_UNDER_WAY = frozenset({"queued", "in_progress"})
_ITEMS = frozenset({"message", "reasoning", "function_call"})
_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})


def _arguments(called: object) -> Any:
    """Return the arguments of the call of a tool; an empty text, which stands for none, in place of redacted ones."""
    arguments = _get(called, "arguments")
    return "" if arguments == REDACTED else arguments


def _tool_call_ids(response: object) -> Iterator[str]:
    for choice in _get(response, "choices") or ():
        for call in _get(_get(choice, "message"), "tool_calls") or ():
            yield str(_get(call, "id"))
    for block in _get(response, "content") or ():
        if _get(block, "type") == "tool_use":
            yield str(_get(block, "id"))


def _response_format(kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = (kwargs.get("optional_params") or {}).get("response_format")
    return found if isinstance(found, Mapping) else None


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    return "".join(str(_get(part, "text") or "") for part in parts)


def _scoped(caller: str | None, text: str) -> str:
    """Return the hash of a text of one caller."""
    hashed = blake2b((caller or "").encode(), digest_size=16)
    hashed.update(b"\0" + text.encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


def _get(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
