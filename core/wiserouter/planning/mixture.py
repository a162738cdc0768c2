"""The mixture that a policy draws from: the plan's mix at a rate, within the reserve rule.

The reserve rule: a call must leave enough for the cheapest models to serve the requests that come after it. A mean is
a poor bound on one call where costs have heavy tails, so the guarded cost of a call is its mean plus one standard
deviation. The rule binds in the last calls of a budget, and throughout a budget near the cheapest models' cost; it
keeps a budget without a hard limit from ending with one expensive call too many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.budgets.budget import Debit
from wiserouter.budgets.funds import Funds
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.long_rows import kept_numbers
from wiserouter.planning.choice_inputs import ContextFigures, Counts
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.plan import Plan
from wiserouter.planning.policy import Allowed, Choice, Mix
from wiserouter.planning.ranking import cheapest_of, worth_order
from wiserouter.planning.shift import Shift
from wiserouter.types import NO_CONTEXT, FloatArray

_INFINITE = float("inf")

_ROUNDING = 1e-9
"""Worths this close are equal."""


@dataclass(frozen=True)
class ReserveRule:
    """The guarded cost of each model, and the margin for the calls to come.

    Attributes
    ----------
    plan : Plan
        Mean costs, and the least mean cost of a request.
    spread_usd : array-like, broadcast to (n_contexts, n_models)
        Standard deviation of the cost of one call.
    with_spread : bool, default True
        Guard a call by its mean cost plus the standard deviation, not by the mean alone.
    drift : float, default 0
        Standard deviations of the total of the cheapest calls to come that are held back in addition to their mean.
    """

    plan: Plan
    spread_usd: ArrayLike
    with_spread: bool = True
    drift: float = 0.0

    def guarded_cost_usd(self, context: int) -> Sequence[float]:
        """Return the guarded cost of each model in one context; the last, index -1, is the null action."""
        guarded = self.plan.cost_usd[context]
        if self.with_spread:
            guarded = guarded + self.spreads_usd[context]
        return kept_numbers([*guarded.tolist(), 0.0])

    @cached_property
    def drift_margin_usd(self) -> float | None:
        """The margin for one call to come, and sqrt(n) times as much for n of them; None where there is none."""
        if not self.drift:
            return None
        plan = self.plan
        if plan.allow_skip:
            return 0.0  # the null action always costs nothing
        cheapest = plan.cost_usd.argmin(axis=1)[:, np.newaxis]
        return self.drift * float(plan.freq @ np.take_along_axis(self.spreads_usd, cheapest, axis=1)[:, 0])

    @cached_property
    def spreads_usd(self) -> FloatArray:
        """Standard deviation of the cost of one call, of shape (n_contexts, n_models)."""
        return np.broadcast_to(np.asarray(self.spread_usd), self.plan.cost_usd.shape)


@dataclass(frozen=True)
class Mixture:
    """A plan to draw from, with its reserve rule.

    Attributes
    ----------
    plan : Plan
        The linear program.
    debit : {"actual", "paper"}
        What planning debits for a call: its true, or its expected cost.
    reserve_rule : ReserveRule or None
        The reserve rule, where it is kept.
    counts : Counts or None
        Numbers of costs and rewards behind the plan.
    means : ndarray of shape (n_contexts, n_models) or None
        Mean rewards, where the plan was solved for other rewards.
    """

    plan: Plan
    debit: Debit
    reserve_rule: ReserveRule | None = None
    counts: Counts | None = None
    means: FloatArray | None = None
    _figures: dict[int, ContextFigures] = field(default_factory=dict)

    def choose(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Allowed = None, shift: Shift | None = None
    ) -> Choice:
        """Draw from the plan's mix, for a query of unknown context from that of all contexts together.

        Below its floor, take the cheapest models. A model that is not allowed, or that the reserve rule excludes, is
        replaced by the permitted one with the best reward less shadow price x cost, which is what the linear program
        itself maximises in each context at that price. For a query that deviates from its context, its own reward and
        cost are used.
        """
        if context == NO_CONTEXT:
            return self.without_context.choose(0, funds, rng, allowed, shift)
        if shift is not None:
            return self._choose_shifted(context, funds, rng, allowed, shift)
        low, high, share, price, floor = self.plan.split_from_floor(context, funds.rate_usd)
        drawn = high if share and rng.random() < share else low
        figures = self._figures.get(context) or self.figures(context)
        held = figures.guarded_cost_usd
        room = float("inf") if held is None else room_usd(funds, floor, figures.drift_margin_usd)
        if allowed is not None or (held is not None and (held[low] > room or held[high] > room)):
            candidates = range(self.plan.n_models) if allowed is None else allowed
            models = permitted(candidates, held, room) or [
                min(candidates, key=worth_order(figures.weighed, figures.costs_usd, float("inf")))
            ]
            if not all(k == SKIP or k in models for k in (low, high)):
                best = min(models, key=worth_order(figures.weighed, figures.costs_usd, price))
                drawn, low, high = (k if k == SKIP or k in models else best for k in (drawn, low, high))
        if share and low != high:
            probability = share if drawn == high else 1.0 - share
            mix: Mix = ((low, 1.0 - share), (high, share))
        else:
            probability, mix = 1.0, ((drawn, 1.0),)
        reward, cost = (figures.rewards[drawn], figures.costs_usd[drawn]) if drawn != SKIP else (0.0, 0.0)
        return tuple.__new__(  # in half the time of a call of the class
            Choice, (drawn, probability, price, cost, reward, self.debit, mix, figures, "plan", floor, None)
        )

    def figures(self, context: int) -> ContextFigures:
        """Return the figures of a context; made once."""
        known = self._figures.get(context)
        if known is None:
            row, rule, counts, means = self.plan.rows[context], self.reserve_rule, self.counts, self.means
            unknown = [0.0] * len(row.reward)
            known = self._figures[context] = ContextFigures(
                row.reward if means is None else kept_numbers(means[context].tolist()),
                row.cost_usd,
                unknown if counts is None else kept_numbers(counts.calls[context].tolist()),
                unknown if counts is None else kept_numbers(counts.labels[context].tolist()),
                row.hull[1:] if row.hull[0] == SKIP else row.hull,
                None if rule is None else rule.guarded_cost_usd(context),
                None if means is None else row.reward,
                None if rule is None else rule.drift_margin_usd,
            )
        return known

    def revise(self, context: int, estimates: Estimates, means: FloatArray) -> None:
        """Take over the present figures of one context from the plan and the estimates."""
        if self.counts is not None:
            calls, labels = self.counts
            calls[context], labels[context] = estimates.calls[context], estimates.labels[context]
        if self.means is not None:
            self.means[context] = means
        self._figures.pop(context, None)
        self.__dict__.pop("without_context", None)

    @cached_property
    def without_context(self) -> Mixture:
        """The mixture for a query of unknown context: the same plan at the means over all contexts."""
        plan, rule, counts, freq = self.plan.without_context(), self.reserve_rule, self.counts, self.plan.freq
        rule = None if rule is None else replace(rule, plan=plan, spread_usd=freq @ rule.spreads_usd)
        means = None if self.means is None else (freq @ self.means)[np.newaxis, :]
        counts = None if counts is None else Counts(*[table.sum(axis=0, keepdims=True) for table in counts])
        return Mixture(plan, self.debit, rule, counts, means)

    def _choose_shifted(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Allowed, shift: Shift
    ) -> Choice:
        """Take the permitted model that is worth most to this query, without an array; the plan's own two at a tie.

        The choice holds the cost and the mean reward of this query, and the figures of its context.
        """
        plan, valued, rate = self.plan, shift.valued, funds.rate_usd
        low, high, share, price, floor = (
            plan.split_from_floor(context, rate) if valued is None else valued.split_from_floor(plan, context, rate)
        )
        if shift.shadow_price is not None and rate >= floor:
            price = shift.shadow_price
        figures = self._figures.get(context) or self.figures(context)
        means_usd, guarded = figures.costs_usd, figures.guarded_cost_usd
        reward, cost = shift.rewards(figures.weighed), shift.costs_usd(means_usd)
        room = room_usd(funds, floor, figures.drift_margin_usd)
        candidates = models = range(len(cost)) if allowed is None else [*allowed]
        if guarded is not None and not (cost is means_usd and max(guarded) <= room):
            models = [k for k in candidates if guarded[k] + (cost[k] - means_usd[k]) <= room]
            models = models or [min(candidates, key=cost.__getitem__)]
        if plan.allow_skip:
            models, reward, cost = [SKIP, *models], [*reward, 0.0], [*cost, 0.0]
        worth = [-usd for usd in cost] if price == _INFINITE else [u - price * c for u, c in zip(reward, cost)]  # noqa: B905
        drawn, probability, mix = _drawn(models, worth, cost, (low, high, share, price), rng)
        mean = reward[drawn]
        if figures.planned is not None and drawn != SKIP:  # the mean, in place of what the plan was solved for
            mean = mean - figures.planned[drawn] + figures.rewards[drawn]
        return tuple.__new__(  # in half the time of a call of the class
            Choice, (drawn, probability, price, cost[drawn], mean, self.debit, mix, figures, "plan", floor, None)
        )


def _drawn(
    models: Sequence[int],
    worth: Sequence[float],
    cost_usd: Sequence[float],
    split: tuple[int, int, float, float],
    rng: np.random.Generator,
) -> tuple[int, float, Mix]:
    """Return the model that is worth most, its probability and the mix: the plan's own two models at a tie."""
    low, high, share, price = split
    best, most = models[0], worth[models[0]]
    for k in models:  # the one that costs least at a tie
        own = worth[k]
        if own > most or (own == most and cost_usd[k] < cost_usd[best]):
            best, most = k, own
    least, most_usd = most - _ROUNDING * max(1.0, abs(most)), _INFINITE
    if price == 0.0:  # then worth leaves the cost out, and the cheapest of equal models is taken
        most_usd = cost_usd[best]
    has_low = low in models and worth[low] >= least and cost_usd[low] <= most_usd
    has_high = high in models and worth[high] >= least and cost_usd[high] <= most_usd
    if has_low and has_high and share:
        drawn = high if rng.random() < share else low
        return drawn, share if drawn == high else 1.0 - share, ((low, 1.0 - share), (high, share))
    drawn = low if has_low else high if has_high else best
    return drawn, 1.0, ((drawn, 1.0),)


def cheapest_choice(
    plan: Plan | None, context: int, models: Collection[int], list_price_usd: Callable[[int], float]
) -> Choice:
    """Return the cheapest model of `context`: by the plan's means, or by list price where there is no plan yet."""
    price = float("inf")
    if plan is None:
        model = min(models, key=list_price_usd)
        return Choice(model, 1.0, price, 0.0, 0.0, "actual", ((model, 1.0),), rule="cheapest")
    if context == NO_CONTEXT:
        plan, context = plan.without_context(), 0
    model = cheapest_of(plan, context, models)
    known = Mixture(plan, "actual").figures(context)
    reward, cost = known.means(model)
    return Choice(model, 1.0, price, cost, reward, "actual", ((model, 1.0),), known, "cheapest")


def room_usd(funds: Funds, floor_usd: float, drift_margin_usd: float | None) -> float:
    """Return the amount that a call may cost if each call after it costs `floor_usd`: b - (tau - 1) c_min.

    Where several budgets bear the call, the least of their rooms counts. The margin is held back sqrt(tau - 1) times,
    and the cushion of the funds once: the sum of the calls after it may stray that far from its mean. None holds back
    neither, unless there are several budgets.

    Examples
    --------
    >>> room_usd(Funds(10.0, 5), 1.0, None), room_usd(Funds(10.0, 5), 1.0, 0.5)
    (6.0, 5.0)
    """
    left, requests, each, cushion, _ = funds
    if each:
        return min([room_usd(one, floor_usd, drift_margin_usd or 0.0) for one in each]) - cushion
    after = requests - 1
    room = left - after * floor_usd
    if drift_margin_usd is None:
        return room
    return room - drift_margin_usd * math.sqrt(after if after > 0 else 0) - cushion


def permitted(models: Iterable[int], guarded_cost_usd: Sequence[float] | None, room_usd: float) -> list[int]:
    """Return the models whose guarded cost is at most `room_usd`; all of them where no reserve is kept."""
    return list(models) if guarded_cost_usd is None else [k for k in models if guarded_cost_usd[k] <= room_usd]
