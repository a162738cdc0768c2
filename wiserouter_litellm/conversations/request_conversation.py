"""The conversation of a request: found by the ids that it states, else by the turns that it repeats.

It is looked up at the first decision of a request, and kept for the retries and the fallbacks of the same request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wiserouter import Decision, WiseRouter
from wiserouter.errors import UnknownDecision
from wiserouter.integration import ConversationId, ConversationKey, StatedIds, conversation_of, name_of_answer
from wiserouter_litellm.conversations.conversation_ids import stated_ids, tenant_of
from wiserouter_litellm.conversations.feedback_keys import feedback_key

LONG_HISTORY_CHARS = 100_000
"""A longer history is hashed off the event loop: it takes a third of a millisecond or more."""

TURN_KEY = "turn"
"""Key of a decision's mark under which the hash of the request is kept, by which its answer is named."""

SESSION_KEYS = "session_keys"
"""Key of a decision's mark under which the names of its conversation are kept."""


class ConversationNote(NamedTuple):
    """The conversation of a request, as its retries, its headers and its log events need it.

    Attributes
    ----------
    id : ConversationId
        The conversation.
    names : list of str
        Further names of the decision, by which later requests and feedback find it.
    headers : dict of str to str
        Headers of the answer.
    """

    id: ConversationId
    names: list[str]
    headers: dict[str, str]


class RequestConversation:
    """The conversation of one request.

    Parameters
    ----------
    stated : StatedIds
        The ids that the request states.
    messages : sequence
        Its messages, or the items of its input.
    tenant : str
        The caller, as `tenant_of` names it.
    scope : str
        The scope that pays.
    known : ConversationId, optional
        The conversation, where an earlier attempt of the request has found it.
    """

    __slots__ = ("_id", "_messages", "_scope", "_stated", "_tenant")

    def __init__(
        self,
        stated: StatedIds,
        messages: Sequence[Any],
        tenant: str,
        scope: str,
        known: ConversationId | None = None,
    ) -> None:
        self._stated, self._messages, self._tenant, self._scope, self._id = stated, messages, tenant, scope, known

    @property
    def reads_history(self) -> bool:
        """Whether the messages must be hashed to find the conversation."""
        return self._id is None and not self._stated.conversation

    def terms(self, router: WiseRouter) -> dict[str, Any]:
        """Return the arguments of `decide` that name the conversation; may wait for the store."""
        return {
            "conversation": self._found(router).id,
            "caller": self._tenant,
            "parent": self._stated.parent or None,
        }

    def note(self, router: WiseRouter, decision: Decision) -> ConversationNote:
        """Return the note of a decision; may wait for the store."""
        found = self._found(router)
        names = list(found.names)
        if not decision.run_id or decision.run_id == decision.id:  # the score of a run is that of its first decision
            ids = dict.fromkeys([self._stated.conversation, decision.conversation])
            names += [session_key(id_, self._tenant) for id_ in ids if id_]
        return ConversationNote(found, names, headers_of(router, decision))

    def _found(self, router: WiseRouter) -> ConversationId:
        if self._id is None:
            salt = json.dumps([self._scope, self._tenant])
            self._id = conversation_of(self._stated, self._messages, salt, lambda *names: _known(router, *names))
        return self._id


def conversation_of_request(
    messages: object,
    kwargs: Mapping[str, Any],
    metadata: Mapping[str, Any],
    caller: str | None,
    scope: str,
    known: ConversationId | None,
) -> RequestConversation | None:
    """Return the conversation of a request, not looked up yet; None for a call that runs beside another one.

    Parameters
    ----------
    messages : list of dict or None
        Chat messages; None for the responses API, whose items are in `kwargs["input"]`.
    kwargs : mapping
        The request's keyword arguments.
    metadata : mapping
        LiteLLM's own metadata.
    caller : str or None
        The hash of the key that made it.
    scope : str
        The scope that pays.
    known : ConversationId or None
        The conversation, where an earlier attempt has found it.
    """
    if metadata.get("is_silent_experiment"):
        return None
    items = kwargs.get("input") if messages is None else messages
    turns = [items] if isinstance(items, str) else items if isinstance(items, list | tuple) else []
    return RequestConversation(stated_ids(kwargs, caller), turns, tenant_of(metadata), scope, known)


def session_key(id_: str, tenant: str) -> str:
    """Return the name by which feedback finds a decision by the id of its session, or by the key of its conversation.

    Examples
    --------
    >>> session_key("thread-1", "team-a") == session_key("thread-1", "team-b")
    False
    """
    return feedback_key(f"session {id_}", tenant)


def names_of_answer(turn: str, response: object) -> list[str]:
    """Return the names by which a request that repeats an answer finds its decision.

    Parameters
    ----------
    turn : str
        The hash of the request; empty where its conversation has an id of its own.
    response : object
        An answer of a chat, of the responses API or of Anthropic's messages.
    """
    if not turn:
        return []
    choices = _get(response, "choices")
    answers = [[_get(one, "message")] for one in choices] if isinstance(choices, list) else []
    if not answers:
        output = _get(response, "output")
        answers = [output] if isinstance(output, list) else [[response]] if _get(response, "content") else []
    return [name for answer in answers if answer and (name := name_of_answer(turn, answer))]


def headers_of(router: WiseRouter, decision: Decision) -> dict[str, str]:
    """Return the headers of an answer: its conversation, the visit of the model, and the calls before this one."""
    state = router.conversation(ConversationKey(decision.conversation))
    headers = {"x-wiserouter-conversation": decision.conversation, "x-wiserouter-visit": decision.visit}
    if state is None:  # another worker has ended it meanwhile
        return headers
    cached = state.read_tokens / state.sent_tokens if state.sent_tokens else 0.0
    return {
        **headers,
        "x-wiserouter-conversation-calls": str(state.calls),
        "x-wiserouter-conversation-spent-usd": f"{state.spent_usd:.6g}",
        "x-wiserouter-conversation-cached": f"{cached:.3f}",
    }


def _known(router: WiseRouter, *names: str) -> str | None:
    """Return the key of the conversation of the first decision that is known by a name."""
    try:
        return router.decision(*names).conversation or None
    except UnknownDecision:
        return None


def _get(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
