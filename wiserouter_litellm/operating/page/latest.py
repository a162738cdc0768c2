"""The latest decisions of this worker and the outcomes of their calls, without a word of a prompt."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from wiserouter import Decision, WiseRouter

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 200
"""Decisions of one router that are kept."""

_STATES = {"charge": "charged", "release": "released", "presume": "presumed"}

_NO_OUTCOME: tuple[str, Mapping[str, Any]] = ("", {})


class _HasRouter(Protocol):
    router: WiseRouter


class LatestDecisions:
    """An observer of one router that keeps its latest decisions."""

    def __init__(self) -> None:
        self._latest: deque[Decision] = deque()
        self._outcomes: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._scores: dict[str, float] = {}

    def decision(self, decision: Decision, trace: object) -> None:
        """Keep a decision in place of the oldest one."""
        self._outcomes[decision.id] = _NO_OUTCOME
        self._latest.append(decision)
        if len(self._latest) > MOST:
            oldest = self._latest.popleft().id
            self._outcomes.pop(oldest, None)
            self._scores.pop(oldest, None)

    def event(self, name: str, decision_id: str, at_s: float, **figures: Any) -> None:
        """Keep the outcome of a call, or its score, where its decision is kept."""
        if decision_id not in self._outcomes:
            return
        if name == "reward":
            self._scores[decision_id] = figures["reward"]
        else:
            self._outcomes[decision_id] = name, figures

    def note(self, line: Callable[[], Mapping[str, Any]]) -> None:
        """Do nothing: other events are no decisions."""

    def rows(self, most: int) -> list[dict[str, Any]]:
        """Return the latest decisions, the last one first."""
        return [self._row(decision) for decision in list(self._latest)[: -most - 1 : -1]]

    def _row(self, decision: Decision) -> dict[str, Any]:
        name, figures = self._outcomes.get(decision.id, _NO_OUTCOME)
        return {
            "id": decision.id,
            "decided_at": decision.decided_at,
            "scope": decision.scope,
            "context": decision.context,
            "model": decision.model,
            "expected_cost_usd": decision.expected_cost_usd,
            "expected_reward": decision.expected_reward,
            "ask_feedback": decision.ask_feedback,
            "state": _STATES.get(name, "in flight"),
            "answered_by": figures.get("model") or decision.model,
            "cost_usd": figures.get("cost_usd"),
            "score": self._scores.get(decision.id),
        }


class DecisionsOfRouters:
    """The latest decisions of each router that is watched."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[WiseRouter, LatestDecisions] = WeakKeyDictionary()

    def watch(self, groups: Iterable[_HasRouter]) -> None:
        """Keep the decisions of the routers of groups from now on."""
        for group in groups:
            if group.router not in self._of:
                self._of[group.router] = latest = LatestDecisions()
                group.router.report_to(latest)

    def rows(self, router: WiseRouter, most: int) -> list[dict[str, Any]]:
        """Return the latest decisions of a router, the last one first."""
        latest = self._of.get(router)
        return [] if latest is None else latest.rows(most)
