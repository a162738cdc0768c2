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
        self._positions: OrderedDict[str, dict[str, int | None]] = OrderedDict()  # by decision, then by run
        self._by_run: dict[str, dict[str, None]] = {}  # in the order in which they were entered
        self._named: dict[str, int] = {}  # how many decisions of a run have a position
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, decision_id: str, *run_ids: object) -> None:
        """Enter a decision under runs."""
        with self._lock:
            positions = self._positions.setdefault(decision_id, {})
            for run in map(str, run_ids):
                if run not in positions:
                    positions[run] = None
                    self._by_run.setdefault(run, {})[decision_id] = None
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
        """Return the names by which other workers find a decision that was paid for.

        Its position in a run is given here, not when it is entered: workers count up from 0, and the call of a decision
        without a name may still fail, which would leave a gap.
        """
        with self._lock:
            positions = self._positions.get(decision_id, {})
            return [shared_name(run, self._position(positions, run)) for run in positions]

    def _position(self, positions: dict[str, int | None], run: str) -> int:
        """Return the position of a decision in a run; the next one that is free, where it has none."""
        position = positions[run]
        if position is None:
            position = positions[run] = self._named.get(run, 0)
            self._named[run] = position + 1
        return position

    def _drop(self, decision_id: str, positions: Iterable[str]) -> None:
        for run in positions:
            del self._by_run[run][decision_id]
            if not self._by_run[run]:
                del self._by_run[run]
                self._named.pop(run, None)


def shared_name(run_id: str, position: int) -> str:
    """Return the name of one of a run's decisions, counted from 0."""
    return f"run {run_id} {position}"
