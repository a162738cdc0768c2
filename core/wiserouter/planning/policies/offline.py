"""WR-Offline (paper, Algorithm 1): the plan of a fitted history, at rate b / tau for every query.

Departures under `accounting="actual"`: means are shrunk, every call debits its true cost, a reserve is kept
(`planning.mixture`), and the plan follows the estimates as costs and rewards come in. Under `"paper"` the
statistics of the history are fixed and their means are debited.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.live_plan import LivePlan
from wiserouter.planning.plan import Plan
from wiserouter.planning.policy import Accounting, Choice
from wiserouter.planning.shift import Shift
from wiserouter.pricing.pool import Model
from wiserouter.types import FloatArray


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

    @property
    def plan(self) -> Plan | None:
        """The linear program as it was last solved."""
        return self._live_plan.plan

    @property
    def live_plan(self) -> Plan | None:
        """The program that choices are drawn from."""
        return self._live_plan.plan

    def bind(self, freq: FloatArray, estimates: Estimates, models: Sequence[Model] = ()) -> None:
        """Solve the plan at the present estimates; raise `InvalidInput` if they hold no cost."""
        estimates.means()
        self._live_plan = LivePlan(freq, estimates, self.accounting, allow_skip=self.allow_skip)
        self._live_plan.current()

    def choose(
        self,
        context: int,
        funds: Funds,
        rng: np.random.Generator,
        allowed: Collection[int] | None = None,
        shift: Shift | None = None,
    ) -> Choice:
        """Draw from the plan's mix at rate b / tau."""
        choice = self._live_plan.choose(context, funds, rng, allowed, shift)
        if choice is None:
            raise RuntimeError("Offline.bind refuses estimates without any cost")
        return choice

    def settings(self) -> dict[str, object]:
        """Return the keyword arguments that make an equal policy."""
        return {"accounting": self.accounting, "allow_skip": self.allow_skip}
