"""One call through the router: its decision, the chat model that answers, and the settlement, exactly once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable

from wiserouter import Decision, WiseRouter
from wiserouter_langchain.pool_member import PoolMember
from wiserouter_langchain.request import Ask
from wiserouter_langchain.usage_observer import UsageObserver, bill_of

logger = logging.getLogger("wiserouter.langchain")

RECORD = "wise_router"
"""Key of the decision in `response_metadata`, and in the metadata of the chosen model's run."""

OPERATIONS = "__wise_operations"
"""Keyword under which `bind_tools` and `with_structured_output` travel to the call."""


@dataclass
class RoutedCall:
    """A call in the making.

    Attributes
    ----------
    router : WiseRouter
        Keeps the budget.
    decision : Decision
        The choice, reserved.
    arm : PoolMember
        The chosen model.
    ask : Ask
        What is asked for.
    observer : UsageObserver
        What it used so far.
    """

    router: WiseRouter
    decision: Decision
    arm: PoolMember
    ask: Ask
    observer: UsageObserver = field(default_factory=UsageObserver)
    _open: Lock = field(default_factory=Lock)

    @property
    def record(self) -> dict[str, Any]:
        """What the answer carries: no floats, which chunks could not merge."""
        asked = {"ask_feedback": True} if self.decision.ask_feedback else {}
        return {
            "decision_id": self.decision.id,
            "model": self.decision.model,
            "context": self.decision.context,
            **asked,
        }

    def target(
        self, kwargs: Mapping[str, Any], cap_output_tokens: int | None
    ) -> tuple[Runnable[Any, Any], dict[str, Any]]:
        """Return what to call, queued operations replayed on the chosen model, and the keyword arguments for it."""
        rest = dict(kwargs)
        target: Any = self.arm.capped(cap_output_tokens, self.ask)
        for name, args, kw in rest.pop(OPERATIONS, ()):
            target = getattr(target, name)(*args, **kw)
        return target, rest

    def settle(self) -> bool:
        """Charge what was used, or release what never came to an answer; return whether tokens had to be estimated.

        Only the first of several calls does anything.
        """
        if not self._open.acquire(blocking=False):
            return False
        bill = bill_of(self.observer.calls, self.arm.tariff, self.ask.counted, self.ask.overhead_tokens)
        if bill is None:
            self.router.release(self.decision)
            return False
        self.router.charge(self.decision, bill.cost_usd, usage=bill.usage, learn=bill.typical)
        return bill.estimated

    def marked(self, output: Any) -> Any:
        """Return a copy of an answer that carries the record; the model's cache may own the original."""
        if isinstance(output, BaseMessage):
            return output.model_copy(update={"response_metadata": {**output.response_metadata, RECORD: self.record}})
        if isinstance(output, dict) and isinstance(output.get("raw"), BaseMessage):
            return {**output, "raw": self.marked(output["raw"])}
        return output

    def whole(self, last: Any) -> Any:
        """Return what a stream came to: the message that the observer has, or the last chunk of anything else."""
        calls = self.observer.calls
        return calls[-1].message if calls and isinstance(last, BaseMessage) else last
