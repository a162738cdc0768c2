r"""How many scores of past calls may still come: late scores are not missing ones.

Scores are taken to be late by an exponentially distributed time whose mean is that of the scores so far: of a call of
age `a`, a share `exp(-a / mean)` of its score is still to come. Before the first score nothing speaks for late ones,
and none is awaited. The share of calls that get a score (`scored_share` of
`wiserouter.learning.optimistic_estimates`) leaves out the calls whose score may still come.
"""

from __future__ import annotations

import math

from wiserouter.learning.estimates import Estimates

RECOUNT_GROWTH, RECOUNT_AFTER = 1.1, 8.0
"""The calls whose score may still come are counted again after 10 % more decisions, and 8 at least."""

LATEST_S = 7 * 86_400.0
"""Decisions older than this are no longer kept: their score is not awaited."""


class PendingScores:
    """The times of past decisions.

    Parameters
    ----------
    counted : int, default 0
        Decisions made before: their scores are not awaited.

    Attributes
    ----------
    due : float
        Number of decisions at which to update again.

    Examples
    --------
    >>> estimates, pending = Estimates(n_contexts=1, n_models=1), PendingScores()
    >>> for now_s in (0.0, 60.0):
    ...     estimates.add_invoked(0, 0)
    ...     pending.update(estimates, now_s)
    >>> estimates.pending
    0.0
    >>> estimates.add_reward(0, 0, 1.0, delay_s=60.0)
    >>> estimates.add_invoked(0, 0)
    >>> pending.update(estimates, 60.0)
    >>> round(estimates.pending, 3) == round(2.0 + math.exp(-1.0), 3)
    True
    """

    def __init__(self, counted: int = 0) -> None:
        self._counted, self.due = counted, counted + RECOUNT_AFTER
        self._made: list[tuple[float, int]] = []

    def update(self, estimates: Estimates, now_s: float) -> None:
        """Count the decisions since the last time, those of other workers included, and set `estimates.pending`."""
        new, self._counted = estimates.n_invoked - self._counted, estimates.n_invoked
        self.due = max(self._counted + RECOUNT_AFTER, self._counted * RECOUNT_GROWTH)
        self._made = [one for one in self._made if now_s - one[0] < LATEST_S]
        self._made.append((now_s, new))
        estimates.pending = self._pending(estimates, now_s)

    def _pending(self, estimates: Estimates, now_s: float) -> float:
        scored = float(estimates.scored.sum())
        mean_s = float(estimates.delay_s.sum()) / scored if scored else 0.0
        if mean_s <= 0.0:
            return 0.0
        return sum([count * math.exp(-max(now_s - made_s, 0.0) / mean_s) for made_s, count in self._made])
