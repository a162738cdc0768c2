"""WR-Offline (paper, Algorithm 1): the plan of a fitted history, re-solved at every query with rate b / tau."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from wiserouter.budget import Funds
from wiserouter.estimates import Estimates
from wiserouter.plan import Plan
from wiserouter.policies.base import Accounting, Choice, choose_by_plan
from wiserouter.policies.caution import Caution
from wiserouter.types import FloatArray


class Offline:
    """Routes by reward and cost means that history gave, fixed while serving.

    Parameters
    ----------
    accounting : {"actual", "paper"}, default "actual"
        Debit the true cost of each call, with means shrunk toward each model's own, and leave enough for the requests
        to come (`policies.caution`); or, as the paper prints it, debit the estimated mean cost, with plain means.
    allow_skip : bool, default False
        Allow the paper's null action: `decide` then raises `QuerySkipped` where no model is worth its cost.

    Notes
    -----
    Debiting means lets the true spend drift from the budget: see docs/results.md for by how much.
    """

    name = "offline"

    def __init__(self, *, accounting: Accounting = "actual", allow_skip: bool = False) -> None:
        self.accounting: Accounting = accounting
        self.allow_skip = allow_skip
        self._plan: Plan | None = None
        self._caution: Caution | None = None

    @property
    def plan(self) -> Plan:
        """The linear program at the fitted means."""
        if self._plan is None:
            raise RuntimeError("Offline.bind must be called before a choice")
        return self._plan

    def bind(self, freq: FloatArray, estimates: Estimates) -> None:
        """Build the plan from what `estimates` hold now; raises `InvalidInput` if they hold nothing."""
        reward, cost_usd = estimates.means(shrink=self.accounting == "actual")
        self._plan = Plan(freq, reward, cost_usd, allow_skip=self.allow_skip)
        self._caution = Caution(self._plan, estimates) if self.accounting == "actual" else None

    def choose(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Collection[int] | None = None
    ) -> Choice:
        """Draw from the plan's mix at rate b / tau."""
        return choose_by_plan(self.plan, context, funds, rng, allowed, self.accounting, self._caution)

    def settings(self) -> dict[str, object]:
        """Return the keyword arguments that make an equal policy."""
        return {"accounting": self.accounting, "allow_skip": self.allow_skip}
