"""The lookup of the decisions behind a message, a run or a decision id, to reward or to explain them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from langchain_core.messages import BaseMessage

from wiserouter import Explanation, WiseRouter
from wiserouter.errors import AlreadySettled, UnknownConversation, UnknownDecision
from wiserouter.integration import check_reward
from wiserouter_langchain.decisions.decision_index import DecisionIndex, shared_name
from wiserouter_langchain.decisions.routed_call import recorded_decision

_RUN_PREFIXES = ("lc_run--", "run--", "run-")
"""What LangChain puts before a run id to make it the id of a message."""

MOST_SHOWN_CHARS = 60
"""The most characters of an unknown target that an error shows."""


def credit(
    router: WiseRouter,
    index: DecisionIndex,
    target: Any,
    score: float,
    scope: str = "default",
    *,
    comment: str | None = None,
    source: str = "human",
    weight: float = 1.0,
) -> int:
    """Reward the decisions behind a message, run, decision id or conversation, and return their number.

    Raises
    ------
    UnknownDecision
        If there is none.
    """
    given = {"reward": check_reward(score), "source": source, "weight": weight, "comment": comment}
    calls: dict[str, list[str]] = {}
    for each in _decisions(router, index, target):
        calls.setdefault(each if router.conversations is None else _of_agent_run(router, each), []).append(each)
    reached = sum([any(_is_rewarded(router, each, given) for each in of_run) for of_run in calls.values()])
    if reached or _is_conversation_rewarded(router, target, given, scope):
        return reached or 1
    raise UnknownDecision(
        _shown(target), "pass the answer as a message, a decision id, or the id of a run that this router has served"
    )


def explained(router: WiseRouter, index: DecisionIndex, target: Any) -> Explanation:
    """Return the explanation of the latest decision behind a message, run or decision id.

    Raises
    ------
    UnknownDecision
        If there is none.
    """
    found = _decisions(router, index, target)
    if not found:
        raise UnknownDecision(_shown(target))
    return router.explain(found[-1])


def _is_rewarded(router: WiseRouter, decision_id: str, given: Mapping[str, Any]) -> bool:
    """Reward a decision; return False if it is forgotten, or if its call failed."""
    try:
        router.reward(decision_id, **given)
    except (UnknownDecision, AlreadySettled):
        return False
    return True


def _is_conversation_rewarded(router: WiseRouter, target: Any, given: Mapping[str, Any], scope: str) -> bool:
    """Reward a conversation by its id; return False where it is unknown."""
    if router.conversations is None or isinstance(target, BaseMessage) or not str(target):
        return False
    try:
        router.reward_conversation(str(target), scope=scope, **given)
    except UnknownConversation:
        return False
    return True


def _of_agent_run(router: WiseRouter, decision_id: str) -> str:
    """Return the decision that the score of a call belongs to: that of its run, where it is part of one."""
    try:
        return router.decision(decision_id).run_id or decision_id
    except UnknownDecision:
        return decision_id


def _shown(target: Any) -> str:
    """Return the start of a target, which may be a long answer."""
    text = str(getattr(target, "id", target))
    return text if len(text) <= MOST_SHOWN_CHARS else f"{text[:MOST_SHOWN_CHARS]}..."


def _decisions(router: WiseRouter, index: DecisionIndex, target: Any) -> list[str]:
    if not isinstance(target, BaseMessage):
        return _of_run(router, index, str(target)) or [str(target)]
    if decision_id := recorded_decision(target):
        return [decision_id]
    return _of_run(router, index, _run_of(target.id or ""))


def _of_run(router: WiseRouter, index: DecisionIndex, run_id: str) -> list[str]:
    """Return the decisions behind a run of this worker, or of another worker on the same store."""
    found = index.decisions_of(run_id)
    if found or not router.durable:
        return found
    with suppress(UnknownDecision):
        while True:
            found.append(router.decision(shared_name(run_id, len(found))).id)
    return found


def _run_of(message_id: str) -> str:
    """Return the run id within the message id that LangChain assigns where the provider gives none."""
    prefix = next((prefix for prefix in _RUN_PREFIXES if message_id.startswith(prefix)), "")
    return message_id[len(prefix) :][:36]
