"""What is told of each decision and of its outcome: the journal, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from wiserouter.planning.trace import DecisionTrace
    from wiserouter.types import Decision

Line = Callable[[], Mapping[str, Any]]
"""Makes the JSON object of one event."""


@runtime_checkable
class Observer(Protocol):
    """Takes the events of a router, in the thread of the request: no method may wait or raise."""

    def decision(self, decision: Decision, trace: DecisionTrace | None) -> None:
        """Take a decision with the figures behind it, where the store keeps them."""
        ...

    def event(self, name: str, decision_id: str, at_s: float, **figures: Any) -> None:
        """Take a charge, a release, a presumption or a reward of a decision."""
        ...

    def note(self, line: Line) -> None:
        """Take any other event."""
        ...


@runtime_checkable
class RequestObserver(Protocol):
    """Takes what no router knows of its requests: an adapter reports it, since requests may wait and try again."""

    def refused(self, error: Exception) -> None:
        """Take the error that ends a request."""
        ...

    def measured(self, took_s: float) -> None:
        """Take the time of an attempt to decide."""
        ...
