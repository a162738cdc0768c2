"""The bill of a call, read out of LiteLLM's log event.

An answer whose figures make no sense is not billed by them: it was paid for all the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from wiserouter import Usage
from wiserouter.integration import Bill, estimated_usage
from wiserouter_litellm.billing.billed_tier import billed_tier, drops_tier
from wiserouter_litellm.billing.cached_answers import is_of_cache
from wiserouter_litellm.billing.counted_streams import has_counted_prompt, is_counted, may_be_counted
from wiserouter_litellm.billing.redacted_texts import REDACTED
from wiserouter_litellm.billing.unfinished_streams import is_unfinished
from wiserouter_litellm.deployments.registry import DeploymentInfo
from wiserouter_litellm.requests.json_objects import MAPPING, field_of, fields_of
from wiserouter_litellm.requests.parameters import RESPONSES
from wiserouter_litellm.requests.request import request_of
from wiserouter_litellm.requests.surcharges import discount_of, margin_of_provider

_MESSAGES = ("messages", "input", "call_type")
"""The parts of an event that say what LiteLLM counts in a prompt."""


def bill_of(kwargs: Mapping[str, Any], response: object, info: DeploymentInfo) -> Bill | None:
    """Return the bill of a successful call; the estimates learn nothing from an answer of LiteLLM's cache.

    Parameters
    ----------
    kwargs : mapping
        The event, as loggers get it.
    response : object
        The answer; of a stream, all of it.
    info : DeploymentInfo
        The deployment that answered. Where LiteLLM reports no cost, or less than the tokens cost at the prices that the
        deployment itself states, its prices count: what LiteLLM finds depends on the calls before this one.

    Returns
    -------
    Bill or None
        None where the answer is empty, in tokens and in text, or its text is redacted and nothing else says its cost:
        there is nothing to bill it by.

    Raises
    ------
    ValueError
        If a cost or a number of tokens is negative, infinite or no number.
    """
    logged = kwargs.get("standard_logging_object") or {}
    if is_of_cache(kwargs):
        return Bill(0.0, model=info.model, learn=False)
    reported = reported_usd(kwargs)
    usage = usage_of(getattr(response, "usage", None), logged)
    unknown = usage.input_tokens + usage.output_tokens == 0
    if usage.output_tokens == 0 and (unknown or hasattr(response, "choices")):
        text = _answer_text(response)
        if not text or (unknown and reported == 0 and REDACTED in text):
            return None  # of a stream without usage, LiteLLM counts the prompt itself
    if unknown and reported > 0:
        return Bill(reported, None, info.model)
    if unknown:
        usage = _estimate(kwargs, response)
    if reported > 0 and not _has_own_prices(kwargs, info):
        return Bill(reported, usage, info.model)
    own_usd = _own_usd(kwargs, response, info, usage)
    if reported == 0 or own_usd > reported or drops_tier(kwargs):
        return Bill(own_usd, usage, info.model, estimated=unknown)
    return Bill(reported, usage, info.model)


def is_understated(kwargs: Mapping[str, Any], bill: Bill, info: DeploymentInfo) -> bool:
    """Return True if LiteLLM reports less for a call than its deployment's own prices say, by more than rounding."""
    is_read = _has_own_prices(kwargs, info) and bill.learn and not bill.estimated
    return is_read and reported_usd(kwargs) < bill.cost_usd * (1.0 - 1e-9) and not drops_tier(kwargs)


def read_answer(
    kwargs: Mapping[str, Any], response: object, info: DeploymentInfo, *, hard: bool, replayed: bool = False
) -> tuple[Bill | None, bool]:
    """Return the bill of a call, and True if the event has only the part of its answer that was delivered.

    Under a hard limit, tokens that LiteLLM has counted itself are estimated, and a stream that its provider has not
    finished is a part. A `replayed` answer is one of LiteLLM's cache, although the event may not say so where the
    client left. The other parameters and errors are those of `bill_of`.
    """
    bill = Bill(0.0, model=info.model, learn=False) if replayed else bill_of(kwargs, response, info)
    if bill is not None and not bill.learn:  # of LiteLLM's cache: nothing was billed, also where the client left
        return bill, False
    is_left = is_part(kwargs)
    if bill is not None and kwargs.get("stream") and _lacks_prompt(bill, response):
        bill = _with_prompt(bill, _prompt_tokens(kwargs), kwargs, response, info)
    elif bill is not None and hard:
        bill = bill._replace(estimated=bill.estimated or is_counted(kwargs, response))
    elif bill is not None and (is_left or may_be_counted(kwargs, response)):
        bill = _with_uncounted_prompt(bill, kwargs, response, info)
    return bill, is_left or (hard and is_unfinished(kwargs))


def _lacks_prompt(bill: Bill, response: object) -> bool:
    """Return True if a bill has no prompt: of Anthropic's streams without usage, LiteLLM counts only the answer."""
    return bill.usage is not None and bill.usage.input_tokens == 0 and hasattr(response, "choices")


def _with_uncounted_prompt(bill: Bill, kwargs: Mapping[str, Any], response: object, info: DeploymentInfo) -> Bill:
    """Return a bill that LiteLLM has counted with the tokens of tools, formats and instructions, which it omits."""
    counted = {name: kwargs[name] for name in _MESSAGES if name in kwargs}
    uncounted = max(_prompt_tokens(kwargs) - _prompt_tokens(counted), 0)
    if bill.usage is None or not uncounted:
        return bill
    input_tokens, is_left = bill.usage.input_tokens, is_part(kwargs)
    # of a part the provider may have counted the answer so far, but not the prompt
    if not (has_counted_prompt(kwargs, response, input_tokens) if is_left else is_counted(kwargs, response)):
        return bill
    return _with_prompt(bill, input_tokens + uncounted, kwargs, response, info)


def _with_prompt(
    bill: Bill, input_tokens: int, kwargs: Mapping[str, Any], response: object, info: DeploymentInfo
) -> Bill:
    """Return a bill with a prompt of so many tokens, which are counted here: it is an estimate."""
    whole = replace(bill.usage or Usage(0, 0), input_tokens=input_tokens)
    cost_usd = max(bill.cost_usd, _own_usd(kwargs, response, info, whole))
    return bill._replace(cost_usd=cost_usd, usage=whole, estimated=True)


def is_part(kwargs: Mapping[str, Any]) -> bool:
    """Return True if an answer lacks its end: the proxy's client left, or a stream of Anthropic's messages broke off.

    LiteLLM reports such a stream as answered, with the tokens of what had come.
    """
    if kwargs.get("call_type") == "anthropic_messages" and kwargs.get("prompt_cache_response_complete") is False:
        return True
    params = kwargs.get("litellm_params") or {}
    buckets = (params.get("metadata"), params.get("litellm_metadata"), kwargs.get("metadata"))
    return any(isinstance(bucket, MAPPING) and bool(bucket.get("client_disconnected")) for bucket in buckets)


def usage_of(block: object, logged: Mapping[str, Any]) -> Usage:
    """Return the tokens of a call: those of the answer's usage block, else those of LiteLLM's own record.

    Raises
    ------
    ValueError
        If a number of tokens is negative, infinite or no number.
    """
    used = fields_of(block)
    inputs = _details(used, "prompt_tokens_details", "input_tokens_details")
    outputs = _details(used, "completion_tokens_details", "output_tokens_details")
    return Usage.clamped(
        _tokens(used, "prompt_tokens", "input_tokens") or _tokens(logged, "prompt_tokens"),
        _tokens(used, "completion_tokens", "output_tokens") or _tokens(logged, "completion_tokens"),
        _tokens(inputs, "cached_tokens"),
        _tokens(inputs, "cache_creation_tokens"),
        _tokens(outputs, "reasoning_tokens"),
    )


def _has_own_prices(kwargs: Mapping[str, Any], info: DeploymentInfo) -> bool:
    """Return True if the deployment stated its present prices itself when the call started."""
    started = kwargs.get("start_time")
    started_s = started.timestamp() if isinstance(started, datetime) else time.time()
    return info.has_own_prices and started_s >= info.changed_at_s


def _own_usd(kwargs: Mapping[str, Any], response: object, info: DeploymentInfo, usage: Usage) -> float:
    """Return the cost of a call at the prices of its deployment, with LiteLLM's discount and margin."""
    provider, model = str(kwargs.get("custom_llm_provider")), kwargs.get("model")
    discount = discount_of(provider, None if model is None else str(model))
    tier = billed_tier(kwargs, response) if info.rate_card.tier_prices else ""
    plain_usd = info.rate_card.cost_usd(usage, tier)
    return margin_of_provider(provider).added_to(plain_usd * (1.0 - discount))


def reported_usd(kwargs: Mapping[str, Any]) -> float:
    """Return the cost of a call that LiteLLM reports; 0 where it reports none."""
    logged = kwargs.get("standard_logging_object") or {}
    return _amount(kwargs.get("response_cost") or logged.get("response_cost"))


def _estimate(kwargs: Mapping[str, Any], response: object) -> Usage:
    """Return the tokens of question and answer, counted here."""
    return estimated_usage(_prompt_tokens(kwargs), _answer_text(response))


def _prompt_tokens(kwargs: Mapping[str, Any]) -> int:
    """Return the tokens of a prompt, counted here."""
    surface = RESPONSES if str(kwargs.get("call_type")) in {"responses", "aresponses"} else ""
    request = request_of(kwargs.get("messages"), kwargs, surface, reads_question=False)
    return 0 if request is None else request.estimated_tokens


def _answer_text(response: object) -> str:
    """Return the text of an answer: of a chat, a text completion, the responses API or Anthropic's messages."""
    choices = _list(response, "choices")
    parts = [field_of(choice, "message") or choice for choice in choices] + _list(response, "content")
    parts += [part for item in _list(response, "output") for part in _list(item, "content")]
    return "\n".join(str(field_of(part, "content") or field_of(part, "text") or "") for part in parts)


def _list(block: object, name: str) -> list[Any]:
    value = field_of(block, name)
    return list(value) if isinstance(value, list | tuple) else []


def _first(block: Mapping[str, Any], *names: str) -> object:
    """Return the first of some fields that is there."""
    for name in names:
        if (value := block.get(name)) is not None:
            return value
    return None


def _details(block: Mapping[str, Any], *names: str) -> Mapping[str, Any] | None:
    """Return the fields of the first of some fields that is there."""
    details = _first(block, *names)
    return None if details is None else fields_of(details)


def _tokens(block: Mapping[str, Any] | None, *names: str) -> int:
    return 0 if block is None else int(_amount(_first(block, *names)))


def _amount(value: object) -> float:
    """Return a reported figure; 0 for none."""
    if value is None:
        return 0.0
    if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"a reported figure must be a finite number of at least 0, got {value!r:.40}")
    return float(value)
