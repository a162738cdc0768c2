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


class _HasRouter(Protocol):
    router: WiseRouter


class LatestDecisions:
    """An observer of one router that keeps its latest decisions."""

    def __init__(self) -> None:
        self._latest: deque[Decision] = deque()
        self._outcomes: dict[str, dict[str, Any]] = {}

    def decision(self, decision: Decision, trace: object) -> None:
        """Keep a decision in place of the oldest one."""
        self._outcomes[decision.id] = {}
        self._latest.append(decision)
        if len(self._latest) > MOST:
            self._outcomes.pop(self._latest.popleft().id, None)

    def event(self, name: str, decision_id: str, at_s: float, **figures: Any) -> None:
        """Keep the outcome of a call, or its score, where its decision is kept."""
        outcome = self._outcomes.get(decision_id)
        if outcome is None:
            return
        if name == "reward":
            outcome["score"] = figures.get("reward")
        elif name in _STATES:
            outcome["state"], outcome["cost_usd"] = _STATES[name], figures.get("cost_usd")
            if figures.get("model"):
                outcome["answered_by"] = figures["model"]

    def note(self, line: Callable[[], Mapping[str, Any]]) -> None:
        """Do nothing: other events are no decisions."""

    def rows(self, most: int) -> list[dict[str, Any]]:
        """Return the latest decisions, the last one first."""
        return [self._row(decision) for decision in list(self._latest)[: -most - 1 : -1]]

    def _row(self, decision: Decision) -> dict[str, Any]:
        return {
            "id": decision.id,
            "decided_at": decision.decided_at,
            "scope": decision.scope,
            "context": decision.context,
            "model": decision.model,
            "expected_cost_usd": decision.expected_cost_usd,
            "expected_reward": decision.expected_reward,
            "ask_feedback": decision.ask_feedback,
            "state": "in flight",
            "answered_by": decision.model,
            "cost_usd": None,
            "score": None,
            **self._outcomes.get(decision.id, {}),
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
