"""The own answers of calls, and their bills, where LiteLLM's events do not show them.

Where LiteLLM runs a tool that the model has called, such as a search, and calls the model once more, it reports that
answer for the first call as well. And calls that share LiteLLM's log, as those around its MCP tools do, are reported
once, with the answer of any of them. Where its settings ask for it, it redacts all answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from wiserouter.integration import Bill
from wiserouter_litellm.billing.bill import bill_of, read_answer
from wiserouter_litellm.billing.cached_answers import is_of_cache
from wiserouter_litellm.billing.redacted_texts import REDACTED
from wiserouter_litellm.deployments.registry import DeploymentInfo
from wiserouter_litellm.groups.attempts import OpenAttempt
from wiserouter_litellm.requests.json_objects import MAPPING, field_of, fields_of

_REPORTED_THEMSELVES = "anthropic_messages"
"""LiteLLM's name of the calls that it reports with their own answers, whatever it does with these."""

_REDACTED_MESSAGES = [{"role": "user", "content": REDACTED}]
"""The messages of an event whose texts LiteLLM has redacted."""


def is_of_earlier_call(attempt: OpenAttempt | None, kwargs: Mapping[str, Any]) -> bool:
    """Return True if an event under the mark of an attempt is that of the call before it, with which it shares a log.

    LiteLLM shows every whole answer of a provider before it reports it, but none of its cache, as of a fallback.
    """
    if attempt is None or attempt.started is None:
        return False
    return not (attempt.answered or kwargs.get("stream") or is_of_cache(kwargs))


def read_event(
    attempt: OpenAttempt | None, kwargs: Mapping[str, Any], response: object, info: DeploymentInfo, *, hard: bool
) -> tuple[Bill | None, bool, bool]:
    """Return the bill of a call, as `read_answer` does, and True if LiteLLM's event shows the answer of this very call.

    Parameters
    ----------
    attempt : OpenAttempt or None
        The attempt, if it is in flight.
    kwargs, response, info, hard : mapping, object, DeploymentInfo, bool
        As in `read_answer`.

    Raises
    ------
    ValueError
        If a cost or a number of tokens is negative, infinite or no number.
    """
    own = None if attempt is None else _own_bill(attempt, kwargs, response, info)
    if own is not None:
        return own, False, False
    replayed = attempt is not None and attempt.replayed
    return *read_answer(_with_messages(attempt, kwargs), response, info, hard=hard, replayed=replayed), True


def _with_messages(attempt: OpenAttempt | None, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an event with the messages of its call, to count their tokens, where LiteLLM shows them redacted."""
    log = None if attempt is None or attempt.log is None else attempt.log()
    if log is None or kwargs.get("messages") != _REDACTED_MESSAGES:
        return kwargs
    return {**kwargs, "messages": log.messages}


def unredacted(attempt: OpenAttempt | None, kwargs: Mapping[str, Any], response: object) -> object:
    """Return the answer of an event as it came, where LiteLLM shows it redacted; it shows streams in no other way.

    Of an answer, only hashes of its ids, its thoughts and its turn are kept.
    """
    if attempt is None or attempt.answer is None or kwargs.get("messages") != _REDACTED_MESSAGES:
        return response
    return attempt.answer


def _own_bill(attempt: OpenAttempt, kwargs: Mapping[str, Any], response: object, info: DeploymentInfo) -> Bill | None:
    """Return the bill of an attempt whose event may show the answer of another call; None where it shows its own.

    Only the event has the fees that LiteLLM knows of, such as those of searches. After a call that was answered it has,
    in LiteLLM 1.109, the costs of both: it counts only where an error came before.
    """
    if kwargs.get("call_type") == _REPORTED_THEMSELVES:
        return None
    if not attempt.followed:
        is_again = attempt.earlier is not None and _is_same(attempt.answer, response)
        return None if attempt.started is None or is_again else attempt.bill
    usage = _usage_of(kwargs.get("original_response"))
    event = {**kwargs, "response_cost": None, "standard_logging_object": None}
    return None if usage is None else bill_of(event, SimpleNamespace(usage=usage), info)


def _is_same(answer: object, response: object) -> bool:
    """Return True if an event shows an answer, redacted or not."""
    id_ = field_of(answer, "id")
    return answer is response or (id_ is not None and id_ == field_of(response, "id"))


def _usage_of(answered: object) -> dict[str, Any] | None:
    """Return the usage in what a provider answered, under the names that LiteLLM gives its tokens; None without one.

    Examples
    --------
    >>> _usage_of('{"usage": {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 7}}')["prompt_tokens"]
    95
    """
    try:
        usage = fields_of(json.loads(str(answered))).get("usage")
    except (ValueError, RecursionError):
        return None
    if not isinstance(usage, MAPPING):
        return None
    read, written = (usage.get(f"cache_{name}_input_tokens") or 0 for name in ("read", "creation"))
    if "prompt_tokens" in usage or not (read or written):
        return dict(usage)
    details = {"cached_tokens": read, "cache_creation_tokens": written}  # Anthropic counts them apart
    tokens = (usage.get("input_tokens") or 0) + read + written
    return {**usage, "prompt_tokens": tokens, "prompt_tokens_details": details}
