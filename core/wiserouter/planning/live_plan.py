"""A plan that is solved again as the estimates change."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.choice_inputs import Counts
from wiserouter.planning.mixture import Mixture, ReserveRule
from wiserouter.planning.plan import Plan
from wiserouter.planning.policy import Accounting, Choice
from wiserouter.planning.shift import Shift
from wiserouter.planning.solve_rate import pause_between_solutions
from wiserouter.types import NO_CONTEXT, FloatArray

RESOLVE_GROWTH = 1.02
"""The plan is solved again each time that there are 2 % more observations; later where it is large."""


class LivePlan:
    """The linear program at the current estimates, solved again when enough was learned.

    Parameters
    ----------
    freq : ndarray of shape (n_contexts,)
        Share of each context.
    estimates : Estimates
        Observations, which the router keeps up to date.
    accounting : {"actual", "paper"}
        "actual": shrunk means, the reserve rule, and a plan that is solved again. "paper": plain means, no reserve, and
        a plan that is solved once.
    allow_skip : bool
        Allow the null action.
    """

    def __init__(self, freq: FloatArray, estimates: Estimates, accounting: Accounting, *, allow_skip: bool) -> None:
        self._freq, self._estimates = freq, estimates
        self._accounting: Accounting = accounting
        self._allow_skip = allow_skip
        self._mixture: Mixture | None = None
        self._without_context: Mixture | None = None
        self._solve_at = 0.0

    @property
    def plan(self) -> Plan | None:
        """The plan as it was last solved; None before the first."""
        return self._mixture.plan if self._mixture is not None else None

    def current(self) -> Mixture | None:
        """Return the plan and its reserve rule, solved again if enough was learned; None before any cost is known."""
        if self._estimates.n_observations >= self._solve_at and self._estimates.calls.any():
            self._solve()
        return self._mixture

    def choose(
        self,
        context: int,
        funds: Funds,
        rng: np.random.Generator,
        allowed: Collection[int] | None,
        shift: Shift | None = None,
    ) -> Choice | None:
        """Draw from the current mix, or for a query without a context from that of all contexts together."""
        mixture = self.current()
        if mixture is not None and context == NO_CONTEXT:
            mixture, context = self._of_all_contexts(mixture), 0
        return None if mixture is None else mixture.choose(context, funds, rng, allowed, shift)

    def _of_all_contexts(self, mixture: Mixture) -> Mixture:
        if self._without_context is None:
            self._without_context = mixture.without_context(self._estimates.cost_spread_usd(), mixture.counts)
        return self._without_context

    def _solve(self) -> None:
        actual = self._accounting == "actual"
        plan = Plan(self._freq, *self._estimates.means(shrink=actual), allow_skip=self._allow_skip)
        reserve_rule = ReserveRule(plan, self._estimates.cost_spread_usd()) if actual else None
        counts = Counts(self._estimates.calls.copy(), self._estimates.labels.copy())
        self._mixture = Mixture(plan, self._accounting, reserve_rule, counts)
        self._without_context = None
        seen = self._estimates.n_observations
        pause = min(seen, pause_between_solutions(plan.reward.size))
        self._solve_at = max(seen + 1.0, seen + pause, seen * RESOLVE_GROWTH) if actual else float("inf")
