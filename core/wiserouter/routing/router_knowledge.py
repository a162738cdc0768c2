"""What a router knows, with what other workers of its store have learned."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

from wiserouter.learning.estimates import Estimates
from wiserouter.planning.plan import Plan

if TYPE_CHECKING:
    from wiserouter.routing.learner import Learner
    from wiserouter.stores import Store

READINGS = 4
"""Most readings by which a worker that starts takes over what is known; the third one reads all, as a rule."""


class RouterKnowledge:
    """The estimates and the plan of a router, which other workers add to."""

    _store: Store
    _learner: Learner
    _lock: RLock

    @property
    def estimates(self) -> Estimates:
        """The sums per (context, model), with what other workers have learned as far as it was read."""
        return self._merged().estimates

    @property
    def plan(self) -> Plan | None:
        """The linear program at the current estimates; None before anything is known."""
        with self._lock:
            return self._merged().policy.plan

    def _merged(self) -> Learner:
        """Return the learner, with what other workers have learned as far as it was read; it never waits."""
        if self._store.durable:
            with self._lock:
                self._learner.merge_remote()
        return self._learner

    def _catch_up(self) -> None:
        """Read what was learned before this worker started: the latest contexts, then the sums of all of them."""
        for _ in range(READINGS):
            if not self._learner.is_behind:
                return
            self._store.refresh()
            self._merged()
