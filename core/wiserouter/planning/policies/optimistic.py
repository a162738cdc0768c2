"""WR-Online without an exploration phase: the plan at upper confidence bounds of the rewards.

UCB-ALP (Wu, Srikant, Liu, Jiang 2015) with the linear program solved again at every change: a model that might be worth
its cost is tried as part of the plan. Ours are the shrunk means, the list costs of models that were never tried, and
the reserve rule, which makes the budget last to the last request.

Until a call was paid for, a price list orders the models but does not tell what they cost: a run of an agent costs a
hundred times the typical call that is assumed. Requests go to the cheapest listed model until then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.optimistic_estimates import OptimisticEstimates
from wiserouter.learning.shrinkage import PRIOR_COUNT
from wiserouter.planning.choice_inputs import Counts
from wiserouter.planning.mixture import Mixture, ReserveRule
from wiserouter.planning.plan import Plan
from wiserouter.planning.policy import Allowed, Choice
from wiserouter.planning.ranking import cheapest_of
from wiserouter.planning.shift import Shift
from wiserouter.planning.solve_rate import pause_between_solutions
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price
from wiserouter.types import NO_CONTEXT, FloatArray
from wiserouter.validation import check_count, check_finite

ALPHA = 1.0
"""Weight of the uncertainty: the bound of a normal posterior with these standard deviations."""

REFRESH_GROWTH = 1.02
"""Frequencies, strengths and models' means are computed again each time that there are 2 % more observations; later
where there are many cells."""

REVISE_GROWTH = 1.01
"""The plan of a context is revised at its next query once it has 1 % more observations."""

HORIZON_GROWTH = 2.0
"""All is also computed again once the requests to come are this many times those of the last computation."""

DRIFT = 3.0
"""Standard deviations of the total of the cheapest calls to come that are held back."""

MODELS_PER_CELL = 4
"""The effects of models and contexts take as long to fit as a plan of as many cells times the models over this."""

_BELOW_FLOOR = float("inf")
"""The shadow price where the rate is below the cost of the cheapest models."""


class Optimistic:
    """Learns rewards and costs while it serves, out of the same budget.

    Parameters
    ----------
    alpha : float, optional
        Weight of the uncertainty, by default 1: the deviations are those of the posterior. Negative values plan with
        lower confidence bounds, for thin logs.
    allow_skip : bool, default False
        Allow the paper's null action.
    practice_for : int, optional
        The budget is for practice, and a workload of so many requests follows, with a router that starts from these
        estimates: trials are then worth as much at the end of the budget as at its start, and those of models that pay
        only in the long run are made, too. `alpha=2` suits, as no answer of a practice counts. By default what is
        learned serves this budget only.

    Attributes
    ----------
    first_prices : dict of str to Price
        The price that each model came with: a later price cut makes no model worse.

    Raises
    ------
    InvalidInput
        If `alpha` is given and not a finite number, or `practice_for` is not a whole number of at least 1.

    Notes
    -----
    The paper's WR-Online explores for a fixed number of requests, then stops learning (Algorithm 2): see
    docs/learning.md for both side by side.
    """

    name = "optimistic"
    watches_by_default = True  # a router adds drift detection unless told otherwise

    def __init__(
        self, *, alpha: float | None = None, allow_skip: bool = False, practice_for: int | None = None
    ) -> None:
        if alpha is not None:
            check_finite("alpha", alpha)
        if practice_for is not None:
            check_count("practice_for", practice_for, least=1)
        self.alpha = alpha
        self.allow_skip = allow_skip
        self.practice_for = practice_for
        self._funds = Funds(0.0, 1)
        self._latest_funds: Funds | None = None
        self._waiting = NO_CONTEXT
        self.first_prices: dict[str, Price] = {}
        self._at_means: Plan | None = None

    @property
    def plan(self) -> Plan | None:
        """The linear program at the mean rewards; None before any cost is known."""
        if self._unpaid and not self._estimates.calls.any():
            return None
        self._follow(NO_CONTEXT, self._funds)
        if self._at_means is None:
            self._at_means = Plan(self._live.freq, self._means, self._live.cost_usd, allow_skip=self.allow_skip)
        return self._at_means

    @property
    def live_plan(self) -> Plan | None:
        """The program that choices are drawn from, at upper confidence bounds; None before any cost is known."""
        return None if self._unpaid else self._live

    def bind(self, freq: FloatArray, estimates: Estimates, models: Sequence[Model] = ()) -> None:
        """Take the context frequencies, the estimates that the router keeps up to date, and the pool."""
        if not estimates.met.any():  # in a log with all scores, a model's calls are the number of its queries
            history = float((estimates.calls - estimates.invoked).sum(axis=0).max())
            estimates.met[:, 0] += max(history, 1.0) * freq + estimates.invoked.sum(axis=1)
        self._estimates = estimates
        alpha = ALPHA if self.alpha is None else self.alpha
        for model in models:
            if model.price is not None:
                self.first_prices.setdefault(model.name, model.price)
        self._waiting = NO_CONTEXT
        self._pause = pause_between_solutions(estimates.calls.size)
        pause = pause_between_solutions(estimates.calls.size * estimates.shape[1] // MODELS_PER_CELL)
        self._optimistic = OptimisticEstimates(estimates, models, alpha, self.first_prices, pause if pause > 1 else 0.0)
        self._refresh(self._funds)  # those of the last choice, where the pool or the observations have changed

    def choose(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Allowed = None, shift: Shift | None = None
    ) -> Choice:
        """Draw from the mix of the plan at rate b / tau; the cheapest listed model until a call was paid for."""
        self._latest_funds = funds
        self._follow(context if context != self._waiting else NO_CONTEXT, funds)
        if context == NO_CONTEXT and shift is not None:
            shift = None if shift.valued is None else Shift(valued=shift.valued)
        if self._unpaid:
            cheapest = [self._cheapest_listed(context, allowed)]
            return self._mixture.choose(context, funds, rng, cheapest, shift)._replace(rule="first")
        choice = self._mixture.choose(context, funds, rng, allowed, shift)
        if context != NO_CONTEXT and choice.shadow_price == _BELOW_FLOOR and shift is None:  # nothing was drawn
            return self._mixture.choose(context, funds, rng, self._worth_most_per_usd(context, allowed))
        return choice

    def learned(self, context: int) -> None:
        """Plan a large table again now, so that no decision waits for it.

        One context waits for what is learned next, since the reward of a call often follows its cost.
        """
        funds = self._latest_funds
        if funds is None or self._pause <= 1:
            return
        ready, self._waiting = self._waiting, context
        if ready == context:
            self._waiting = NO_CONTEXT
        self._follow(ready, funds)
        if ready != NO_CONTEXT:
            self._live.split_from_floor(ready, funds.rate_usd)
            self._mixture.figures(ready)

    def settings(self) -> dict[str, object]:
        """Return the keyword arguments that make an equal policy."""
        return {"alpha": self.alpha, "allow_skip": self.allow_skip, "practice_for": self.practice_for}

    def _follow(self, context: int, funds: Funds) -> None:
        """Update the plan to the observations: for all contexts if there are many new ones, else for this one."""
        seen = self._estimates
        due = seen.n_observations + seen.n_invoked >= self._refresh_at or (self._unpaid and seen.calls.any())
        if due or funds.requests > HORIZON_GROWTH * self._funds.requests:
            self._refresh(funds)
        elif context != NO_CONTEXT and seen.observed[context] >= self._revise_at[context]:
            self._revise(context)

    def _refresh(self, funds: Funds) -> None:
        seen = self._estimates
        self._funds = funds
        self._unpaid = not seen.calls.any()
        after = self.practice_for
        ahead = (funds.requests, funds.share) if after is None else (funds.requests + after, 1.0)
        self._means, reward, cost_usd = self._optimistic.refresh(*ahead)
        self._live = Plan(self._optimistic.freq, reward, cost_usd, allow_skip=self.allow_skip, revisable=True)
        # no spread, unlike where costs were fitted on a log: the spread of models with few calls is shrunk toward
        # the larger one of all models, and would lock them out
        reserve_rule = ReserveRule(self._live, self._optimistic.spread_usd, with_spread=False, drift=DRIFT)
        # what the next decision would otherwise wait for
        self._live.split_from_floor(0, funds.rate_usd)
        _ = reserve_rule.drift_margin_usd
        counts = Counts(seen.calls.copy(), seen.labels.copy())
        self._mixture = Mixture(self._live, "actual", reserve_rule, counts, self._means)
        self._at_means = None
        self._revise_at = [_grown(count, REVISE_GROWTH) for count in seen.observed]
        count = seen.n_observations + seen.n_invoked
        self._refresh_at = max(_grown(count, REFRESH_GROWTH), count + min(count, self._pause))

    def _revise(self, context: int) -> None:
        mean, reward, cost_usd = self._optimistic.row(context)
        self._live.revise(context, reward, cost_usd)
        self._mixture.revise(context, self._estimates, mean)  # in `_means`, too
        self._revise_at[context] = _grown(self._estimates.observed[context], REVISE_GROWTH)
        self._at_means = None

    def _cheapest_listed(self, context: int, allowed: Allowed) -> int:
        plan, context = (self._live, context) if context != NO_CONTEXT else (self._mixture.without_context.plan, 0)
        return cheapest_of(plan, context, range(plan.n_models) if allowed is None else allowed)

    def _worth_most_per_usd(self, context: int, allowed: Allowed) -> list[int]:
        """Return the model with the most mean reward per USD, of those that may be the cheapest."""
        models = range(self._live.n_models) if allowed is None else sorted(allowed)
        cost, spread = (table[context].tolist() for table in (self._live.cost_usd, self._optimistic.spread_usd))
        calls, mean = self._estimates.calls.sum(axis=0).tolist(), self._means[context].tolist()
        least = min(models, key=cost.__getitem__)
        if not cost[least] > 0.0:
            return [least]
        error = [spread[k] / cost[k] / math.sqrt(calls[k] + PRIOR_COUNT) for k in range(len(cost))]  # of a log mean
        within = [k for k in models if math.log(cost[k] / cost[least]) <= error[k]]
        return [max(within, key=lambda k: (mean[k] / cost[k], -cost[k]))]


def _grown(count: float, growth: float) -> float:
    """Return the count at which `count` has grown by this factor, and by at least 1."""
    return max(count + 1.0, count * growth)
