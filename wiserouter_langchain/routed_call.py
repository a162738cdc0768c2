"""One call through the router: its decision, the arguments of the chosen model, and one settlement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig, patch_config

from wiserouter import Decision, WiseRouter
from wiserouter.integration import CallRequest, settle
from wiserouter_langchain.pool_member import PoolMember
from wiserouter_langchain.usage_observer import UsageObserver, bill_of

RECORD = "wise_router"
"""Key of the decision in `response_metadata`, and in the metadata of the chosen model's run."""

OPERATIONS = "__wise_operations"
"""Keyword argument that holds the queued operations, `bind_tools` and `with_structured_output`."""


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
    observer: UsageObserver = field(default_factory=UsageObserver)
    runnable: Any = field(default=None, init=False)
    messages: list[BaseMessage] = field(default_factory=list, init=False)
    config: RunnableConfig = field(default_factory=RunnableConfig, init=False)
    kwargs: dict[str, Any] = field(default_factory=dict, init=False)
    output: Any = field(default=None, init=False)
    record: dict[str, Any] = field(default_factory=dict, init=False)
    _unsettled: Lock = field(default_factory=Lock, init=False)

    def prepare(
        self,
        messages: list[BaseMessage],
        kwargs: Mapping[str, Any],
        config: RunnableConfig,
        callbacks: BaseCallbackManager,
        cap_output_tokens: int | None,
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
        """
        decision, member = self.decision, self.member
        self.record = {"decision_id": decision.id, "model": decision.model, "context": decision.context}
        if decision.ask_feedback:
            self.record["ask_feedback"] = True
        self.messages, self.kwargs = messages, dict(kwargs)
        self.runnable = member.model if cap_output_tokens is None else member.capped(cap_output_tokens, self.request)
        for name, args, keywords in self.kwargs.pop(OPERATIONS, ()):
            self.runnable = getattr(self.runnable, name)(*args, **keywords)
        callbacks.add_handler(self.observer, inherit=True)
        self.config = patch_config(config, callbacks=callbacks)
        self.config["metadata"] = {**(self.config.get("metadata") or {}), RECORD: self.record}

    def settle(self) -> bool:
        """Charge the cost, or release a call without an answer; return True if its tokens were estimated.

        Only the first invocation has an effect.
        """
        if not self._unsettled.acquire(blocking=False):
            return False
        bill = bill_of(self.observer.runs, self.member.rate_card, self.request)
        settle(self.router, self.decision, bill)
        return bill is not None and bill.estimated

    def with_record(self, output: Any) -> Any:
        """Return a copy of an answer with the record attached; the model's cache may own the original."""
        if isinstance(output, BaseMessage):
            metadata = {**output.response_metadata, RECORD: dict(self.record)}
            return output.model_copy(update={"response_metadata": metadata})
        if isinstance(output, dict) and isinstance(output.get("raw"), BaseMessage):
            return {**output, "raw": self.with_record(output["raw"])}
        return output

    def streamed(self) -> Any:
        """Return the result of a stream: the message that the observer has, or the last chunk of anything else."""
        runs = self.observer.runs
        return runs[-1].message if runs and isinstance(self.output, BaseMessage) else self.output
