"""The index of decisions by run, bounded: feedback on a run finds the decisions that were made below it.

Workers on a shared store find each other's decisions by names kept there: a run, and the decision's position in it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock


class DecisionIndex:
    """Decisions by run; the oldest is dropped first.

    Parameters
    ----------
    max_decisions : int
        How many are kept.
    """

    def __init__(self, max_decisions: int) -> None:
        self._max_decisions = max_decisions
        self._positions: OrderedDict[str, dict[str, int]] = OrderedDict()  # by decision, then by run
        self._by_run: dict[str, list[str]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, decision_id: str, *run_ids: object) -> None:
        """Enter a decision under runs."""
        with self._lock:
            positions = self._positions.setdefault(decision_id, {})
            for run in map(str, run_ids):
                if run not in positions:
                    decisions = self._by_run.setdefault(run, [])
                    positions[run] = len(decisions)
                    decisions.append(decision_id)
            while len(self._positions) > self._max_decisions:
                self._drop(*self._positions.popitem(last=False))

    def forget(self, decision_id: str) -> None:
        """Remove a decision from its runs: its call has failed, so no score is about it."""
        with self._lock:
            if (positions := self._positions.pop(decision_id, None)) is not None:
                self._drop(decision_id, positions)

    def decisions_of(self, name: str) -> list[str]:
        """Return the decisions entered under a run id, or the one of a decision id."""
        with self._lock:
            return [name] if name in self._positions else list(self._by_run.get(name, ()))

    def shared_names(self, decision_id: str) -> list[str]:
        """Return the names by which other workers find a decision."""
        with self._lock:
            positions = self._positions.get(decision_id, {})
            return [shared_name(run, position) for run, position in positions.items()]

    def _drop(self, decision_id: str, positions: Iterable[str]) -> None:
        for run in positions:
            rest = [other for other in self._by_run[run] if other != decision_id]
            if rest:
                self._by_run[run] = rest
            else:
                del self._by_run[run]


def shared_name(run_id: str, position: int) -> str:
    """Return the name of one of a run's decisions, counted from 0."""
    return f"run {run_id} {position}"
