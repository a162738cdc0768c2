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
from wiserouter.policies.base import Accounting, Choice, choose_by_plan
from wiserouter.policies.caution import Caution
from wiserouter.types import FloatArray, check_count

_GROWTH = 1.02  # the plan is solved anew each time there are 2 % more observations


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
        self._plan: Plan | None = None
        self._caution: Caution | None = None
        self._replan_at = 0.0

    @property
    def plan(self) -> Plan | None:
        """The linear program at the current estimates; None before the first cost and reward."""
        return self._plan

    def bind(self, freq: FloatArray, estimates: Estimates) -> None:
        """Take the context frequencies, and the estimates that the router keeps up to date."""
        self._freq, self._estimates = freq, estimates
        self._length = self.length or 4 * estimates.calls.size
        self._plan, self._caution, self._replan_at = None, None, 0.0

    def choose(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Collection[int] | None = None
    ) -> Choice:
        """Draw the least-invoked model while exploring, then from the plan's mix at rate b / tau."""
        plan = self._current_plan()
        if plan is None or self._estimates.n_invoked < self._length:
            return self._explore(context, rng, allowed)
        return choose_by_plan(plan, context, funds, rng, allowed, self.accounting, self._caution)

    def settings(self) -> dict[str, object]:
        """Return the keyword arguments that make an equal policy."""
        return {"length": self.length, "accounting": self.accounting, "allow_skip": self.allow_skip}

    def _explore(self, context: int, rng: np.random.Generator, allowed: Collection[int] | None) -> Choice:
        invoked = self._estimates.invoked[context]
        models = list(range(len(invoked)) if allowed is None else allowed)
        fewest = invoked[models].min()
        tied = [k for k in models if invoked[k] == fewest]
        model = tied[int(rng.integers(len(tied)))]
        cost, reward = self._guess(context, model)
        return Choice(model, 1.0 / len(tied), 0.0, cost, reward, "actual")

    def _guess(self, context: int, model: int) -> tuple[float, float]:
        """Return the plan's means where there is one; a call of unknown cost is expected to cost nothing."""
        if self._plan is None:
            return 0.0, 0.0
        return float(self._plan.cost_usd[context, model]), float(self._plan.reward[context, model])

    def _current_plan(self) -> Plan | None:
        """Return the plan, built anew where enough was learned since the last one."""
        if self._estimates.calls.any() and self._is_stale():
            means = self._estimates.means(shrink=self.accounting == "actual")
            self._plan = Plan(self._freq, *means, allow_skip=self.allow_skip)
            self._caution = Caution(self._plan, self._estimates) if self.accounting == "actual" else None
            self._replan_at = max(self._estimates.n_observations + 1, self._estimates.n_observations * _GROWTH)
        return self._plan

    def _is_stale(self) -> bool:
        if self.accounting == "paper":
            return self._plan is None and self._estimates.n_invoked >= self._length
        return self._estimates.n_observations >= self._replan_at
