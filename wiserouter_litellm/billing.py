"""The bill of a call, read out of LiteLLM's log event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter import Usage
from wiserouter.integration import Bill, clamped_usage, estimated_usage
from wiserouter_litellm.deployments import DeploymentInfo
from wiserouter_litellm.request import request_of


def bill_of(kwargs: Mapping[str, Any], response: object, info: DeploymentInfo) -> Bill:
    """Return the bill of a successful call; the estimates learn nothing from an answer of LiteLLM's cache.

    Parameters
    ----------
    kwargs : mapping
        The event, as loggers get it.
    response : object
        The answer; of a stream, all of it.
    info : DeploymentInfo
        The deployment that answered; its prices count where LiteLLM reports no cost.
    """
    logged = kwargs.get("standard_logging_object") or {}
    if kwargs.get("cache_hit") or logged.get("cache_hit"):
        return Bill(0.0, model=info.model, learn=False)
    reported_usd = kwargs.get("response_cost") or logged.get("response_cost") or 0.0
    usage = usage_of(getattr(response, "usage", None), logged)
    unknown = usage.input_tokens + usage.output_tokens == 0
    if reported_usd > 0:
        return Bill(float(reported_usd), None if unknown else usage, info.model)
    if unknown:
        usage = _estimate(kwargs, response)
    return Bill(info.rate_card.cost_usd(usage), usage, info.model, estimated=unknown)


def usage_of(block: object, logged: Mapping[str, Any]) -> Usage:
    """Return the tokens of a call: those of the answer's usage block, else those of LiteLLM's own record."""
    inputs = _first(block, "prompt_tokens_details", "input_tokens_details")
    outputs = _first(block, "completion_tokens_details", "output_tokens_details")
    return clamped_usage(
        _number(block, "prompt_tokens", "input_tokens") or int(logged.get("prompt_tokens") or 0),
        _number(block, "completion_tokens", "output_tokens") or int(logged.get("completion_tokens") or 0),
        _number(inputs, "cached_tokens"),
        _number(inputs, "cache_creation_tokens"),
        _number(outputs, "reasoning_tokens"),
    )


def _estimate(kwargs: Mapping[str, Any], response: object) -> Usage:
    """Return the tokens of question and answer, counted here."""
    request = request_of(kwargs.get("messages"), kwargs)
    text, overhead = ("", 0) if request is None else (request.counted, request.overhead_tokens)
    return estimated_usage(text, overhead, _answer_text(response))


def _answer_text(response: object) -> str:
    choices = getattr(response, "choices", None) or ()
    messages = (_get(choice, "message") or choice for choice in choices)
    return "\n".join(str(_get(m, "content") or _get(m, "text") or "") for m in messages)


def _first(block: object, *names: str) -> object:
    """Return the first of some fields that is there."""
    return next((value for name in names if (value := _get(block, name)) is not None), None)


def _number(block: object, *names: str) -> int:
    value = _first(block, *names)
    return int(value) if isinstance(value, int | float) else 0


def _get(block: object, name: str) -> Any:
    return block.get(name) if isinstance(block, Mapping) else getattr(block, name, None)
