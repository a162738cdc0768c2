"""WR-Offline (paper, Algorithm 1): the plan of a fitted history, at rate b / tau for every query.

Departures under `accounting="actual"`: means are shrunk, every call debits its true cost, a reserve is kept
(`planning.mixture`), and the plan follows the estimates as costs and rewards come in. Under `"paper"` the
statistics of the history are fixed and their means are debited.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.choice_inputs import Counts
from wiserouter.planning.mixture import Mixture, ReserveRule
from wiserouter.planning.plan import Plan
from wiserouter.planning.policy import Accounting, Allowed, Choice
from wiserouter.planning.shift import Shift
from wiserouter.planning.solve_rate import pause_between_solutions
from wiserouter.pricing.pool import Model
from wiserouter.types import FloatArray

RESOLVE_GROWTH = 1.02
"""The plan is solved again each time that there are 2 % more observations; later where it is large."""


class Offline:
    """Routes by the mean rewards and costs of a log, which serving refines.

    Parameters
    ----------
    accounting : {"actual", "paper"}, default "actual"
        Debit the true cost of each call, or as the paper prints it the estimated mean.
    allow_skip : bool, default False
        Allow the paper's null action: `decide` then raises `QuerySkipped` where no model is worth its cost.

    Notes
    -----
    Debiting means lets the true spend drift from the budget; docs/results.md measures the drift.
    """

    name = "offline"

    def __init__(self, *, accounting: Accounting = "actual", allow_skip: bool = False) -> None:
        self.accounting: Accounting = accounting
        self.allow_skip = allow_skip
        self._mixture: Mixture | None = None

    @property
    def plan(self) -> Plan | None:
        """The linear program as it was last solved; None before the first."""
        return None if self._mixture is None else self._mixture.plan

    @property
    def live_plan(self) -> Plan | None:
        """The program that choices are drawn from."""
        return self.plan

    def bind(self, freq: FloatArray, estimates: Estimates, models: Sequence[Model] = ()) -> None:
        """Solve the plan at the present estimates; raise `InvalidInput` if they hold no cost."""
        self._freq, self._estimates = freq, estimates
        self._solve()

    def choose(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Allowed = None, shift: Shift | None = None
    ) -> Choice:
        """Draw from the plan's mix at rate b / tau."""
        mixture = self._current()
        if mixture is None:
            raise RuntimeError("Offline.bind refuses estimates without any cost")
        return mixture.choose(context, funds, rng, allowed, shift)

    def _current(self) -> Mixture | None:
        """Return the plan and its reserve rule, solved again if enough was learned; None before any cost is known."""
        if self._estimates.n_observations >= self._solve_at and self._estimates.calls.any():
            self._solve()
        return self._mixture

    def _solve(self) -> None:
        seen, actual = self._estimates, self.accounting == "actual"
        plan = Plan(self._freq, *seen.means(shrink=actual), allow_skip=self.allow_skip)
        reserve_rule = ReserveRule(plan, seen.cost_spread_usd()) if actual else None
        self._mixture = Mixture(plan, self.accounting, reserve_rule, Counts(seen.calls.copy(), seen.labels.copy()))
        n = seen.n_observations
        pause = min(n, pause_between_solutions(plan.reward.size))
        self._solve_at = max(n + 1.0, n + pause, n * RESOLVE_GROWTH) if actual else float("inf")

    def settings(self) -> dict[str, object]:
        """Return the keyword arguments that make an equal policy."""
        return {"accounting": self.accounting, "allow_skip": self.allow_skip}
