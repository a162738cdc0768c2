"""The limits of one scope while serving: their meters, and a plan that is solved again rarely.

A program takes some milliseconds and a decision some microseconds. It is solved again after 10 % more decisions of the
scope, and at least after 200; at once when the pool or the contexts have changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from wiserouter.budgets.funds import Funds
from wiserouter.budgets.limit_meter import LimitMeter
from wiserouter.budgets.limits import Limits, Measure
from wiserouter.budgets.uses_in_flight import UsesInFlight
from wiserouter.planning.limit_constraints import banned_models, budget_constraint, limit_constraints
from wiserouter.planning.limited_mixture import LimitedMixture
from wiserouter.planning.limited_plan import Constraint, limited_plan
from wiserouter.planning.plan import Plan
from wiserouter.planning.share_caps import ShareCaps
from wiserouter.pricing.pool import Pool
from wiserouter.stores.shared.meter_sync import Metered, MeterSync
from wiserouter.types import FloatArray

logger = logging.getLogger("wiserouter")

RESOLVE_GROWTH = 0.1
"""A plan is solved again after this share more decisions of its scope, or fewer requests left."""

LEAST_BETWEEN, MOST_BETWEEN = 10, 200
"""The least and the most decisions between two solutions."""

ROUNDING = 1e-6
"""A bound that is loosened by no more than this, relative to it, is kept."""


class UsesOf(Protocol):
    """Returns the mean uses per (context, model) of what limits bound, at wider confidence bounds where asked."""

    def __call__(self, *, wide: bool) -> Mapping[Measure, FloatArray]: ...  # noqa: D102


class ScopeLimits:
    """The limits of one scope.

    Attributes
    ----------
    meters : dict of Measure to LimitMeter
        What the calls have used.
    in_flight : UsesInFlight
        What the calls are expected to use that have not reported it yet.
    expected : dict of Measure to dict
        The expected use of a call by context and model, as known when the plan was last solved or contexts changed.
    expected_for : tuple or None
        The contexts and models that they are those of.
    constraints : tuple of Constraint
        Those of the plan as it was last solved; the first is the budget's.
    mixture : LimitedMixture or None
        That plan; None before the first decision.
    has_total : bool
        Whether a sum over the window of the budget is bounded.
    window : float or None
        The start of that window; None before the first decision.
    """

    def __init__(self, terms: Limits) -> None:
        self.terms = terms
        self.meters = {one: LimitMeter(terms.most(one), terms.total(one)) for one in terms.measures}
        self.in_flight = UsesInFlight()
        self.expected: dict[Measure, dict[int, dict[int, float]]] = {}
        self.expected_for: tuple[int, int, int] | None = None
        self.constraints: tuple[Constraint, ...] = ()
        self.mixture: LimitedMixture | None = None
        self.has_total = any(meter.total is not None for meter in self.meters.values())
        self.window: float | None = None
        self.decided = 0
        self._solve_at = self._solve_below = 0.0
        self._warned = False
        self._caps: ShareCaps | None = None
        self._solved_for: tuple[object, ...] = ()

    def follow(self, scope: str, window: float, sync: MeterSync | None) -> None:
        """Let the meters go on in the present window of the budget, with what other workers have counted in it."""
        if window != self.window:
            self.window, self._solve_at = window, 0.0
            for meter in self.meters.values():
                meter.set_total(0, 0.0)
        if sync is not None:
            for one, meter in self.meters.items():
                meter.set_total(*sync.total(Metered.of(scope, window, one.label)))

    def share_caps(self, pool: Pool) -> ShareCaps | None:
        """Return the counts that hold the largest shares of models; None where there are none."""
        if self._caps is None and self.terms.max_share:
            self._caps = ShareCaps({pool.index(name): share for name, share in self.terms.max_share.items()})
        return self._caps

    def is_due(self, inputs: tuple[object, ...], requests: int) -> bool:
        """Return True if the plan is to be solved again."""
        is_old = self.decided >= self._solve_at or requests <= self._solve_below
        return self.mixture is None or is_old or self._solved_for != inputs

    def solve(self, plan: Plan, funds: Funds, uses: UsesOf, pool: Pool) -> LimitedMixture:
        """Solve the plan at what is left of the budget and of the limits.

        Where no mix keeps them by what models have used, those that have had few calls get the benefit of the doubt.
        """
        mixture = self._solve(plan, funds, uses(wide=False), pool)
        if self.nearest():
            mixture = self._solve(plan, funds, uses(wide=True), pool)
        if self.nearest() and not self._warned:
            self._warned = True
            logger.warning("no mix of models keeps all limits, the nearest is used: %s", self.nearest())
        between = min(max(LEAST_BETWEEN, RESOLVE_GROWTH * self.decided), MOST_BETWEEN)
        self._solve_at, self._solve_below = self.decided + between, (1.0 - RESOLVE_GROWTH) * funds.requests
        self._solved_for = (plan.n_contexts, pool)
        return mixture

    def _solve(self, plan: Plan, funds: Funds, uses: Mapping[Measure, FloatArray], pool: Pool) -> LimitedMixture:
        banned = banned_models(self.terms, pool.names, pool.retired)
        bounds = {one: meter.rate(funds.requests, *self.in_flight.total(one)) for one, meter in self.meters.items()}
        limits = limit_constraints(self.terms, bounds, uses, plan, pool.names, banned)
        self.constraints = (budget_constraint(plan, funds.rate_usd, banned), *limits)
        solved = limited_plan(plan.freq, plan.reward, self.constraints, allow_skip=plan.allow_skip, banned=banned)
        self.mixture = LimitedMixture(solved, plan.freq, banned)
        return self.mixture

    def nearest(self) -> dict[str, float]:
        """Return the limits that no mix keeps, with the nearest that the plan keeps in their place."""
        if self.mixture is None:
            return {}
        asked = {one.label: most for one in self.meters if (most := self.terms.most(one)) is not None}
        found = {}
        for one, bound in zip(self.constraints, self.mixture.plan.bounds, strict=True):
            most = max(one.most, asked.get(one.name, one.most))  # an excess that is made up for is no failure
            if one.elastic and bound > most + ROUNDING * abs(most):
                found[one.name] = shown(one.name, bound)
        return found


def shown(name: str, bound: float) -> float:
    """Return the bound of a constraint as it was given: a floor is a constraint of negative use."""
    return -bound if name.startswith("min_") else bound
