"""What is told of each decision and of its outcome: the journal, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from wiserouter.planning.trace import DecisionTrace
    from wiserouter.types import Decision

Line = Callable[[], Mapping[str, Any]]
"""Makes the JSON object of one event."""


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
