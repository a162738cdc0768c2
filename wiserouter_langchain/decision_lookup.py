"""The lookup of the decisions behind a message, a run or a decision id, to reward or to explain them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from langchain_core.messages import BaseMessage

from wiserouter import Explanation, WiseRouter
from wiserouter.errors import AlreadySettled, UnknownDecision
from wiserouter.integration import check_reward
from wiserouter_langchain.decision_index import DecisionIndex, shared_name
from wiserouter_langchain.routed_call import RECORD

_RUN_PREFIXES = ("lc_run--", "run--", "run-")
"""What LangChain puts before a run id to make it the id of a message."""


def credit(router: WiseRouter, index: DecisionIndex, target: Any, score: float, comment: str | None) -> int:
    """Reward the decisions behind a message, run or decision id, and return their number."""
    reward = check_reward(score)
    return sum(_is_rewarded(router, each, reward, comment) for each in _decisions(router, index, target))


def explained(router: WiseRouter, index: DecisionIndex, target: Any) -> Explanation:
    """Return the explanation of the latest decision behind a message, run or decision id.

    Raises
    ------
    UnknownDecision
        If there is none.
    """
    found = _decisions(router, index, target)
    if not found:
        raise UnknownDecision(str(getattr(target, "id", target)))
    return router.explain(found[-1])


def _is_rewarded(router: WiseRouter, decision_id: str, reward: float, comment: str | None) -> bool:
    """Reward a decision; return False if it is forgotten, or if its call failed."""
    try:
        router.reward(decision_id, reward, comment=comment)
    except (UnknownDecision, AlreadySettled):
        return False
    return True


def _decisions(router: WiseRouter, index: DecisionIndex, target: Any) -> list[str]:
    if not isinstance(target, BaseMessage):
        return _of_run(router, index, str(target)) or [str(target)]
    record = target.response_metadata.get(RECORD)
    if record:
        return [str(record["decision_id"])]
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
