"""The usage of one call: a callback below it observes every end, error and partial stream of a chat model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from wiserouter import Usage
from wiserouter.integration import Bill, CallRequest, RateCard, clamped_usage, estimated_usage


class ModelRun(NamedTuple):
    """A model run that ended, after its answer or in the middle of it."""

    message: BaseMessage
    partial: bool


class UsageObserver(BaseCallbackHandler):
    """A callback that collects the model runs below one call of the router; it never raises.

    Attributes
    ----------
    runs : list of ModelRun
        The runs that ended with a message, whole or partial.
    on_start : callable of (UUID) -> None
        Called when a run begins.
    on_end : callable of (BaseException or None) -> None
        Called when a run ends: where the caller reads the model's own stream, nothing else reports its end.
    """

    run_inline = True  # no thread hop per event on the asynchronous path

    def __init__(self) -> None:
        self.runs: list[ModelRun] = []
        self.on_start: Callable[[UUID], object] = _ignore
        self.on_end: Callable[[BaseException | None], object] = _ignore

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Report the run."""
        self.on_start(run_id)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the answer."""
        self._record(response, partial=False)
        self.on_end(None)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the part of the answer that came before the error."""
        self._record(kwargs.get("response"), partial=True)
        self.on_end(error)

    def _record(self, response: LLMResult | None, *, partial: bool) -> None:
        generations = response.generations if response is not None else []
        first = generations[0][0] if generations and generations[0] else None
        if isinstance(first, ChatGeneration) and not (partial and _is_empty(first.message)):
            self.runs.append(ModelRun(first.message, partial))


def _is_empty(message: BaseMessage) -> bool:
    """Return True if a run broke off before its answer began: LangChain puts the provider's error into a message."""
    content = message.text or getattr(message, "tool_call_chunks", None) or getattr(message, "tool_calls", None)
    return not content and not getattr(message, "usage_metadata", None)


def bill_of(runs: list[ModelRun], rate_card: RateCard, request: CallRequest) -> Bill | None:
    """Return the bill of all model runs of a call; None where none of them got as far as an answer.

    Parameters
    ----------
    runs : list of ModelRun
        The runs.
    rate_card : RateCard
        The prices, where a run does not report its cost.
    request : CallRequest
        The text that is counted where a run reports no tokens.
    """
    if not runs:
        return None
    bills = [_bill_of_run(run, rate_card, request) for run in runs]
    return Bill(
        sum(bill.cost_usd for bill in bills),
        bills[0].usage if len(bills) == 1 else None,
        learn=all(bill.learn for bill in bills),
        estimated=any(bill.estimated and not run.partial for bill, run in zip(bills, runs, strict=True)),
    )


def _bill_of_run(run: ModelRun, rate_card: RateCard, request: CallRequest) -> Bill:
    reported, usage = reported_usd(run.message), usage_of(getattr(run.message, "usage_metadata", None))
    if reported is not None:
        return Bill(reported, usage, learn=reported > 0 and not run.partial)
    if usage is not None:
        return Bill(rate_card.cost_usd(usage), usage, learn=not run.partial)
    estimate = estimated_usage(request.counted, request.overhead_tokens, run.message.text)
    return Bill(rate_card.cost_usd(estimate), learn=not run.partial, estimated=True)


def reported_usd(message: BaseMessage) -> float | None:
    """Return the cost that a cache, langchain-litellm or OpenRouter reports in the message, if one does."""
    usage: Mapping[str, Any] = getattr(message, "usage_metadata", None) or {}
    metadata = message.response_metadata
    counted = metadata.get("token_usage")
    reports = (
        usage.get("total_cost"),
        metadata.get("response_cost"),
        metadata.get("cost"),
        counted.get("cost") if isinstance(counted, Mapping) else None,
    )
    numbers = (value for value in reports if isinstance(value, int | float) and not isinstance(value, bool))
    return next((float(value) for value in numbers if value >= 0), None)


def usage_of(block: Mapping[str, Any] | None) -> Usage | None:
    """Return the tokens of LangChain's usage block; None where it counts none."""
    if not block or not (block.get("input_tokens") or block.get("output_tokens")):
        return None
    prompt, answer = block.get("input_token_details") or {}, block.get("output_token_details") or {}
    return clamped_usage(
        int(block.get("input_tokens") or 0),
        int(block.get("output_tokens") or 0),
        int(prompt.get("cache_read") or 0),
        int(prompt.get("cache_creation") or 0),
        int(answer.get("reasoning") or 0),
    )


def _ignore(event: object) -> None:
    """Do nothing at the start or end of a run."""
