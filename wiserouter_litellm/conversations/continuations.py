"""Continuations: requests that refer to what a provider made before, and that only its deployment can continue.

A response that is stored at the provider, a conversation, a container, encrypted reasoning and the signature of a
thought are worth nothing to another provider. LiteLLM writes the id of the deployment into the ids of responses and of
containers. What it leaves as the provider sent it is found by a key, which is stored with the decision of the answer:
a digest of the value, of the caller and of the deployment, so that no caller learns of another's calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import litellm
from litellm.responses.utils import ResponsesAPIRequestUtils as Ids

from wiserouter_litellm.conversations.feedback_keys import feedback_key, keys_to_store, reported_id
from wiserouter_litellm.deployments.litellm_compat import issued_id
from wiserouter_litellm.deployments.registry import Candidate, Candidates, DeploymentInfo
from wiserouter_litellm.requests.json_objects import field_of, fields_of, id_and_messages

MOST_VALUES = 4
"""The most values of one kind that are kept of an answer, or looked up for a request: the latest ones."""

THOUGHT = "__thought__"
"""LiteLLM appends the signature of a thought to the id of a tool call after this."""

_ENCRYPTED = "litellm_encrypted_reasoning:"
"""LiteLLM puts this before encrypted reasoning where it hands it out as the signature of a thought."""

_MISTRAL_ID = re.compile("[A-Za-z0-9]{9}")


class Reference(NamedTuple):
    """Something that a request continues.

    Attributes
    ----------
    value : str
        What it is named by: an id or a signature.
    deployment_id : str or None
        The deployment that made it, where LiteLLM has written that into the id.
    """

    value: str
    deployment_id: str | None = None


_LASTING = ("conversation", "container", "tools")
"""The parameters that may name what lasts longer than an answer."""


class Continued(NamedTuple):
    """What a request goes on with.

    Attributes
    ----------
    candidates : Candidates
        The deployments that can take its tool calls.
    references : list of Reference
        What it refers to, the most binding first.
    lasting_ids : list of str
        The ids of the conversation and the containers that it names, as the provider made them.
    """

    candidates: Candidates
    references: list[Reference]
    lasting_ids: list[str]


def continued(candidates: Candidates, messages: object, kwargs: Mapping[str, Any]) -> Continued:
    """Return the references of a request, and the candidates that can take it; parameters as in `references_of`."""
    lasting = list(_lasting(kwargs))
    items = [one for one in _items(kwargs.get("input") if messages is None else messages) if _may_refer(one)]
    if not items and not lasting and not kwargs.get("previous_response_id"):
        return Continued(candidates, [], [])
    ids = [one.value for one in lasting if one.deployment_id is None]
    return Continued(able(candidates, messages, kwargs), references_of(messages, kwargs), ids)


def references_of(messages: object, kwargs: Mapping[str, Any]) -> list[Reference]:
    """Return the references of a request to what it continues, the most binding first.

    Parameters
    ----------
    messages : list of dict or None
        Chat messages; None for the responses API, whose items are in `kwargs["input"]`.
    kwargs : mapping
        The request's keyword arguments.

    Examples
    --------
    >>> references_of(None, {"input": "and then?", "conversation": {"id": "conv_1"}})
    [Reference(value='conv_1', deployment_id=None)]
    """
    found = [_response(kwargs.get("previous_response_id")), *_lasting(kwargs)]
    items = [one for one in _items(kwargs.get("input") if messages is None else messages) if _may_refer(one)]
    for values in (_encrypted(items), _signatures(items)):
        found += list(values)[-MOST_VALUES:][::-1]
    return list(dict.fromkeys(one for one in found if one is not None))


def keys_of_answer(response: object, mark: Mapping[str, Any], deployment_id: str, info: DeploymentInfo) -> list[str]:
    """Return the keys by which feedback finds the decision of an answer, and what continues it finds its maker.

    Parameters
    ----------
    response : object
        The answer.
    mark : mapping
        The mark of the decision: who made the call, and the conversation and containers that it named, which live where
        they were answered.
    deployment_id : str
        The deployment that answered.
    info : DeploymentInfo
        Its figures.
    """
    (id_, messages), caller = id_and_messages(response), mark["caller"]
    keys = [*keys_to_store(reported_id(id_), caller, chosen=False)] if isinstance(id_, str) else []
    if keys and keys[0] in mark["keys"]:  # LiteLLM has given it the id of its call, which a client may choose
        keys = []
    values = _values_of_answer(response, messages, mark.get("lasting_ids", ()))
    if not values:
        return keys
    return keys + [made_key(value, caller, maker) for maker in maker_names(deployment_id, info) for value in values]


def _values_of_answer(response: object, messages: Sequence[object], lasting_ids: Sequence[str]) -> list[str]:
    """Return the ids and signatures in an answer, or its messages, that a request may refer to which continues it."""
    found: list[Reference | None] = []
    if not messages:  # a response, or a message of Anthropic
        found = [_plain(field_of(response, "conversation")), _unmarked_response(response)]
        messages = [*_items(field_of(response, "output")), response]
    items = [message for message in messages if _may_refer(message)]
    if not (items or found or lasting_ids):
        return []
    for values in (_encrypted(items), _signatures(items)):
        found += list(values)[-MOST_VALUES:]
    return list(dict.fromkeys([*lasting_ids, *(one.value for one in found if one is not None)]))


def maker_names(deployment_id: str, info: DeploymentInfo) -> tuple[str, str]:
    """Return the names under which a deployment made an answer: its own, and that of its model."""
    return deployment_id, f"model {info.family}"


def made_key(value: str, caller: str | None, maker: str) -> str:
    """Return the key of something that a deployment, or a model, made for one caller."""
    return feedback_key(f"{maker} made {value}", caller)


def makers(
    candidates: Candidates, references: Sequence[Reference], caller: str | None, is_known: Callable[..., bool]
) -> Candidates | None:
    """Return the candidates that made what a request continues; None where that cannot be told.

    Parameters
    ----------
    candidates : sequence of Candidate
        The deployments that can serve the request.
    references : sequence of Reference
        What it continues.
    caller : str or None
        The hash of the key that makes the request.
    is_known : callable
        Whether one of some keys was stored.
    """
    if not _is_any_known(candidates, references, caller, is_known):
        references = [one for one in references if one.deployment_id is not None]
    for value, deployment_id in references:
        named = [one for one in candidates if one.id == deployment_id]
        if named:
            return named
        if deployment_id is not None:
            continue
        for i in range(2):  # the deployment itself, else others of its model
            names = [maker_names(one.id, one.info)[i] for one in candidates]
            known = next((name for name in dict.fromkeys(names) if is_known(made_key(value, caller, name))), None)
            if known is not None:
                return [one for one, name in zip(candidates, names, strict=True) if name == known]
    return None


def _is_any_known(
    candidates: Candidates, references: Sequence[Reference], caller: str | None, is_known: Callable[..., bool]
) -> bool:
    """Return True if the maker of any reference is known by a key; one look at the store, for the many that are not."""
    names = dict.fromkeys(name for one in candidates for name in maker_names(one.id, one.info))
    values = [one.value for one in references if one.deployment_id is None]
    keys = [made_key(value, caller, name) for value in values for name in names]
    return bool(keys) and is_known(*keys)


def able(candidates: Candidates, messages: object, kwargs: Mapping[str, Any]) -> Candidates:
    """Return the candidates whose provider takes the tool calls in a history; all where none does.

    Mistral takes ids of nine letters and digits only; Claude with thinking wants the thought before a tool call.
    """
    calls = _open_tool_calls(messages)
    if not calls:
        return candidates
    foreign = any(not _MISTRAL_ID.fullmatch(id_) for message in calls for id_ in _tool_ids(message))
    thoughtless = not litellm.modify_params and any(not list(_signatures([message])) for message in calls)
    refuses = [
        (foreign and _is_mistral(one))
        or (thoughtless and _is_claude(one) and (_thinks(kwargs) or _thinks(one.info.params)))
        for one in candidates
    ]
    return [one for one, refused in zip(candidates, refuses, strict=True) if not refused] or candidates


def _thinks(params: Mapping[str, Any]) -> bool:
    return bool(params.get("thinking") or params.get("reasoning_effort"))


def _lasting(kwargs: Mapping[str, Any]) -> list[Reference]:
    """Return the conversation and the containers that a request names."""
    if kwargs.keys().isdisjoint(_LASTING):
        return []
    containers = map(_container, [kwargs.get("container"), *_tool_containers(kwargs.get("tools"))])
    return [one for one in (_plain(kwargs.get("conversation")), *containers) if one is not None]


def _response(value: object) -> Reference | None:
    """Return the response that a request continues; LiteLLM writes the deployment into its id."""
    if not isinstance(value, str) or not value:
        return None
    return Reference(value, _stated(Ids.get_model_id_from_response_id(value)))


def _unmarked_response(response: object) -> Reference | None:
    """Return a stored response whose id LiteLLM has left as it was."""
    id_ = field_of(response, "id") if field_of(response, "object") == "response" else None
    reference = _response(issued_id(id_)) if isinstance(id_, str) else None
    return reference if reference is not None and reference.deployment_id is None else None


def _container(value: object) -> Reference | None:
    id_ = value.get("id") if isinstance(value, Mapping) else value
    if not isinstance(id_, str) or not id_:
        return None
    return Reference(id_, _stated(Ids.decode_container_id(id_).get("model_id")))


def _plain(value: object) -> Reference | None:
    """Return the reference of an id, given as text, as an object, or as a mapping."""
    id_ = value if isinstance(value, str) else field_of(value, "id")
    return Reference(id_) if isinstance(id_, str) and id_ else None


def _stated(deployment_id: object) -> str | None:
    return str(deployment_id) if deployment_id and deployment_id != "None" else None


def _tool_containers(tools: object) -> Iterator[object]:
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping) and isinstance(tool.get("container"), str):
            yield tool["container"]


def _may_refer(item: object) -> bool:
    """Return True unless an item is plain text, as most are: a long history is read on the event loop."""
    if isinstance(item, str):
        return False
    fields = item if isinstance(item, dict) else fields_of(item)
    is_plain = isinstance(fields.get("content"), str) and not fields.get("thinking_blocks")
    return not is_plain or any(fields.get(name) for name in ("tool_calls", "encrypted_content", "reasoning_items"))


def _encrypted(items: Iterable[object]) -> Iterator[Reference]:
    """Yield the latest encrypted reasoning among the items of a response or an input, or in messages of LiteLLM."""
    parts = (part for one in items for part in (one, *_list(field_of(one, "reasoning_items"))))
    contents = [text for part in parts if isinstance(text := field_of(part, "encrypted_content"), str) and text]
    for content in contents[-MOST_VALUES:]:
        yield from _of_encrypted(content)


def _of_encrypted(content: str) -> Iterator[Reference]:
    """Yield what encrypted reasoning refers to; signed thoughts of a chat are in it as a list in JSON."""
    deployment_id, plain = Ids.unwrap_encrypted_content_with_model_id(content)
    if plain.startswith("["):
        yield from _signatures([{"content": _json_list(plain)}])
    else:
        yield Reference(plain, _stated(deployment_id))


def _json_list(text: str) -> Sequence[object]:
    try:
        return _list(json.loads(text))
    except (ValueError, RecursionError):
        return ()


def _signatures(items: Iterable[object]) -> Iterator[Reference]:
    """Yield the signatures of the thoughts in messages: in blocks of their own, or after the id of a tool call."""
    for item in items:
        for block in [*_list(field_of(item, "thinking_blocks")), *_list(field_of(item, "content"))]:
            is_thought = field_of(block, "type") in {"thinking", "redacted_thinking"}
            signature = (field_of(block, "signature") or field_of(block, "data")) if is_thought else None
            if isinstance(signature, str) and signature:
                is_foreign = signature.startswith(_ENCRYPTED)
                yield from _of_encrypted(signature[len(_ENCRYPTED) :]) if is_foreign else (Reference(signature),)
        for id_ in _tool_ids(item):
            if THOUGHT in id_:
                yield Reference(id_.partition(THOUGHT)[2])


def _open_tool_calls(messages: object) -> list[object]:
    """Return the messages with tool calls that the last messages answer."""
    items = list(_items(messages))
    while items and field_of(items[-1], "role") == "tool":
        items.pop()
    if not items or len(items) == len(list(_items(messages))):
        return []
    return [items[-1]] if list(_tool_ids(items[-1])) else []


def _tool_ids(message: object) -> Iterator[str]:
    """Yield the ids of the tool calls in a message."""
    for call in _list(field_of(message, "tool_calls")):
        if isinstance(id_ := field_of(call, "id"), str):
            yield id_


def _is_mistral(one: Candidate) -> bool:
    return _provider(one) in {"mistral", "codestral"}


def _is_claude(one: Candidate) -> bool:
    return "claude" in str(one.deployment["litellm_params"].get("model")).lower()


def _provider(one: Candidate) -> str:
    params = one.deployment["litellm_params"]
    return str(params.get("custom_llm_provider") or str(params.get("model")).partition("/")[0])


def _items(value: object) -> Iterator[object]:
    yield from value if isinstance(value, list | tuple) else ()


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()
