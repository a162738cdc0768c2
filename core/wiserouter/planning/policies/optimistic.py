"""Learning while serving: the plan at rewards that give every model the benefit of the doubt.

UCB-ALP (Wu, Srikant, Liu, Jiang 2015) with the linear program solved anew at every change: there is no exploration
phase, since a model that might be worth its cost is tried as part of the plan. What is ours: shrunk means, list costs
for models that were never tried, and the reserve rule, so that the budget lasts to the last request.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.optimistic_estimates import ContextEstimates, OptimisticEstimates
from wiserouter.learning.residuals.shift import Shift
from wiserouter.planning.choice_inputs import Counts
from wiserouter.planning.mixture import Mixture
from wiserouter.planning.plan import Plan
from wiserouter.planning.policy import Choice
from wiserouter.planning.reserve_rule import ReserveRule
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price
from wiserouter.types import NO_CONTEXT, FloatArray

DOUBT = 2.0
"""The weight of what is not known in a single context; among J contexts it is shared, by the root of J."""

GROWTH = 1.02
"""Frequencies, strengths and models' means are taken anew each time there are 2 % more observations."""

ROW_GROWTH = 1.01
"""A context is planned anew at its next query once it has 1 % more observations."""

REACH = 2.0
"""They are also taken anew when this many times as many requests are to come as when they were last taken."""

DEVIATIONS = 0.0
"""Standard deviations of its cost that are held against a call: none, unlike where costs were fitted, since those of
models that were called a few times are drawn toward the larger spread of all."""

DRIFT = 3.0
"""Standard deviations of all the cheapest calls to come that are held back."""


class Optimistic:
    """Learns rewards and costs while it serves, out of the same budget.

    Parameters
    ----------
    alpha : float, optional
        Weight of what is not known of a model, by default 2 over the root of the number of contexts: each context is
        another chance for a model that was underestimated. Negative values hold it against the model, for thin logs.
    allow_skip : bool, default False
        Allow the paper's null action.

    Raises
    ------
    InvalidInput
        If `alpha` is given and not a finite number.

    Notes
    -----
    The paper's WR-Online explores for a fixed number of requests, then stops learning (Algorithm 2): see
    docs/learning.md for both side by side.
    """

    name = "optimistic"
    watches_by_default = True

    def __init__(self, *, alpha: float | None = None, allow_skip: bool = False) -> None:
        if alpha is not None and not np.isfinite(alpha):
            raise InvalidInput(f"alpha must be a finite number, got {alpha!r}", value=alpha)
        self.alpha = alpha
        self.allow_skip = allow_skip
        self._first_prices: dict[str, Price] = {}
        self._at_means: Plan | None = None
        self._anywhere: Mixture | None = None

    @property
    def plan(self) -> Plan | None:
        """The linear program at the mean rewards; None before any cost is known."""
        if not self._estimates.calls.any():
            return None
        self._follow(NO_CONTEXT, self._requests, self._share)
        if self._at_means is None:
            self._at_means = Plan(
                self._outlook.freq, [row.mean for row in self._rows], self._live.cost_usd, allow_skip=self.allow_skip
            )
        return self._at_means

    def bind(self, freq: FloatArray, estimates: Estimates, models: Sequence[Model] = ()) -> None:
        """Take the context frequencies, the estimates that the router keeps up to date, and the pool."""
        if not estimates.met.any():  # of a dense log, history is the number of its queries
            history = float((estimates.calls - estimates.invoked).sum(axis=0).max())
            estimates.met[:, 0] += max(history, 1.0) * freq + estimates.invoked.sum(axis=1)
        self._estimates = estimates
        alpha = DOUBT / math.sqrt(estimates.shape[0]) if self.alpha is None else self.alpha
        for model in models:
            if model.price is not None:
                self._first_prices.setdefault(model.name, model.price)
        self._outlook = OptimisticEstimates(estimates, models, alpha, self._first_prices)
        self._refresh(1, 1.0)

    def choose(
        self,
        context: int,
        funds: Funds,
        rng: np.random.Generator,
        allowed: Collection[int] | None = None,
        shift: Shift | None = None,
    ) -> Choice:
        """Draw from the mix of the plan at rate b / tau."""
        self._follow(context, funds.requests, funds.share)
        if context == NO_CONTEXT:
            return self._of_all_contexts().choose(0, funds, rng, allowed)
        return self._mixture.choose(context, funds, rng, allowed, shift)

    def settings(self) -> dict[str, object]:
        """Return the keyword arguments that make an equal policy."""
        return {"alpha": self.alpha, "allow_skip": self.allow_skip}

    def _follow(self, context: int, requests: int, share: float) -> None:
        """Bring the plan up to what was observed since: for all contexts where that is much, else for this one."""
        seen = self._estimates
        if seen.n_observations + seen.n_invoked >= self._refresh_at or requests > REACH * self._requests:
            self._refresh(requests, share)
        elif context != NO_CONTEXT and seen.observed[context] >= self._revise_at[context]:
            self._revise(context)

    def _refresh(self, requests: int, share: float) -> None:
        seen = self._estimates
        self._requests, self._share = requests, share
        self._outlook.refresh(requests, share)
        self._rows: list[ContextEstimates] = self._outlook.rows()
        self._live = Plan(
            self._outlook.freq,
            [row.reward for row in self._rows],
            [row.cost_usd for row in self._rows],
            allow_skip=self.allow_skip,
        )
        reserve_rule = ReserveRule(self._live, self._outlook.spread_usd, deviations=DEVIATIONS, drift=DRIFT)
        self._mixture = Mixture(self._live, "actual", reserve_rule, Counts.of(seen), [row.mean for row in self._rows])
        self._at_means, self._anywhere = None, None
        self._revise_at = [_next(count, ROW_GROWTH) for count in seen.observed]
        count = seen.n_observations + seen.n_invoked
        self._refresh_at = _next(count, GROWTH)

    def _revise(self, context: int) -> None:
        row = self._outlook.row(context)
        self._rows[context] = row
        self._live.revise(context, row.reward, row.cost_usd)
        self._mixture.revise(context, self._estimates, row.mean)
        self._revise_at[context] = _next(self._estimates.observed[context], ROW_GROWTH)
        self._at_means, self._anywhere = None, None

    def _of_all_contexts(self) -> Mixture:
        if self._anywhere is None:
            spread_usd = self._outlook.freq @ self._outlook.spread_usd
            self._anywhere = self._mixture.without_context(spread_usd, Counts.of(self._estimates))
        return self._anywhere


def _next(count: float, growth: float) -> float:
    """Return the count at which it has grown by a share, and by 1 at least."""
    return max(count + 1.0, count * growth)
