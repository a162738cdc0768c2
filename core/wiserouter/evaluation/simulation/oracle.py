"""The oracle policy: the linear program at the true means, solved again at every request with rate b / tau."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.mixture import Mixture
from wiserouter.planning.plan import Plan
from wiserouter.planning.policies import Choice
from wiserouter.planning.shift import Shift
from wiserouter.pricing.pool import Model
from wiserouter.types import FloatArray


class Oracle:
    """A policy that draws from the plan at the true means."""

    name = "oracle"

    def __init__(self, plan: Plan) -> None:
        self.plan: Plan | None = plan
        self._mixture = Mixture(plan, "actual")

    def bind(self, freq: FloatArray, estimates: Estimates, models: Sequence[Model] = ()) -> None:
        """Ignore the estimates: the true means are known."""

    def choose(
        self,
        context: int,
        funds: Funds,
        rng: np.random.Generator,
        allowed: Collection[int] | None = None,
        shift: Shift | None = None,
    ) -> Choice:
        """Draw from the plan's mix at rate b / tau."""
        return self._mixture.choose(context, funds, rng, allowed)

    def settings(self) -> dict[str, object]:
        """Return no settings: the oracle is not saved."""
        return {}
