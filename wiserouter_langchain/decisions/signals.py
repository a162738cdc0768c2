"""Certain failures in LangChain's answers and histories, as scores of the calls that they belong to."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from pydantic import ValidationError

from wiserouter import Answer, WiseRouter
from wiserouter.integration import Signals
from wiserouter_langchain.decisions.conversation_ids import stated_ids
from wiserouter_langchain.decisions.routed_call import RoutedCall, recorded_decision

logger = logging.getLogger("wiserouter.langchain")

LOOP_ERRORS = frozenset({"GraphRecursionError", "ModelCallLimitExceededError", "ToolCallLimitExceededError"})
"""The errors of LangGraph and LangChain by which an agent ends at the limit of its steps."""


def asker_of(config: Mapping[str, Any], scope: str) -> str:
    """Return who asks: the scope that pays, and the thread that the configuration names: one program serves many."""
    return f"{scope}\0{stated_ids(config, []).conversation}"


def read_history(router: WiseRouter, signals: Signals, messages: Sequence[BaseMessage], asker: str) -> None:
    """Score the answers that the messages of a new call show to have failed; may wait for the store.

    Parameters
    ----------
    router : WiseRouter
        Keeps the scores.
    signals : Signals
        The rules.
    messages : sequence of BaseMessage
        The messages of the call.
    asker : str
        Who asks, as `asker_of` says.
    """
    try:
        if "tool_error" in signals.rules:
            for decision_id in dict.fromkeys(_callers_of_failed_tools(messages)):
                router.fail(decision_id, "tool_error")
        if "regenerated" in signals.rules:
            former = signals.regenerated(_prompt_key(messages, asker))
            if former is not None:
                router.fail(former, "regenerated")
    except Exception as error:  # a score is lost, the call goes on
        logger.warning("the failure of an earlier answer is not scored: %s", error)


def read_call(
    router: WiseRouter,
    signals: Signals,
    call: RoutedCall,
    messages: Sequence[BaseMessage],
    asker: str,
    raised: BaseException | None,
) -> None:
    """Score a settled call whose answer has certainly failed, and remember it for the calls that follow.

    Parameters
    ----------
    router, signals, messages, asker
        As in `read_history`.
    call : RoutedCall
        The call.
    raised : BaseException or None
        The error that ended it: that of a parser may follow a complete answer.
    """
    message, complete = call.observer.answer, bool(call.observer.runs) and call.observer.runs[-1].error is None
    if message is None or not complete:
        return
    try:
        failed = ("schema_error",) if _misses_schema(call, raised) else ()
        router.check_answer(call.decision, answer_of(message, failed))
        signals.answered(call.decision.id, _prompt_key(messages, asker))
    except Exception as error:  # a score is lost
        logger.warning("an answer is not checked for failures: %s", error)


def answer_of(message: BaseMessage, failed: Sequence[str] = ()) -> Answer:
    """Return the parts of a message that the rules read.

    Examples
    --------
    >>> answer_of(AIMessage("", response_metadata={"finish_reason": "length"})).failures()
    ('truncated', 'empty_answer')
    """
    metadata, more = message.response_metadata, message.additional_kwargs
    reason = next((metadata[name] for name in _REASONS if metadata.get(name)), "")
    invalid = getattr(message, "invalid_tool_calls", None) or ()
    valid = getattr(message, "tool_calls", None) or ()
    blocks = message.content if isinstance(message.content, list) else ()
    kinds = {block.get("type") for block in blocks if isinstance(block, Mapping)}
    older = [str(call.get("arguments", ""))] if isinstance(call := more.get("function_call"), Mapping) else []
    return Answer(
        message.text,
        str(reason),
        [{} for _ in valid] + ["{" for _ in invalid] + older,
        refusal="refusal" in kinds or reason == "refusal" or bool(more.get("refusal")),
        failed=failed,
        other=bool(kinds - _BLOCKS) or bool(more.get("audio")),
    )


_REASONS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "reasoning", "reasoning_content", "refusal"})


def _misses_schema(call: RoutedCall, raised: BaseException | None) -> bool:
    """Return True if the answer could not be parsed into the schema that was asked for, or does not try to."""
    if isinstance(raised, OutputParserException | ValidationError):
        return True
    output = call.output
    if raised is not None or not call.request.structured:
        return False
    return output is None or (isinstance(output, dict) and "parsed" in output and output["parsed"] is None)


def _callers_of_failed_tools(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """Yield the decisions of the answers whose tools, at the end of the messages, report errors."""
    results = takewhile(lambda one: isinstance(one, ToolMessage), reversed(messages))
    failed = {one.tool_call_id for one in results if isinstance(one, ToolMessage) and one.status == "error"}
    for message in reversed(messages) if failed else ():
        if isinstance(message, AIMessage):
            called = {call["id"] for call in message.tool_calls}
            if failed & called and (decision_id := recorded_decision(message)):
                yield decision_id
            return


def _prompt_key(messages: Sequence[BaseMessage], asker: str) -> str:
    hashed = blake2b(asker.encode("utf-8", "surrogatepass"), digest_size=16)
    for message in messages:
        hashed.update(repr((message.type, message.content)).encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()
