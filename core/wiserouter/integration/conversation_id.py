"""The conversation of a request: the id that it states, else that of the request that it continues.

The first of these counts: an id of a session or a thread; the answer that the request names as the one before it; the
key of a prompt cache, with the first turn, since some programs have one key for all that they send; the hash of an
earlier turn of its messages. A request without any of them begins a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from wiserouter.conversations.identity import ConversationKey, answered, earlier_turns, last_request, prefix_chain
from wiserouter.stores.ids import fresh_id

MOST_TURNS = 8
"""The most earlier turns by which a conversation is looked for: clients may have changed the latest ones."""


class ConversationId(NamedTuple):
    """The conversation of one request.

    Attributes
    ----------
    id : str
        As `WiseRouter.decide` takes it.
    request : str
        The hash of the messages up to this request; empty where the conversation has an id that its requests state.
    """

    id: str
    request: str = ""

    @property
    def names(self) -> list[str]:
        """The names of the request's decision by which a request that continues it finds the conversation."""
        return [_turn_name(self.request)] if self.request else []


@dataclass(frozen=True, slots=True)
class StatedIds:
    """The ids that a request states.

    Attributes
    ----------
    conversation : str
        The id of a session, a thread or a run.
    cache_key : str
        The key of a prompt cache.
    answers : sequence of str
        Names of the decisions behind the answers that it continues, the latest first.
    parent : str
        The id of the run that this one works for.
    """

    conversation: str = ""
    cache_key: str = ""
    answers: Sequence[str] = ()
    parent: str = ""


def conversation_of(
    stated: StatedIds, messages: Iterable[Any], caller: str, find: Callable[..., str | None]
) -> ConversationId:
    """Return the conversation of a request.

    Parameters
    ----------
    stated : StatedIds
        The ids that it states.
    messages : iterable of mapping or object
        Its messages, as `prefix_chain` reads them.
    caller : str
        The caller and its scope: no request joins the conversation of another caller.
    find : callable
        Given several names, returns the key of the conversation of the first decision that is known by one of them;
        may wait for the store.

    Examples
    --------
    >>> conversation_of(StatedIds("thread-1"), [], "team-a", lambda *names: None)
    ConversationId(id='thread-1', request='')
    """
    if stated.conversation:
        return ConversationId(stated.conversation)
    chain = prefix_chain(messages, caller)
    if stated.cache_key and not stated.answers:
        return ConversationId(f"{stated.cache_key} {next(iter(chain), '')}")
    names = [*stated.answers, *map(_turn_name, earlier_turns(chain, MOST_TURNS))]
    key = find(*names) if names else None
    return ConversationId(ConversationKey(key or fresh_id()), last_request(chain) if chain else "")


def share_key(stated: StatedIds, messages: Iterable[Any], caller: str) -> str:
    """Return the key by which a request of shadow mode is on one side with the others of its conversation.

    It is the id that the request states, else the hash of its first turn, which the requests that follow repeat.

    Parameters
    ----------
    stated, messages, caller
        As in `conversation_of`.

    Examples
    --------
    >>> first, answer = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}
    >>> share_key(StatedIds(), [first], "a") == share_key(StatedIds(), [first, answer, first], "a")
    True
    """
    if stated.conversation:
        return f"{caller} {stated.conversation}"
    begin = takewhile(lambda one: _get(one, "role") != "assistant", messages)
    return next(iter(prefix_chain(begin, caller)), "") or fresh_id()


def name_of_answer(request: str, answer: Sequence[Any]) -> str | None:
    """Return the name of a decision by which a request that repeats its answer finds it; None without an answer.

    Parameters
    ----------
    request : str
        The hash of the messages up to the request.
    answer : sequence of mapping or object
        The message that answers it, or the items of the response.
    """
    return _turn_name(answered(request, answer)) if answer else None


def _get(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _turn_name(turn: str) -> str:
    return f"turn {turn}"
