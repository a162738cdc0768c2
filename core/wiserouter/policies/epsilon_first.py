"""WR-Online, epsilon-first (paper, Algorithm 2): explore for a number of requests, then follow the plan.

Departures under `accounting="actual"`: means are shrunk, every call debits its true cost, and the plan follows the
estimates as they grow; under `"paper"` the estimates freeze when exploration ends and exploitation debits their means.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from wiserouter.budget import Funds
from wiserouter.estimates import Estimates
from wiserouter.plan import Plan
from wiserouter.policies.base import Accounting, Choice
from wiserouter.policies.following import FollowingPlan
from wiserouter.types import NO_CONTEXT, FloatArray, check_count


class EpsilonFirst:
    """Explores the least-invoked model of each context for `length` requests, out of the same budget.

    Parameters
    ----------
    length : int, optional
        Number of exploration requests, epsilon(T) in the paper; 4 per (context, model) by default.
    accounting : {"actual", "paper"}, default "actual"
        Debit true costs, or after exploration the estimated means.
    allow_skip : bool, default False
        Allow the paper's null action.

    Raises
    ------
    InvalidInput
        If `length` is not a whole number of at least 1.
    """

    name = "epsilon-first"

    def __init__(
        self, length: int | None = None, *, accounting: Accounting = "actual", allow_skip: bool = False
    ) -> None:
        self.length = None if length is None else check_count("length", length, least=1)
        self.accounting: Accounting = accounting
        self.allow_skip = allow_skip

    @property
    def plan(self) -> Plan | None:
        """The linear program as it was last solved; None before it is first needed."""
        return self._following.plan

    def bind(self, freq: FloatArray, estimates: Estimates) -> None:
        """Take the context frequencies, and the estimates that the router keeps up to date."""
        self._estimates = estimates
        self._length = self.length or 4 * estimates.calls.size
        self._following = FollowingPlan(freq, estimates, self.accounting, allow_skip=self.allow_skip)

    def choose(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Collection[int] | None = None
    ) -> Choice:
        """Draw the least-invoked model while exploring, then from the plan's mix at rate b / tau."""
        exploring = self._estimates.n_invoked < self._length
        choice = None if exploring else self._following.choose(context, funds, rng, allowed)
        return self._explore(context, rng, allowed) if choice is None else choice

    def settings(self) -> dict[str, object]:
        """Return the keyword arguments that make an equal policy."""
        return {"length": self.length, "accounting": self.accounting, "allow_skip": self.allow_skip}

    def _explore(self, context: int, rng: np.random.Generator, allowed: Collection[int] | None) -> Choice:
        invoked = _of_context(self._estimates.invoked, context)
        models = list(range(len(invoked)) if allowed is None else allowed)
        fewest = invoked[models].min()
        tied = [k for k in models if invoked[k] == fewest]
        model = tied[int(rng.integers(len(tied)))]
        cost, reward = self._guess(context, model)
        return Choice(model, 1.0 / len(tied), 0.0, cost, reward, "actual")

    def _guess(self, context: int, model: int) -> tuple[float, float]:
        """Return the running means of a pair; a call of unknown cost is expected to cost nothing."""
        seen = self._estimates
        total, n = (_of_context(table, context)[model] for table in (seen.cost, seen.calls))
        score, labels = (_of_context(table, context)[model] for table in (seen.reward, seen.labels))
        return float(total / max(n, 1.0)), float(score / max(labels, 1.0))


def _of_context(table: FloatArray, context: int) -> FloatArray:
    """Return the row of a context, or the sum of all rows where there is none."""
    row: FloatArray = table.sum(axis=0) if context == NO_CONTEXT else table[context]
    return row
