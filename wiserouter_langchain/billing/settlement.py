"""The settlement of a call from the model runs below it: charged, released, or presumed where its bill is unknown."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage

from wiserouter import Decision, Price, Usage, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.integration import Bill, CallRequest, RateCard, estimated_usage, proves_unbilled
from wiserouter_langchain.billing.search_fees import n_searches
from wiserouter_langchain.billing.usage_observer import ModelRun, UsageObserver

_MOST_TOKENS = 10**12
"""A larger count is no count."""

_FIVE_MINUTES, _HOUR = "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"

_HOUR_CACHE = 2.0
"""The price of a token that is cached for an hour, in those of an input token, as Anthropic has published it."""


class Remark(StrEnum):
    """What the log should say once about the answers of a model."""

    NONE = ""
    ESTIMATED = (
        "answered without usage, or with a part of it, so its tokens are estimated: for streams of OpenAI-like models "
        "pass model.model_copy(update={'stream_usage': True})"
    )
    UNREPORTED = (
        "answered without usage, or with a part of it, so its call is charged what was reserved, as the budget is "
        "hard: for streams of OpenAI-like models pass model.model_copy(update={'stream_usage': True})"
    )
    FEES = (
        "was sent a tool that the provider runs, or searches with each call: the fee is beside the tokens, and is not "
        "counted unless the call reports its cost, so the provider may bill more than the budget"
    )
    UNREADABLE = "reported a usage or a cost that is none, so its call is charged what was reserved"


class RunBill(NamedTuple):
    """The bill of one model run.

    Attributes
    ----------
    bill : Bill or None
        None where it is unknown.
    remark : Remark
        What the log should say about it.
    """

    bill: Bill | None
    remark: Remark = Remark.NONE


def settle_runs(
    router: WiseRouter,
    decision: Decision,
    observer: UsageObserver,
    rate_card: RateCard,
    request: CallRequest,
    *,
    hard: bool,
    caches_for_an_hour: Callable[[], bool] = lambda: False,
) -> Remark:
    """Settle a call, and return what the log should say about it; raises as `charge` does.

    Parameters
    ----------
    router : WiseRouter
        Keeps the budget.
    decision : Decision
        The decision.
    observer : UsageObserver
        The model runs of the call. A run that began and has no end was cancelled.
    rate_card : RateCard
        The prices, where a run does not report its cost.
    request : CallRequest
        The text that is counted where a run reports no tokens.
    hard : bool
        Whether the budget is hard: then nothing is estimated.
    caches_for_an_hour : callable
        Returns True if the call asks for a cache of an hour, where a usage does not say how long its tokens are cached.
    """
    runs = [run for run in observer.runs if not (run.passes_on or run.unsent)]
    billed = [run for run in runs if run.message is not None or not proves_unbilled(run.error)]
    bills = [bill_of_run(run, rate_card, request, hard=hard, hour=caches_for_an_hour) for run in billed]
    n_unknown = observer.started - len(observer.runs) + sum(each.bill is None for each in bills)
    known = [each.bill for each in bills if each.bill is not None]
    if not known:
        failed = bool(observer.runs) and isinstance(observer.runs[-1].error, Exception)
        (router.presume if n_unknown else router.release)(decision, failed=failed)
    else:
        presumed_usd = decision.reserved_usd if hard else decision.expected_cost_usd
        router.charge(
            decision,
            sum(bill.cost_usd for bill in known) + n_unknown * presumed_usd,
            usage=known[0].usage if len(known) == 1 and not n_unknown else None,
            learn=not n_unknown and all(bill.learn for bill in known),
            resources={"latency_s": sum(run.took_s for run in observer.runs)} if router.has_limits else None,
        )
    return next((each.remark for each in bills if each.remark), Remark.NONE)


def bill_of_run(
    run: ModelRun, rate_card: RateCard, request: CallRequest, *, hard: bool, hour: Callable[[], bool] = lambda: False
) -> RunBill:
    """Return the bill of a model run; the parameters are those of `settle_runs`."""
    message = run.message
    if message is None or (run.error is not None and not _is_complete(message)):
        return RunBill(None)
    whole = run.error is None
    try:
        reported, usage = reported_usd(message), usage_of(getattr(message, "usage_metadata", None))
    except InvalidInput:
        return RunBill(None, Remark.UNREADABLE)
    if reported is not None:
        return RunBill(Bill(reported, usage, learn=whole and reported > 0))
    tier = str(message.response_metadata.get("service_tier") or "")
    if usage is not None and not _lacks_part(usage, message):
        extra_usd = hour_cache_usd(getattr(message, "usage_metadata", None), rate_card.price_of(usage, tier), hour)
        fees_usd = rate_card.search_usd * n_searches(message) if rate_card.search_usd else 0.0
        return RunBill(Bill(rate_card.cost_usd(usage, tier) + extra_usd + fees_usd, usage, learn=whole))
    if hard:
        return RunBill(None, Remark.UNREPORTED)
    estimate = estimated_usage(request.estimated_tokens, _written(message))
    if usage is not None:
        estimate = replace(
            usage,
            input_tokens=usage.input_tokens or estimate.input_tokens,
            output_tokens=usage.output_tokens or estimate.output_tokens,
        )
    return RunBill(Bill(rate_card.cost_usd(estimate, tier), learn=whole, estimated=True), Remark.ESTIMATED)


def _lacks_part(usage: Usage, message: BaseMessage) -> bool:
    """Return True if a usage counts no token of the prompt, or of an answer that has text.

    A stream that ended early counts its input only. One of a service that follows Anthropic's may state its input at
    its start only, where langchain-anthropic does not read it.
    """
    return not usage.input_tokens or (not usage.output_tokens and bool(_written(message).strip()))


def _written(message: BaseMessage) -> str:
    """Return all that a model has written in a message: its text, its reasoning and its calls of tools."""
    blocks = message.content if isinstance(message.content, list) else []
    thoughts = [block.get("thinking") or block.get("reasoning") for block in blocks if isinstance(block, Mapping)]
    calls = [*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())]
    arguments = [json.dumps([call.get("name"), call.get("args")], default=str) for call in calls]
    return "\n".join([message.text, *filter(None, map(_text, thoughts)), *arguments])


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_complete(message: BaseMessage) -> bool:
    """Return True if the last part of a stream arrived, with its usage, before the stream was closed."""
    if not getattr(message, "usage_metadata", None):
        return False
    ends = ("finish_reason", "stop_reason", "done_reason")
    ended = any(message.response_metadata.get(name) for name in ends)
    return ended or getattr(message, "chunk_position", None) == "last"


def reported_usd(message: BaseMessage) -> float | None:
    """Return the cost that a cache, langchain-litellm or OpenRouter reports in the message, if one does.

    LiteLLM reports a cost of 0 for a model whose price it does not know, so that is none.

    Raises
    ------
    InvalidInput
        If a report is no amount of money, and none other is.
    """
    usage = getattr(message, "usage_metadata", None)
    metadata = message.response_metadata
    reports = (
        _get(usage, "total_cost"),
        metadata.get("response_cost") or None,
        metadata.get("cost"),
        _get(metadata.get("token_usage"), "cost"),
    )
    numbers = [value for value in reports if isinstance(value, int | float) and not isinstance(value, bool)]
    amounts = [float(value) for value in numbers if 0 <= value < math.inf]
    if numbers and not amounts:
        raise InvalidInput("a reported cost must be a finite number of at least 0", value=numbers[0])
    return next(iter(amounts), None)


def usage_of(block: object) -> Usage | None:
    """Return the tokens of LangChain's usage block; None where it counts none.

    Raises
    ------
    InvalidInput
        If the block is no mapping, or a count is no whole number of at least 0.

    Examples
    --------
    >>> usage_of({"input_tokens": 10, "output_tokens": 2, "total_tokens": 42}).output_tokens
    32
    """
    if block is None or block == {}:
        return None
    prompt, answer = _counts(block, "input_tokens", "output_tokens")
    inputs, outputs = _get(block, "input_token_details"), _get(block, "output_token_details")
    if not (prompt or answer):
        return None
    read = _sum(inputs, "cache_read")
    written = max(_sum(inputs, "cache_creation"), sum(_counts(inputs, _FIVE_MINUTES, _HOUR)))  # of the same tokens
    left_out = _left_out(block, prompt + answer)
    if left_out and left_out == read + written:
        prompt += left_out
    else:
        answer += left_out
    return Usage.clamped(prompt, answer, read, written, _sum(outputs, "reasoning"))


def _left_out(block: object, counted: int) -> int:
    """Return the tokens of a total that are counted neither as input nor as output.

    Some providers leave their cached tokens out of the input, others the reasoning out of the output, as the interfaces
    of Gemini and Grok that follow OpenAI's do.
    """
    total = _get(block, "total_tokens")
    is_count = isinstance(total, int) and not isinstance(total, bool) and total <= _MOST_TOKENS
    return max(total - counted, 0) if is_count else 0


def hour_cache_usd(block: object, price: Price, hour: Callable[[], bool] = lambda: False) -> float:
    """Return the extra cost of tokens that are cached for an hour: what they cost beyond a cache of five minutes.

    Parameters
    ----------
    block : object
        LangChain's usage block. That of a stream of langchain-anthropic does not say how long its tokens are cached.
    price : Price
        The price of the tokens.
    hour : callable
        Returns True if a block that does not say so is of a call which asked for an hour.

    Examples
    --------
    >>> block = {"input_token_details": {"ephemeral_1h_input_tokens": 100}}
    >>> round(hour_cache_usd(block, Price(3e-6, 1.5e-5, cache_write=3.75e-6)), 9)
    0.000225
    """
    details = _get(block, "input_token_details")
    tokens, short = _counts(details, _HOUR, _FIVE_MINUTES)
    if not tokens and not short and (written := _sum(details, "cache_creation")) and hour():
        tokens = written
    return tokens * max(_HOUR_CACHE * price.input - price.cache_write_usd, 0.0)


def _sum(details: object, part: str) -> int:
    """Return the tokens of a part, whose name some packages lead with a service tier, as in "flex_cache_read"."""
    names = [name for name in details if str(name).endswith(part)] if isinstance(details, Mapping) else [part]
    return sum(_counts(details, *names))


def _counts(block: object, *names: str) -> Iterable[int]:
    """Return counts of a block; 0 where it has none."""
    if not block:
        return [0] * len(names)
    if not isinstance(block, Mapping):
        raise InvalidInput(f"usage must be a mapping, got {type(block).__name__}", value=block)
    return [_count(name, block.get(name)) for name in names]


def _count(name: str, value: object) -> int:
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if number is None:
        return 0
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MOST_TOKENS:
        raise InvalidInput(f"{name} must be a whole number of at least 0, got {value!r:.60}", value=value)
    return number


def _get(block: Any, name: str) -> Any:
    return block.get(name) if isinstance(block, Mapping) else None
