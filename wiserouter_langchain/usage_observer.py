"""What one call of a chat model really used: a callback on its sub-tree sees every end, error and partial stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from wiserouter import Usage
from wiserouter.pricing.tokens import count_tokens
from wiserouter_langchain.price_catalogue import Tariff


class Call(NamedTuple):
    """One model run that ended, with an answer or in the middle of one."""

    message: BaseMessage
    partial: bool


class Bill(NamedTuple):
    """What all model runs of a call cost.

    Attributes
    ----------
    cost_usd : float, USD
        In all.
    typical : bool
        Whether it tells something about the model: not where a cache answered, or the answer broke off.
    estimated : bool
        Whether tokens had to be counted here, as for a stream without usage.
    usage : Usage or None
        The tokens of a single run, where they are known.
    """

    cost_usd: float
    typical: bool
    estimated: bool
    usage: Usage | None = None


class UsageObserver(BaseCallbackHandler):
    """Collects the model runs below one call of the router; only keeps books, and never raises.

    Parameters
    ----------
    on_done : callable of (BaseException or None) -> None, optional
        Called when a run ends: where the caller gets the model's own stream, and nothing else tells of its end.

    Attributes
    ----------
    calls : list of Call
        The runs that ended with a message, whole or partial.
    on_start : callable of (UUID) -> None
        Called when a run begins.
    """

    run_inline = True  # no thread hop per event on the asynchronous path

    def __init__(self, on_done: Callable[[BaseException | None], None] | None = None) -> None:
        self.calls: list[Call] = []
        self.on_start: Callable[[UUID], None] = _nothing
        self._on_done = on_done

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Tell of the run."""
        self.on_start(run_id)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Note the answer."""
        self._note(response, partial=False)
        if self._on_done is not None:
            self._on_done(None)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Note what came before the error."""
        self._note(kwargs.get("response"), partial=True)
        if self._on_done is not None:
            self._on_done(error)

    def _note(self, response: LLMResult | None, *, partial: bool) -> None:
        generations = response.generations if response is not None else []
        first = generations[0][0] if generations and generations[0] else None
        if isinstance(first, ChatGeneration) and not (partial and _is_empty(first.message)):
            self.calls.append(Call(first.message, partial))


def _is_empty(message: BaseMessage) -> bool:
    """Return whether a call broke off before anything was said: LangChain puts the provider's error into a message."""
    said = message.text or getattr(message, "tool_call_chunks", None) or getattr(message, "tool_calls", None)
    return not said and not getattr(message, "usage_metadata", None)


def bill_of(calls: list[Call], tariff: Tariff, input_text: str, overhead_tokens: int) -> Bill | None:
    """Return what model runs cost; None where none got as far as an answer, so that nothing is owed.

    Parameters
    ----------
    calls : list of Call
        The runs.
    tariff : Tariff
        The prices, where a run does not report its cost.
    input_text : str
        What was asked, to count where a run reports no tokens.
    overhead_tokens : int
        What the provider adds to it.
    """
    if not calls:
        return None
    bills = [_one(call, tariff, input_text, overhead_tokens) for call in calls]
    return Bill(
        sum(bill.cost_usd for bill in bills),
        all(bill.typical for bill in bills),
        any(bill.estimated and not call.partial for bill, call in zip(bills, calls, strict=True)),
        bills[0].usage if len(bills) == 1 else None,
    )


def _one(call: Call, tariff: Tariff, input_text: str, overhead_tokens: int) -> Bill:
    stated, usage = reported_usd(call.message), usage_of(getattr(call.message, "usage_metadata", None))
    if stated is not None:
        return Bill(stated, typical=stated > 0 and not call.partial, estimated=False, usage=usage)
    if usage is not None:
        return Bill(tariff.cost_usd(usage), typical=not call.partial, estimated=False, usage=usage)
    asked = count_tokens(input_text).tokens + overhead_tokens
    counted = Usage(asked, count_tokens(call.message.text).tokens)
    return Bill(tariff.cost_usd(counted), typical=not call.partial, estimated=True)


def reported_usd(message: BaseMessage) -> float | None:
    """Return the cost that somebody who knows has stated: a cache, langchain-litellm, OpenRouter."""
    usage: Mapping[str, Any] = getattr(message, "usage_metadata", None) or {}
    metadata = message.response_metadata
    counted = metadata.get("token_usage")
    stated = (
        usage.get("total_cost"),
        metadata.get("response_cost"),
        metadata.get("cost"),
        counted.get("cost") if isinstance(counted, Mapping) else None,
    )
    numbers = (value for value in stated if isinstance(value, int | float) and not isinstance(value, bool))
    return next((float(value) for value in numbers if value >= 0), None)


def usage_of(block: Mapping[str, Any] | None) -> Usage | None:
    """Return the tokens of LangChain's usage block; None where it counts none."""
    if not block or not (block.get("input_tokens") or block.get("output_tokens")):
        return None
    inputs, outputs = int(block.get("input_tokens") or 0), int(block.get("output_tokens") or 0)
    prompt, answer = block.get("input_token_details") or {}, block.get("output_token_details") or {}
    read = min(int(prompt.get("cache_read") or 0), inputs)
    return Usage(
        inputs,
        outputs,
        cache_read_tokens=read,
        cache_write_tokens=min(int(prompt.get("cache_creation") or 0), inputs - read),
        reasoning_tokens=min(int(answer.get("reasoning") or 0), outputs),
    )


def _nothing(run_id: UUID) -> None:
    """Tell nobody."""
