"""The ids of conversations in LiteLLM's requests.

LiteLLM reads `x-litellm-trace-id`, `x-litellm-session-id`, the `x-<vendor>-session-id` headers of agents, the headers
of Codex and the session in Anthropic's `metadata.user_id`, and writes what it finds into `litellm_session_id` and
`metadata.session_id`. Where none is there it may generate an id for each request, which says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from litellm.constants import SESSION_ID_GENERATED_METADATA_KEY

from wiserouter.integration import StatedIds
from wiserouter_litellm.conversations.feedback_keys import feedback_key, reported_id

MOST_ID_CHARS = 512
"""The longest id that is read: a longer one is none."""

PARENT = "wiserouter_parent"
"""Key of the metadata by which a request names the run that its own one works for."""

_PARENT_HEADERS = ("x-wiserouter-parent", "x-parent-session-id")
_OWN_HEADER = "x-session-id"
_SESSION = "_session_"
_BUCKETS = ("litellm_metadata", "metadata")


def stated_ids(kwargs: Mapping[str, Any], caller: str | None) -> StatedIds:
    """Return the ids that a request states.

    Parameters
    ----------
    kwargs : mapping
        The request's keyword arguments.
    caller : str or None
        The hash of the key that makes the request, under which its answers are named.

    Examples
    --------
    >>> stated_ids({"metadata": {"session_id": "thread-1"}}, None).conversation
    'thread-1'
    """
    buckets = [bucket for name in _BUCKETS if isinstance(bucket := kwargs.get(name), Mapping)]
    parent = _first(_parents(kwargs, buckets))
    earlier = _text(kwargs.get("previous_response_id"))
    return StatedIds(
        conversation=_first(_sessions(kwargs, buckets, parent)),
        cache_key=_text(kwargs.get("prompt_cache_key")),
        answers=[feedback_key(reported_id(earlier), caller)] if earlier else (),
        parent=parent,
    )


def tenant_of(metadata: Mapping[str, Any]) -> str:
    """Return the name of a caller of a proxy: the hash of its key, else the user and the team of its token.

    Examples
    --------
    >>> tenant_of({"user_api_key_hash": None, "user_api_key_user_id": "u1", "user_api_key_team_id": "t1"})
    '["user_api_key_user_id", "u1", "user_api_key_team_id", "t1"]'
    """
    for names in (("user_api_key_hash",), ("user_api_key",), ("user_api_key_user_id", "user_api_key_team_id")):
        found = [part for name in names if (value := metadata.get(name)) for part in (name, str(value))]
        if found:
            return json.dumps(found)
    return ""


def _sessions(kwargs: Mapping[str, Any], buckets: Sequence[Mapping[str, Any]], parent: str) -> Iterator[str]:
    """Yield the ids of the conversation, the most explicit first."""
    if parent:  # LiteLLM takes the parent's header for that of the session
        yield _text(_headers(kwargs).get(_OWN_HEADER))
    generated = any(bucket.get(SESSION_ID_GENERATED_METADATA_KEY) for bucket in buckets)
    if not generated:
        named = [kwargs.get("litellm_session_id"), *(bucket.get("session_id") for bucket in buckets)]
        yield from (id_ for one in named if (id_ := _text(one)) != parent)
    yield from (_session_of_user(bucket.get("user_id")) for bucket in buckets)
    conversation = kwargs.get("conversation")
    yield _text(conversation.get("id") if isinstance(conversation, Mapping) else conversation)


def _parents(kwargs: Mapping[str, Any], buckets: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from (_text(bucket.get(PARENT)) for bucket in buckets)
    headers = _headers(kwargs)
    yield from (_text(headers.get(name)) for name in _PARENT_HEADERS)


def _headers(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the headers of a request to the proxy, whose names LiteLLM has in lower case."""
    request = kwargs.get("proxy_server_request")
    headers = request.get("headers") if isinstance(request, Mapping) else None
    return headers if isinstance(headers, Mapping) else {}


def _session_of_user(user: object) -> str:
    """Return the session in Anthropic's id of a user: `user_..._session_<id>`, or an object of ids."""
    if isinstance(user, Mapping):
        return _text(user.get("session_id"))
    return _text(user.rpartition(_SESSION)[2]) if isinstance(user, str) and _SESSION in user else ""


def _first(ids: Iterator[str]) -> str:
    return next(filter(None, ids), "")


def _text(value: object) -> str:
    """Return an id as text; empty where it is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return value if isinstance(value, str) and len(value) <= MOST_ID_CHARS else ""
