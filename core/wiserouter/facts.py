"""The facts of a decision, and which rule left out each model that could not be drawn.

`decide` keeps references to what it has at hand anyway; what is said of them is worked out when somebody asks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from wiserouter.budget import Funds
from wiserouter.policies import Choice
from wiserouter.policies.basis import Basis, Trials
from wiserouter.pool import Pool


class Facts(NamedTuple):
    """What one decision rested on.

    Attributes
    ----------
    pool : Pool
        The models as they were.
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
    """

    pool: Pool
    choice: Choice
    funds: Funds
    eligible: set[int] | None
    input_tokens: int | None
    worst_usd: list[float] | None
    room_usd: float | None


def on_envelope(facts: Facts, model: int) -> bool:
    """Return whether some budget uses the model in that context."""
    basis = facts.choice.basis
    return isinstance(basis, Basis) and model in basis.envelope


def excluded_by(facts: Facts, model: int) -> str | None:
    """Return the rule that kept a model from being a candidate; None for a candidate, drawn or not.

    The rules are asked in the order in which `decide` applies them.
    """
    if any(k == model for k, _ in facts.choice.mix):
        return None
    for rule in (_not_eligible, _too_dear_at_worst, _not_explored, _not_cheapest, _beyond_reserve, _off_envelope):
        said = rule(facts, model)
        if said is not None:
            return said
    return None


def _not_eligible(facts: Facts, model: int) -> str | None:
    if facts.eligible is None or model in facts.eligible:
        return None
    window, tokens = facts.pool.models[model].max_input_tokens, facts.input_tokens
    if window is not None and tokens is not None and tokens > window:
        return f"context window: needs {tokens} tokens, window {window}"
    return "not in eligible"


def _too_dear_at_worst(facts: Facts, model: int) -> str | None:
    if facts.worst_usd is None or facts.room_usd is None or facts.worst_usd[model] <= facts.room_usd:
        return None
    return f"hard limit: worst case {facts.worst_usd[model]:.6g} exceeds what is left, {facts.room_usd:.6g}"


def _not_explored(facts: Facts, model: int) -> str | None:
    basis = facts.choice.basis
    if facts.choice.rule != "explore" or not isinstance(basis, Trials):
        return None
    least = min(basis.invoked[k] for k, _ in facts.choice.mix)
    return f"exploring: tried {basis.invoked[model]:.0f} times here, others {least:.0f}"


def _not_cheapest(facts: Facts, model: int) -> str | None:  # noqa: ARG001
    return "budget used up: only the cheapest model goes on" if facts.choice.rule == "cheapest" else None


def _beyond_reserve(facts: Facts, model: int) -> str | None:
    basis = facts.choice.basis
    if not isinstance(basis, Basis) or basis.cautious_usd is None:
        return None
    cost, (left, requests) = basis.cautious_usd[model], facts.funds
    room = left - (requests - 1) * basis.floor_usd
    if cost <= room:
        return None
    return (
        f"reserve rule: c > b - (tau - 1) c_min: {cost:.6g} > {left:.6g} - {requests - 1} x {basis.floor_usd:.6g} "
        f"= {room:.6g}"
    )


def _off_envelope(facts: Facts, model: int) -> str | None:
    basis = facts.choice.basis
    if not isinstance(basis, Basis) or model in basis.envelope:
        return None
    names = facts.pool.names
    reward, cost = basis.means(model)
    better = [k for k in basis.envelope if basis.costs_usd[k] <= cost and basis.rewards[k] >= reward]
    if better:
        return f"dominated: not on the envelope, {names[better[-1]]} costs no more and scores no less"
    between = [(a, b) for a, b in pairwise(basis.envelope) if basis.costs_usd[a] <= cost <= basis.costs_usd[b]]
    mixed = [names[k] for k in between[0]] if between else ["skipping", names[basis.envelope[0]]]
    return f"dominated: not on the envelope, a mix of {' and '.join(mixed)} scores no less at its cost"
