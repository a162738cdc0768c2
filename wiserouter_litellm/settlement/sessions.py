"""Scores and the end of runs and conversations, by the id of their session or of one of their calls.

An id counts for the caller who made the calls, and in every group that has served them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wiserouter import WiseRouter
from wiserouter.errors import UnknownDecision
from wiserouter.integration import ConversationKey
from wiserouter_litellm.conversations.feedback_keys import keys_to_try
from wiserouter_litellm.conversations.request_conversation import session_key
from wiserouter_litellm.errors import UnknownCall
from wiserouter_litellm.groups.group import Group


def rate_session(groups: Iterable[Group], id_: str, tenant: str, rate: Callable[[WiseRouter, str], bool]) -> bool:
    """Rate a run, or the latest call of a conversation; return True if an earlier score was replaced.

    Raises
    ------
    UnknownCall
        If this caller has none of this id.
    AlreadySettled
        If all its calls failed.
    """
    rated = []
    for router in _keeping(groups):
        try:
            decision_id = router.decision(session_key(id_, tenant)).id
            rated.append(rate(router, decision_id))
        except UnknownDecision:
            continue
    if not rated:
        raise UnknownCall(id_)
    return any(rated)


def end_session(groups: Iterable[Group], id_: str, caller: str | None, tenant: str, *, any_caller: bool) -> None:
    """End a run or a conversation, found by the id of its session or of one of its calls.

    Raises
    ------
    UnknownCall
        If this caller has none of this id.
    """
    names = (session_key(id_, tenant), *keys_to_try(id_, caller, any_caller=any_caller))
    ended = False
    for router in _keeping(groups):
        try:
            conversation = router.decision(*names).conversation
        except UnknownDecision:
            continue
        if conversation:
            router.end(ConversationKey(conversation))
            ended = True
    if not ended:
        raise UnknownCall(id_)


def _keeping(groups: Iterable[Group]) -> list[WiseRouter]:
    """Return the routers of some groups that keep conversations, each once."""
    return list(dict.fromkeys(group.router for group in groups if group.keeps_conversations))
