"""What a finished call cost and which model answered, out of LiteLLM's log event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from wiserouter import Usage
from wiserouter.pricing.tokens import count_tokens
from wiserouter_litellm.deployments import DeploymentInfo
from wiserouter_litellm.request import request_of


class Bill(NamedTuple):
    """What a call cost.

    Attributes
    ----------
    cost_usd : float, USD
        As LiteLLM reports it; where that is nothing though the model is not free, tokens at the model's price.
    model : str
        The model that answered.
    cached : bool
        Whether LiteLLM's cache answered.
    estimated : bool
        Whether the tokens had to be counted here, as for a stream without a usage block.
    usage : Usage or None
        The tokens, where they are known.
    """

    cost_usd: float
    model: str
    cached: bool = False
    estimated: bool = False
    usage: Usage | None = None


def bill_of(kwargs: Mapping[str, Any], response: object, info: DeploymentInfo) -> Bill:
    """Return the bill of a successful call.

    Parameters
    ----------
    kwargs : mapping
        The event, as loggers get it.
    response : object
        The answer; of a stream, all of it.
    info : DeploymentInfo
        The deployment that answered.
    """
    logged = kwargs.get("standard_logging_object") or {}
    if kwargs.get("cache_hit") or logged.get("cache_hit"):
        return Bill(0.0, info.model, cached=True)
    reported = kwargs.get("response_cost") or logged.get("response_cost") or 0.0
    usage = usage_of(getattr(response, "usage", None), logged)
    unknown = usage.input_tokens + usage.output_tokens == 0
    if reported > 0:
        return Bill(float(reported), info.model, usage=None if unknown else usage)
    if unknown:
        usage = _counted(kwargs, response)
    return Bill(info.tariff.cost_usd(usage), info.model, estimated=unknown, usage=usage)


def usage_of(block: object, logged: Mapping[str, Any]) -> Usage:
    """Return the tokens of a call: of the answer's usage block, else of LiteLLM's own record."""
    prompt = _number(block, "prompt_tokens", "input_tokens") or int(logged.get("prompt_tokens") or 0)
    completion = _number(block, "completion_tokens", "output_tokens") or int(logged.get("completion_tokens") or 0)
    inputs = _part(block, "prompt_tokens_details", "input_tokens_details")
    outputs = _part(block, "completion_tokens_details", "output_tokens_details")
    read = min(_number(inputs, "cached_tokens"), prompt)
    return Usage(
        prompt,
        completion,
        cache_read_tokens=read,
        cache_write_tokens=min(_number(inputs, "cache_creation_tokens"), prompt - read),
        reasoning_tokens=min(_number(outputs, "reasoning_tokens"), completion),
    )


def _counted(kwargs: Mapping[str, Any], response: object) -> Usage:
    """Count question and answer here, where nobody else did."""
    request = request_of(kwargs.get("messages"), kwargs)
    asked = 0 if request is None else count_tokens(request.counted).tokens + request.overhead_tokens
    return Usage(asked, count_tokens(_answer(response)).tokens)


def _answer(response: object) -> str:
    choices = getattr(response, "choices", None) or ()
    messages = (_get(choice, "message") or choice for choice in choices)
    return "\n".join(str(_get(m, "content") or _get(m, "text") or "") for m in messages)


def _part(block: object, *names: str) -> object:
    return next((part for name in names if (part := _get(block, name)) is not None), None)


def _number(block: object, *names: str) -> int:
    value = _part(block, *names)
    return int(value) if isinstance(value, int | float) else 0


def _get(block: object, name: str) -> Any:
    return block.get(name) if isinstance(block, Mapping) else getattr(block, name, None)
