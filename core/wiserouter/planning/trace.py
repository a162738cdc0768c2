"""The trace of a decision: its inputs, and the rule that excluded each model that could not be drawn.

`decide` only keeps references to its inputs; explanations are computed from them on request.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

from wiserouter.budgets.funds import Funds
from wiserouter.planning.choice_inputs import ContextFigures
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.mixture import room_usd
from wiserouter.planning.policies import Choice
from wiserouter.planning.shift import Shift
from wiserouter.pricing.pool import Pool
from wiserouter.prompts.contexts import Contexts

EXPLORING = "exploring"
"""First word of the rule that excluded a model because exploration tries another one first."""


_ONE_MODEL = {
    "first": "no call was paid for yet: only the cheapest model is called",
    "cheapest": "budget used up: only the cheapest model goes on",
    "hold": "another model holds the run",
}
"""The rules that leave one model, and why the others are excluded."""


class DecisionTrace(NamedTuple):
    """The inputs of one decision.

    Attributes
    ----------
    pool, contexts : Pool and Contexts
        The models and contexts at that time.
    choice : Choice
        The drawn model, its mix and the figures behind it.
    funds : Funds
        Budget and requests left.
    eligible : set of int or None
        The models that the caller and their context windows admit; None for all.
    input_tokens : int or None
        Length of the query, where it was counted.
    worst_usd : list of float or None
        The most that a call of each model can cost, under a hard limit.
    room_usd : float or None
        The largest worst case that a hard limit still admits.
    shift : Shift or None
        The deviation of the query from its context, where single queries are estimated.
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
    def shifted(self) -> bool:
        """True if the models were compared by estimates of this query instead of the means of its context."""
        return self.shift is not None and self.choice.rule == "plan" and self.choice.figures is not None

    def of_query(self) -> DecisionTrace:
        """Return the same trace with the figures of this query in place of those of its context."""
        figures, shift = self.choice.figures, self.shift
        if not self.shifted or figures is None or shift is None:
            return self
        return self._replace(choice=self.choice._replace(figures=figures.shifted(shift)))


def on_envelope(trace: DecisionTrace, model: int) -> bool:
    """Return True if some budget uses the model in that context."""
    figures = trace.choice.figures
    return figures is not None and model in figures.envelope


def excluded_by(trace: DecisionTrace, model: int) -> str | None:
    """Return the rule that excluded a model from the mix; None for a model in the mix, drawn or not.

    The rules are tried in the order in which `decide` applies them, on the trace that `of_query` returns.
    """
    if any(k == model for k, _ in trace.choice.mix):
        return None
    figures, rule = trace.choice.figures, trace.choice.rule
    reason = _not_eligible(trace, model) or _beyond_limit(trace, model) or _ONE_MODEL.get(rule)
    if reason is not None or figures is None:
        return reason
    if figures.invoked is not None:
        least = min(figures.invoked[k] for k, _ in trace.choice.mix)
        return f"{EXPLORING}: tried {figures.invoked[model]:.0f} times here, others {least:.0f}"
    last = _off_prices if trace.choice.limited is not None else _worth_less if trace.shifted else _off_envelope
    return _beyond_reserve(trace, figures, model) or last(trace, figures, model)


def _not_eligible(trace: DecisionTrace, model: int) -> str | None:
    if trace.eligible is None or model in trace.eligible:
        return None
    if trace.pool.models[model].retired:
        return "retired"
    window, tokens = trace.pool.models[model].max_input_tokens, trace.input_tokens
    if window is not None and tokens is not None and tokens > window:
        return f"context window: needs {tokens} tokens, window {window}"
    return "not in eligible"


def _beyond_limit(trace: DecisionTrace, model: int) -> str | None:
    if trace.worst_usd is None or trace.room_usd is None or trace.worst_usd[model] <= trace.room_usd:
        return None
    return f"hard limit: worst case {trace.worst_usd[model]:.6g} exceeds what is left, {trace.room_usd:.6g}"


def _beyond_reserve(trace: DecisionTrace, figures: ContextFigures, model: int) -> str | None:
    if figures.guarded_cost_usd is None:
        return None
    cost, funds, floor = figures.guarded_cost_usd[model], trace.funds, trace.choice.floor_usd
    room = room_usd(funds, floor, figures.drift_margin_usd)
    if cost <= room:
        return None
    if figures.drift_margin_usd is not None or funds.each:
        return f"reserve rule: c > b - (tau - 1) c_min, less what is held back: {cost:.6g} > {room:.6g}"
    left, after = funds.left_usd, funds.requests - 1
    return f"reserve rule: c > b - (tau - 1) c_min: {cost:.6g} > {left:.6g} - {after} x {floor:.6g} = {room:.6g}"


def _worth_less(trace: DecisionTrace, figures: ContextFigures, model: int) -> str:
    price, best = trace.choice.shadow_price, trace.choice.mix[0][0]
    name = "skipping" if best == SKIP else trace.pool.names[best]
    cost, gain = [*figures.costs_usd, 0.0], [*figures.weighed, 0.0]  # index -1 is the null action
    if math.isinf(price):
        return f"costs this query no less than {name}: {cost[model]:.6g}, {cost[best]:.6g}"
    mine, its = (gain[k] - price * cost[k] for k in (model, best))
    return f"worth no more to this query than {name}: {mine:.4g}, {its:.4g}"


def _off_prices(trace: DecisionTrace, figures: ContextFigures, model: int) -> str | None:  # noqa: ARG001
    limited, best = trace.choice.limited, trace.choice.mix[0][0]
    if limited is None:
        return None
    name = "skipping" if best == SKIP else trace.pool.names[best]
    prices = ", ".join(f"{of} {price:.4g}" for of, price in zip(limited.names, limited.prices, strict=True) if price)
    return f"worth no more than {name} at the prices of budget and limits: {prices or 'all 0'}"


def _off_envelope(trace: DecisionTrace, figures: ContextFigures, model: int) -> str | None:
    if model in figures.envelope:
        return None
    names = trace.pool.names
    reward, cost = figures.weighed[model], figures.costs_usd[model]
    better = [k for k in figures.envelope if figures.costs_usd[k] <= cost and figures.weighed[k] >= reward]
    if better:
        return f"dominated: not on the envelope, {names[better[-1]]} costs no more and scores no less"
    between = [(a, b) for a, b in pairwise(figures.envelope) if figures.costs_usd[a] <= cost <= figures.costs_usd[b]]
    mixed = [names[k] for k in between[0]] if between else ["skipping", names[figures.envelope[0]]]
    return f"dominated: not on the envelope, a mix of {' and '.join(mixed)} scores no less at its cost"
