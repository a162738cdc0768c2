"""Which decisions stand behind a run, so that feedback given for the run finds them; bounded.

Other workers of a shared store find them by names kept there: the run, and which of its decisions it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock


@dataclass(slots=True)
class IndexedDecision:
    """What is kept of a decision.

    Attributes
    ----------
    run_ids : dict of str to int
        The runs that it can be found by, and how many decisions of each came before it.
    scores : dict of str to (float, str or None)
        The latest score and comment by feedback key.
    """

    run_ids: dict[str, int] = field(default_factory=dict)
    scores: dict[str, tuple[float, str | None]] = field(default_factory=dict)


class DecisionIndex:
    """Decisions by run, the oldest forgotten first, together with their runs.

    Parameters
    ----------
    max_decisions : int
        How many are kept.
    """

    def __init__(self, max_decisions: int) -> None:
        self._max_decisions = max_decisions
        self._traces: OrderedDict[str, IndexedDecision] = OrderedDict()
        self._by_run: dict[str, list[str]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._traces)

    def note(self, decision_id: str, run_ids: Iterable[object]) -> None:
        """Let runs stand for a decision."""
        with self._lock:
            trace = self._traces.setdefault(decision_id, IndexedDecision())
            for run in {str(run_id) for run_id in run_ids} - trace.run_ids.keys():
                decisions = self._by_run.setdefault(run, [])
                trace.run_ids[run] = len(decisions)
                decisions.append(decision_id)
            while len(self._traces) > self._max_decisions:
                self._forget(*self._traces.popitem(last=False))

    def decisions_of(self, name: str) -> list[str]:
        """Return the decisions that a decision id or a run id stands for."""
        with self._lock:
            return [name] if name in self._traces else list(self._by_run.get(name, ()))

    def shared_names(self, decision_id: str) -> list[str]:
        """Return the names by which other workers find a decision."""
        with self._lock:
            trace = self._traces.get(decision_id)
            return [] if trace is None else [name_of(run, place) for run, place in trace.run_ids.items()]

    def score(self, decision_id: str, key: str, score: float, comment: str | None) -> None:
        """Keep a score, instead of an earlier one of the same key."""
        with self._lock:
            if decision_id in self._traces:
                self._traces[decision_id].scores[key] = (score, comment)

    def scores_of(self, decision_id: str) -> dict[str, tuple[float, str | None]]:
        """Return the scores of a decision, and what was said with them, by feedback key."""
        with self._lock:
            trace = self._traces.get(decision_id)
            return {} if trace is None else dict(trace.scores)

    def _forget(self, decision_id: str, trace: IndexedDecision) -> None:
        for run in trace.run_ids:
            left = [other for other in self._by_run[run] if other != decision_id]
            if left:
                self._by_run[run] = left
            else:
                del self._by_run[run]


def name_of(run_id: str, place: int) -> str:
    """Return the name of one of a run's decisions, counted from 0."""
    return f"run {run_id} {place}"
