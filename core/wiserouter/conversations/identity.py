"""The identity of conversations: salted hashes of their ids, and of what their messages hold.

A request repeats the messages of the request before it, the answer to that one, and something new. A chain has a hash
for each of these turns: the hash of the last request, or of its answer, is thus among those of the request that
continues it, and never among those of another caller.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from wiserouter.errors import InvalidInput

MOST_HASHED_CHARS = 65_536
"""The most characters that are hashed of one part of a message, such as an image: those at its start and its end."""

_MOST_KEPT_CHARS = 256
"""The longest id whose key is kept in memory."""

_DIGEST_BYTES = 16
_MOST_SALT_BYTES = 64
_LOSSLESS = "surrogatepass"
_REMINDER, _REMINDER_END = "<system-reminder>", "</system-reminder>"
_THOUGHT = "__thought__"
_NO_TURN_ROLES = frozenset({"system", "developer"})
_MODEL_ROLES = frozenset({"assistant", "model", "ai"})
_MODEL_ITEMS = ("_call", "reasoning", "compaction")
"""The ends of the types of items without a role that the model has made."""

_TEXTS = frozenset({"text", "input_text", "output_text", "refusal"})
_THOUGHTS = frozenset(
    {"thinking", "redacted_thinking", "reasoning", "reasoning_content", "tool_call", "tool_call_chunk"}
)
"""The parts that clients drop from a history, or that stand among its tool calls as well."""


class ConversationKey(str):
    """The key of a conversation that the router itself has made; a client's id is a plain text and never one."""

    __slots__ = ()


def conversation_key(conversation_id: str, caller: str = "", salt: bytes = b"") -> str:
    """Return the key of a conversation: a hash that reveals neither the id nor the caller.

    Parameters
    ----------
    conversation_id : str
        The caller's own id. A `ConversationKey` is returned as it is.
    caller : str, optional
        Equal ids of different callers have different keys.
    salt : bytes, optional
        Of at most 64 bytes.

    Raises
    ------
    InvalidInput
        If the id is no text of at least 1 character.

    Examples
    --------
    >>> conversation_key("thread-1", "a") == conversation_key("thread-1", "a")
    True
    >>> conversation_key("thread-1", "a") == conversation_key("thread-1", "b")
    False
    """
    if not isinstance(conversation_id, str) or not conversation_id:
        raise InvalidInput(
            f"conversation must be a text of at least 1 character, got {conversation_id!r:.80}", value=conversation_id
        )
    if isinstance(conversation_id, ConversationKey):
        return conversation_id
    if len(conversation_id) > _MOST_KEPT_CHARS:
        return _key(conversation_id, caller, salt)
    return _kept_key(conversation_id, caller, salt)


def prefix_chain(messages: Iterable[Any], caller: str = "", salt: bytes = b"") -> list[str]:
    """Return the hash of the conversation up to the end of each turn, in linear time.

    Parameters
    ----------
    messages : iterable of mapping or object
        Messages of OpenAI's or Anthropic's chats, or the items of a response, the oldest first.
    caller : str, optional
        Chains of different callers have no hash in common.
    salt : bytes, optional
        Of at most 64 bytes.

    Returns
    -------
    list of str
        The turns alternate: that of the caller has an even position, with results of tools among it, that of the
        model an odd one. Empty without messages.

    Notes
    -----
    A turn counts by its texts and the ids of its tool calls. Instructions, reminders, thoughts and marks for caches are
    left out: clients move and drop them from request to request.

    Examples
    --------
    >>> first = [{"role": "user", "content": "hi"}]
    >>> later = [*first, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "go on"}]
    >>> prefix_chain(later, "a")[0] == prefix_chain(first, "a")[0], len(prefix_chain(later, "a"))
    (True, 3)
    """
    return _chained(_hash(salt, _counted(caller)), messages, models=False)


def answered(request: str, answer: Iterable[Any]) -> str:
    """Return the hash of the conversation after an answer, as a chain has it whose caller repeats that answer.

    Parameters
    ----------
    request : str
        The hash of the request, by `last_request`.
    answer : iterable of mapping
        The message that answers it, or the items of the response.

    Examples
    --------
    >>> chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}]
    >>> answered(prefix_chain(chat[:1])[0], chat[1:]) == prefix_chain(chat)[1]
    True
    """
    return _chained(_hash(b"", request.encode()), answer, models=True)[0]


def last_request(chain: list[str]) -> str:
    """Return the hash of the last request of a chain; what follows it is the start of its answer.

    Examples
    --------
    >>> last_request(["request", "answer", "request 2", "start of its answer"])
    'request 2'
    """
    return chain[(len(chain) - 1) // 2 * 2]


def earlier_turns(chain: list[str], most: int) -> list[str]:
    """Return the hashes of the latest answers before the last request and of their requests, the latest first.

    Examples
    --------
    >>> earlier_turns(["request", "answer", "request 2", "answer 2", "request 3"], 3)
    ['answer 2', 'request 2', 'answer']
    """
    return chain[: (len(chain) - 1) // 2 * 2][::-1][:most] if chain else []


def _chained(hashed: Any, messages: Iterable[Any], *, models: bool) -> list[str]:
    """Return the hash after each turn; the first turn is that of the model, or that of the caller."""
    chain: list[str] = []
    is_empty = True
    for message in messages:
        is_empty, role = False, _role(message)
        if role in _NO_TURN_ROLES:
            continue
        if (role in _MODEL_ROLES) is not models:
            chain.append(hashed.hexdigest())
            hashed, models = _hash(b"", chain[-1].encode()), not models
        for part in _parts(message):
            hashed.update(_counted(part))
    return [] if is_empty else [*chain, hashed.hexdigest()]


def _key(conversation_id: str, caller: str, salt: bytes) -> str:
    return str(_hash(salt, _counted(caller) + _counted(conversation_id)).hexdigest())


_kept_key = lru_cache(maxsize=4096)(_key)  # each call of a conversation names it again


def _hash(salt: bytes, before: bytes) -> Any:
    if len(salt) > _MOST_SALT_BYTES:
        raise InvalidInput(f"salt must have at most {_MOST_SALT_BYTES} bytes, got {len(salt)}")
    return blake2b(before, digest_size=_DIGEST_BYTES, key=salt)


def _counted(text: str) -> bytes:
    """Return a text after its length, so that texts in a row cannot be mistaken; of a long one its start and end."""
    encoded = _shortened(text).encode("utf-8", _LOSSLESS)
    return len(encoded).to_bytes(8, "big") + encoded


def _shortened(text: str) -> str:
    """Return a text, or the start, the length and the end of a long one."""
    if len(text) <= MOST_HASHED_CHARS:
        return text
    return f"{text[: MOST_HASHED_CHARS // 2]}{len(text)}{text[-MOST_HASHED_CHARS // 2 :]}"


def _role(message: object) -> str:
    """Return the role of a message, or that of an item of a response."""
    role = _get(message, "role")
    if role is not None:
        return str(role)
    return "assistant" if str(_get(message, "type")).endswith(_MODEL_ITEMS) else "user"


def _parts(message: object) -> Iterator[str]:
    """Yield what counts of a message: texts, media, and the ids of tool calls and of their results."""
    yield from _of_content(message if isinstance(message, str) else _get(message, "content"))
    for call in _get(message, "tool_calls") or ():
        yield _call_id(_get(call, "id"))
    for name in ("tool_call_id", "call_id"):
        if id_ := _get(message, name):
            yield _call_id(id_)
    yield from _of_content(_get(message, "output"))


def _of_content(content: object) -> Iterator[str]:
    if isinstance(content, str):
        content = [content]
    for part in content if isinstance(content, list | tuple) else ():
        yield from _of_part(part)


def _of_part(part: object) -> Iterator[str]:
    kind = _get(part, "type")
    if isinstance(part, str) or kind in _TEXTS or kind is None:
        text = part if isinstance(part, str) else _get(part, "text") or _get(part, "refusal")
        text = text.strip() if isinstance(text, str) else ""
        if text and not (text.startswith(_REMINDER) and text.endswith(_REMINDER_END)):
            yield text
    elif kind == "tool_use":
        yield _call_id(_get(part, "id"))
    elif kind == "tool_result":
        yield _call_id(_get(part, "tool_use_id"))
        yield from _of_content(_get(part, "content"))
    elif kind not in _THOUGHTS and isinstance(part, Mapping):
        yield json.dumps(_without_marks(part), default=str, sort_keys=True)


def _without_marks(value: Any) -> Any:
    """Return a part of a message without marks for caches, its texts shortened."""
    if isinstance(value, Mapping):
        return {str(name): _without_marks(one) for name, one in value.items() if name != "cache_control"}
    if isinstance(value, list | tuple):
        return [_without_marks(one) for one in value]
    return _shortened(value) if isinstance(value, str) else value


def _call_id(value: object) -> str:
    """Return the id of a tool call without the thought that LiteLLM appends to it."""
    return str(value).partition(_THOUGHT)[0]


def _get(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
