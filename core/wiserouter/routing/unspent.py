"""Why money is left: one line with the figures, and what would help."""

from __future__ import annotations

from collections.abc import Sequence

from wiserouter.learning.estimates import Estimates
from wiserouter.planning.ceiling import ceiling_of
from wiserouter.planning.choice_inputs import ContextFigures
from wiserouter.planning.plan import Plan
from wiserouter.pricing.amounts import usd_per_1000

RARE = 0.05
"""Share of calls with a score below which scores are what is missing."""

LEAST_SHARE = 0.02
"""A smaller part of the rate is used by what calls cost beyond their means."""

FIRST_LOGGED = 100
"""Decisions after which a budget that stays unspent is logged, and again at each doubling."""


def why_unspent(plan: Plan, rate_usd: float, names: Sequence[str], estimates: Estimates) -> str | None:
    """Return why the plan leaves a part of the rate unspent, and what would help; None where it uses nearly all."""
    needed_usd, best = ceiling_of(plan)
    most_usd = float(plan.freq @ plan.cost_usd.max(axis=1))
    known = _what_would_help(
        float(estimates.labels.sum()), float(estimates.calls.sum()), none_costs_more=needed_usd >= most_usd
    )
    if not needed_usd < (1.0 - LEAST_SHARE) * rate_usd:
        return None
    return (
        f"{1.0 - needed_usd / rate_usd:.0%} of the rate stays unspent: the budget gives {usd_per_1000(rate_usd)}, and "
        f"by the estimates no model is worth more than the plan's, mostly {names[best]}, "
        f"at {usd_per_1000(needed_usd)}; {known}"
    )


def why_no_more(figures: ContextFigures, names: Sequence[str]) -> str:
    """Return why more money would not change a decision, and what would help."""
    best = names[figures.envelope[-1]] if figures.envelope else "skipping"
    none_costs_more = bool(figures.envelope) and figures.costs_usd[figures.envelope[-1]] >= max(figures.costs_usd)
    known = _what_would_help(sum(figures.labels), sum(figures.calls), none_costs_more=none_costs_more)
    return f"more money buys nothing here: no model is taken to be better than {best}; {known}"


def _what_would_help(scores: float, calls: float, *, none_costs_more: bool) -> str:
    counted = f"{scores:,.0f} scores of {calls:,.0f} calls are known"
    if none_costs_more:
        return f"{counted}, and no model costs more: a smaller budget buys as much"
    if scores < RARE * calls:
        return f"{counted}: scores (reward) or prior qualities (Model(score=...)) may show that others are worth more"
    return f"{counted}: a smaller budget buys as much"
