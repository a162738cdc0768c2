"""One call through the router: its decision, the arguments of the chosen model, and one settlement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig, patch_config

from wiserouter import Decision, WiseRouter
from wiserouter.integration import CallRequest
from wiserouter_langchain.billing.prompt_caches import is_of_an_hour, long_cache
from wiserouter_langchain.billing.search_fees import SEARCH
from wiserouter_langchain.billing.settlement import Remark, settle_runs
from wiserouter_langchain.billing.usage_observer import UsageObserver, observe
from wiserouter_langchain.decisions.judge import offer_answer
from wiserouter_langchain.pool.pool_member import PoolMember
from wiserouter_langchain.requests.limits import CallLimits, provider_tools
from wiserouter_langchain.requests.model_arguments import with_arguments
from wiserouter_langchain.requests.operations import OPERATIONS

RECORD = "wise_router"
"""Key of the decision in `response_metadata`, and in the metadata of the chosen model's run."""


def recorded_decision(message: BaseMessage) -> str | None:
    """Return the decision behind an answer; None where its record, which clients may send back, names none.

    Examples
    --------
    >>> from langchain_core.messages import AIMessage
    >>> recorded_decision(AIMessage("hi", response_metadata={"wise_router": {"decision_id": "d1"}}))
    'd1'
    """
    record = message.response_metadata.get(RECORD)
    decision_id = record.get("decision_id") if isinstance(record, Mapping) else None
    return decision_id if isinstance(decision_id, str) else None


@dataclass
class RoutedCall:
    """A call with its decision.

    Attributes
    ----------
    router : WiseRouter
        Keeps the budget.
    decision : Decision
        The choice; its cost is reserved.
    member : PoolMember
        The chosen model.
    request : CallRequest
        What the call asks for.
    limits : CallLimits or None
        The limits by which a hard budget has bounded the call; None under an expected limit.
    observer : UsageObserver
        Collects the usage of the model.
    runnable : Runnable
        The chosen chat model, with the queued operations applied.
    messages, config, kwargs : list of BaseMessage, RunnableConfig, dict
        The arguments of the runnable.
    output : object
        The answer, or the last chunk of it.
    record : dict
        The part of the decision that the answer carries; it holds no floats, which chunks could not merge.
    """

    router: WiseRouter
    decision: Decision
    member: PoolMember
    request: CallRequest
    limits: CallLimits | None = None
    observer: UsageObserver = field(default_factory=UsageObserver)
    runnable: Any = field(default=None, init=False)
    messages: list[BaseMessage] = field(default_factory=list, init=False)
    config: RunnableConfig = field(default_factory=RunnableConfig, init=False)
    kwargs: dict[str, Any] = field(default_factory=dict, init=False)
    output: Any = field(default=None, init=False)
    record: dict[str, Any] = field(default_factory=dict, init=False)
    _has_fees: bool = field(default=False, init=False)
    _given: dict[str, Any] = field(default_factory=dict, init=False)
    _unsettled: Lock = field(default_factory=Lock, init=False)

    def prepare(
        self,
        messages: list[BaseMessage],
        kwargs: Mapping[str, Any],
        config: RunnableConfig,
        callbacks: BaseCallbackManager,
        cap_output_tokens: int | None,
        failed: Sequence[str] = (),
    ) -> None:
        """Set the record, the runnable and its arguments.

        Parameters
        ----------
        messages : list of BaseMessage
            The conversation.
        kwargs : mapping
            The caller's keyword arguments, and the queued operations.
        config : RunnableConfig
            The caller's configuration.
        callbacks : BaseCallbackManager
            The callbacks of the model's run; the observer is added to them.
        cap_output_tokens : int or None
            The limit of the output where neither call nor model sets one.
        failed : sequence of str
            The models that failed before this one was chosen.
        """
        decision = self.decision
        self.record = {"decision_id": decision.id, "model": decision.model, "context": decision.context}
        if decision.ask_feedback:
            self.record["ask_feedback"] = True
        for name in ("would_be", "visit", "run_id"):
            if value := getattr(decision, name):
                self.record[name] = value
        if failed:
            self.record["failed_models"] = ", ".join(failed)
        self.messages = messages
        self._prepare_runnable(kwargs, cap_output_tokens)
        observe(callbacks, self.observer)
        self.config = patch_config(config, callbacks=callbacks)
        self.config["metadata"] = {**(self.config.get("metadata") or {}), RECORD: self.record}

    def _prepare_runnable(self, kwargs: Mapping[str, Any], cap_output_tokens: int | None) -> None:
        """Set the runnable and its keyword arguments: the caller's, those that were bound, and the bounded limits."""
        member = self.member
        if self.limits is None:
            bound = member.wrapping.kwargs if member.wrapping is not None else {}
            self._given = {**bound, **kwargs}
            tools = provider_tools(self._given)
            is_known = member.rate_card.search_usd and all(kind.startswith(SEARCH) for kind in tools)
            self._has_fees = member.has_unknown_fee or (bool(tools) and not is_known)
            uncapped = cap_output_tokens is None
            self.runnable = member.model if uncapped else member.capped(cap_output_tokens, self.request)
            self.kwargs = dict(kwargs)
        else:
            self.runnable, self.kwargs = member.bounded(self.limits, cap_output_tokens, kwargs)
        operations = self.kwargs.pop(OPERATIONS, ())
        for name, args, keywords in operations:
            self.runnable = getattr(self.runnable, name)(*args, **keywords)
        if member.wrapping is not None:
            self.kwargs = member.wrapping.arguments(self.kwargs, own_tools=bool(operations))
        if operations and self.kwargs:
            self.runnable, self.kwargs = with_arguments(self.runnable, self.kwargs), {}
        if member.wrapping is not None:
            self.runnable = member.wrapping.around(self.runnable, retries=self.limits is None)

    def settle(self) -> tuple[Remark, BaseException | None]:
        """Charge, release or presume the cost of the call; return the remark for the log, and the call's `error`.

        Only the first invocation settles.
        """
        if not self._unsettled.acquire(blocking=False):
            return Remark.NONE, self.error
        self.observer.add_unseen(self.output)
        self.observer.end_reported()
        remark = settle_runs(
            self.router,
            self.decision,
            self.observer,
            self.member.present_card(),
            self.request,
            hard=self.limits is not None,
            caches_for_an_hour=self._caches_for_an_hour,
        )
        if self.router.judge is not None:
            offer_answer(self.router.judge, self.decision, self.messages, self.observer)
        return remark or (Remark.FEES if self._has_fees else Remark.NONE), self.error

    def _caches_for_an_hour(self) -> bool:
        """Return True if a message or a setting asks for a cache of an hour."""
        own = getattr(self.member.model, "model_kwargs", None)
        asked = (own, self._given, *(message.content for message in self.messages))
        return any(long_cache(each, is_of_an_hour) for each in asked)

    @property
    def error(self) -> BaseException | None:
        """The error of a model that failed before any part of an answer arrived; None otherwise."""
        runs = self.observer.runs
        error = runs[-1].error if runs else None
        return None if error is None or self.observer.has_answer else error

    def with_record(self, output: Any) -> Any:
        """Return a copy of an answer with the record attached; the model's cache may own the original."""
        if isinstance(output, BaseMessage):
            metadata = {**output.response_metadata, RECORD: dict(self.record)}
            return output.model_copy(update={"response_metadata": metadata})
        if isinstance(output, dict) and isinstance(output.get("raw"), BaseMessage):
            return type(output)({**output, "raw": self.with_record(output["raw"])})  # the chunks of a stream add up
        return output

    def streamed(self) -> Any:
        """Return the result of a stream: the message that the observer has, or the last chunk of anything else."""
        runs = self.observer.runs
        return runs[-1].message or self.output if runs and isinstance(self.output, BaseMessage) else self.output
