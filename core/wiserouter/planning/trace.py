"""The facts of a decision, and which rule left out each model that could not be drawn.

`decide` keeps references to what it has at hand anyway; what is said of them is worked out when somebody asks.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

from wiserouter.budgets.funds import Funds
from wiserouter.learning.residuals.shift import Shift
from wiserouter.planning.choice_inputs import ContextFigures, ExplorationFigures
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.policies import Choice
from wiserouter.planning.reserve_rule import room_usd
from wiserouter.pricing.pool import Pool
from wiserouter.prompts.contexts import Contexts

EXPLORING = "exploring"
"""How the rule begins that left out a model because exploration tries another one first."""


class DecisionTrace(NamedTuple):
    """What one decision rested on.

    Attributes
    ----------
    pool, contexts : Pool and Contexts
        The models and contexts as they were.
    choice : Choice
        What was drawn, from which mix, on which estimates.
    funds : Funds
        Budget and requests left.
    eligible : set of int or None
        The models that caller and context windows admit; None for all.
    input_tokens : int or None
        Length of the query, where it was counted.
    worst_usd : list of float or None
        The most that a call of each model can cost, under a hard limit.
    room_usd : float or None
        The largest worst case that a hard limit still admits.
    shift : Shift or None
        How the query deviates from its context, where queries are judged one by one.
    """

    pool: Pool
    contexts: Contexts
    choice: Choice
    funds: Funds
    eligible: set[int] | None
    input_tokens: int | None
    worst_usd: list[float] | None
    room_usd: float | None
    shift: Shift | None = None

    @property
    def judged(self) -> bool:
        """Whether the models were weighed for this query, beyond the means of its context."""
        return self.shift is not None and self.choice.rule == "plan" and isinstance(self.choice.figures, ContextFigures)

    def of_query(self) -> DecisionTrace:
        """Return the same facts with the figures of this query in the place of its context's."""
        figures = self.choice.figures
        if not self.judged or self.shift is None or not isinstance(figures, ContextFigures):
            return self
        return self._replace(choice=self.choice._replace(figures=figures.shifted(self.shift)))


def on_envelope(facts: DecisionTrace, model: int) -> bool:
    """Return whether some budget uses the model in that context."""
    figures = facts.choice.figures
    return isinstance(figures, ContextFigures) and model in figures.envelope


def excluded_by(facts: DecisionTrace, model: int) -> str | None:
    """Return the rule that kept a model from being a candidate; None for a candidate, drawn or not.

    The rules are asked in the order in which `decide` applies them, of the facts that `of_query` returns.
    """
    if any(k == model for k, _ in facts.choice.mix):
        return None
    last = _worth_less if facts.judged else _off_envelope
    for rule in (_not_eligible, _too_dear_at_worst, _not_explored, _not_cheapest, _beyond_reserve, last):
        said = rule(facts, model)
        if said is not None:
            return said
    return None


def _not_eligible(facts: DecisionTrace, model: int) -> str | None:
    if facts.eligible is None or model in facts.eligible:
        return None
    if facts.pool.models[model].retired:
        return "retired"
    window, tokens = facts.pool.models[model].max_input_tokens, facts.input_tokens
    if window is not None and tokens is not None and tokens > window:
        return f"context window: needs {tokens} tokens, window {window}"
    return "not in eligible"


def _too_dear_at_worst(facts: DecisionTrace, model: int) -> str | None:
    if facts.worst_usd is None or facts.room_usd is None or facts.worst_usd[model] <= facts.room_usd:
        return None
    return f"hard limit: worst case {facts.worst_usd[model]:.6g} exceeds what is left, {facts.room_usd:.6g}"


def _not_explored(facts: DecisionTrace, model: int) -> str | None:
    figures = facts.choice.figures
    if facts.choice.rule != "explore" or not isinstance(figures, ExplorationFigures):
        return None
    least = min(figures.invoked[k] for k, _ in facts.choice.mix)
    return f"{EXPLORING}: tried {figures.invoked[model]:.0f} times here, others {least:.0f}"


def _not_cheapest(facts: DecisionTrace, model: int) -> str | None:  # noqa: ARG001
    return "budget used up: only the cheapest model goes on" if facts.choice.rule == "cheapest" else None


def _beyond_reserve(facts: DecisionTrace, model: int) -> str | None:
    figures = facts.choice.figures
    if not isinstance(figures, ContextFigures) or figures.guarded_cost_usd is None:
        return None
    cost, funds, floor = figures.guarded_cost_usd[model], facts.funds, facts.choice.floor_usd
    room = room_usd(funds, floor, figures.drift_margin_usd)
    if cost <= room:
        return None
    if figures.drift_margin_usd is not None or funds.each:
        return f"reserve rule: c > b - (tau - 1) c_min, less what is held back: {cost:.6g} > {room:.6g}"
    left, after = funds.left_usd, funds.requests - 1
    return f"reserve rule: c > b - (tau - 1) c_min: {cost:.6g} > {left:.6g} - {after} x {floor:.6g} = {room:.6g}"


def _worth_less(facts: DecisionTrace, model: int) -> str | None:
    figures, price, best = facts.choice.figures, facts.choice.shadow_price, facts.choice.mix[0][0]
    if not isinstance(figures, ContextFigures):
        return None
    name = "skipping" if best == SKIP else facts.pool.names[best]
    cost, gain = [*figures.costs_usd, 0.0], [*figures.weighed, 0.0]  # index -1 is the null action
    if math.isinf(price):
        return f"costs this query no less than {name}: {cost[model]:.6g}, {cost[best]:.6g}"
    mine, its = (gain[k] - price * cost[k] for k in (model, best))
    return f"worth no more to this query than {name}: {mine:.4g}, {its:.4g}"


def _off_envelope(facts: DecisionTrace, model: int) -> str | None:
    figures = facts.choice.figures
    if not isinstance(figures, ContextFigures) or model in figures.envelope:
        return None
    names = facts.pool.names
    reward, cost = figures.weighed[model], figures.costs_usd[model]
    better = [k for k in figures.envelope if figures.costs_usd[k] <= cost and figures.weighed[k] >= reward]
    if better:
        return f"dominated: not on the envelope, {names[better[-1]]} costs no more and scores no less"
    between = [(a, b) for a, b in pairwise(figures.envelope) if figures.costs_usd[a] <= cost <= figures.costs_usd[b]]
    mixed = [names[k] for k in between[0]] if between else ["skipping", names[figures.envelope[0]]]
    return f"dominated: not on the envelope, a mix of {' and '.join(mixed)} scores no less at its cost"
