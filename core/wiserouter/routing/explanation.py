"""Explanations of decisions: the context, the account at that moment, and each model with its figures or its rule."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from wiserouter.planning.envelope import SKIP
from wiserouter.planning.policies import Rule
from wiserouter.planning.trace import DecisionTrace, excluded_by, on_envelope
from wiserouter.prompts.contexts import Contexts, ContextSummary
from wiserouter.routing.unspent import why_no_more
from wiserouter.stores import Record
from wiserouter.stores.base import State
from wiserouter.types import NO_CONTEXT, Decision


@dataclass(frozen=True, slots=True)
class ExplainedContext:
    """The context of the query.

    Attributes
    ----------
    id : int
        The context; `NO_CONTEXT` if the query could not be assigned.
    share : float or None
        Share of the fitted traffic that falls there; None if the contexts of that moment are no longer known.
    terms, typical_prompts : tuple of str
        Its characteristic words, and ids of the prompts nearest to its centroid.
    """

    id: int
    share: float | None
    terms: tuple[str, ...]
    typical_prompts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExplainedModel:
    """One model of the pool at that moment.

    Attributes
    ----------
    name : str
        The model.
    on_envelope : bool
        True if some budget uses it in this context.
    probability : float
        Probability with which it was drawn at that rate.
    expected_reward, expected_cost_usd : float or None
        The estimates: for this query if single queries are estimated, else for its context; None before anything is
        known.
    optimistic_reward : float or None
        The upper confidence bound that the choice used, if it did not use the mean.
    worth : float or None
        That reward less shadow price x cost, which the plan maximises; None if the rate pays for the cheapest only.
    labels, calls : int
        Number of rewards and costs of this context behind the estimates.
    worst_case_usd : float or None
        Bound on the cost of this call, if a hard limit needed one and there is one.
    excluded_by : str or None
        The rule that excluded it; None for a candidate.
    """

    name: str
    on_envelope: bool
    probability: float
    expected_reward: float | None
    expected_cost_usd: float | None
    optimistic_reward: float | None
    worth: float | None
    labels: int
    calls: int
    worst_case_usd: float | None
    excluded_by: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with all its figures as of the moment when it was made, and the outcome of its call.

    Attributes
    ----------
    id, model, scope, decided_at
        As in `Decision`.
    rule : {"plan", "explore", "first", "cheapest", "hold"}
        The rule that chose: the plan's mix, exploration, the cheapest model until a call was paid for or of a budget
        that is used up, or the model that holds its run.
    context : ExplainedContext
        The context of the query.
    probability : float
        Probability with which the model was drawn.
    skip_probability : float
        Probability of the null action.
    rate_usd : float
        Budget left per request left.
    shadow_price : float or None
        Reward per USD at the margin; None if the rate pays for the cheapest models only.
    left_usd, requests_left : float and int
        Budget and requests left, b and tau.
    room_usd : float or None
        The largest worst case that a hard limit still admitted; None under an expected limit.
    input_tokens : int or None
        Length of the query, if it was counted.
    expected_cost_usd, expected_reward, reserved_usd, ask_feedback
        As in `Decision`.
    state : {"in flight", "charged", "released", "presumed"}
        State of the call.
    answered_by : str
        The model that answered, once charged; until then the chosen one.
    cost_usd, reward : float or None
        True cost and latest score, once known; the cost at which a presumed call counts.
    models : tuple of ExplainedModel
        The whole pool; empty if the store does not keep the trace of a decision.
    conversation, visit, run_id, value
        As in `Decision`.
    unspent : str or None
        Why more money would not have changed the decision, and what would help; None where it would have.
    warnings : tuple of str
        What speaks against the scores that the router has learned from: a judge that prefers cheap models.
    prices : dict of str to float
        Under limits beside the budget: reward per unit of the budget and of each limit at the margin. The worth of a
        model is then its reward less all prices x uses, by the means of the context.
    """

    id: str
    model: str
    scope: str
    decided_at: float
    rule: Rule
    context: ExplainedContext
    probability: float
    skip_probability: float
    rate_usd: float
    shadow_price: float | None
    left_usd: float | None
    requests_left: int | None
    room_usd: float | None
    input_tokens: int | None
    expected_cost_usd: float
    expected_reward: float
    reserved_usd: float
    ask_feedback: bool
    state: State
    answered_by: str
    cost_usd: float | None
    reward: float | None
    models: tuple[ExplainedModel, ...]
    conversation: str = ""
    visit: str = ""
    run_id: str = ""
    unspent: str | None = None
    warnings: tuple[str, ...] = ()
    value: float = 1.0
    prices: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as dictionaries, lists and numbers, for JSON."""
        fields = asdict(self)
        fields["context"] |= {name: list(fields["context"][name]) for name in ("terms", "typical_prompts")}
        return {**fields, "models": list(fields["models"]), "warnings": list(fields["warnings"])}


def explanation_of(record: Record, contexts: Contexts | None) -> Explanation:
    """Return the explanation of a recorded decision, with the outcome of its call.

    Parameters
    ----------
    record : Record
        The decision.
    contexts : Contexts or None
        Describe a decision whose trace was not kept; None if contexts have changed since, or are another worker's.
    """
    decision, trace = record.decision, record.trace
    known = (record.state, record.name, record.cost_usd, record.reward)
    return _explained(decision, trace, contexts if trace is None else trace.contexts, *known)


def figures_of_decision(decision: Decision, trace: DecisionTrace) -> dict[str, Any]:
    """Return the figures of a decision for the journal: no text, no words of the context, no outcome."""
    explained = _explained(decision, trace, trace.contexts, "in flight", decision.model, None, None).as_dict()
    context = explained.pop("context")
    for later in ("state", "answered_by", "cost_usd", "reward"):
        del explained[later]
    if not explained["prices"]:
        del explained["prices"]
    return {**explained, "context": {name: context[name] for name in ("id", "share")}}


def _explained(
    decision: Decision,
    trace: DecisionTrace | None,
    contexts: Contexts | None,
    state: State,
    answered_by: str,
    cost_usd: float | None,
    reward: float | None,
) -> Explanation:
    trace = None if trace is None else trace.of_query()
    mix = {} if trace is None else dict(trace.choice.mix)
    return Explanation(
        id=decision.id,
        model=decision.model,
        scope=decision.scope,
        decided_at=decision.decided_at,
        rule="plan" if trace is None else trace.choice.rule,
        context=_context(contexts, decision.context),
        probability=decision.probability,
        skip_probability=mix.get(SKIP, 0.0),
        rate_usd=decision.rate_usd,
        shadow_price=_finite(decision.shadow_price),
        left_usd=None if trace is None else trace.funds.left_usd,
        requests_left=None if trace is None else trace.funds.requests,
        room_usd=None if trace is None else trace.room_usd,
        input_tokens=None if trace is None else trace.input_tokens,
        expected_cost_usd=decision.expected_cost_usd,
        expected_reward=decision.expected_reward,
        reserved_usd=decision.reserved_usd,
        ask_feedback=decision.ask_feedback,
        state=state,
        answered_by=answered_by,
        cost_usd=cost_usd,
        reward=reward,
        models=() if trace is None else tuple(_model(trace, mix, k, decision.context) for k in range(len(trace.pool))),
        conversation=decision.conversation,
        visit=decision.visit,
        run_id=decision.run_id,
        unspent=None if trace is None else _unspent(trace),
        value=decision.value,
        prices={} if trace is None else _prices(trace),
    )


def _prices(trace: DecisionTrace) -> dict[str, float]:
    """Return the prices of budget and limits; none without limits."""
    limited = trace.choice.limited
    return {} if limited is None else dict(zip(limited.names, limited.prices, strict=True))


def _unspent(trace: DecisionTrace) -> str | None:
    """Return why more money would not change the decision of a plan; None where it would."""
    choice = trace.choice
    if choice.limited is not None or choice.rule != "plan" or choice.shadow_price != 0.0 or choice.figures is None:
        return None
    return why_no_more(choice.figures, trace.pool.names)


def _context(contexts: Contexts | None, context: int) -> ExplainedContext:
    if context == NO_CONTEXT or contexts is None:
        return ExplainedContext(context, 1.0 if context == NO_CONTEXT else None, *ContextSummary())
    return ExplainedContext(context, float(contexts.freq[context]), *contexts.summary(context))


def _model(trace: DecisionTrace, mix: dict[int, float], k: int, context: int) -> ExplainedModel:
    figures, price = trace.choice.figures, trace.choice.shadow_price
    reward, cost = (None, None) if figures is None else figures.means(k)
    planned = None if figures is None else figures.planned
    weighed = reward if planned is None else planned[k]
    limited = trace.choice.limited is not None
    known = weighed is not None and cost is not None and math.isfinite(price)
    return ExplainedModel(
        name=trace.pool.names[k],
        on_envelope=on_envelope(trace, k),
        probability=mix.get(k, 0.0),
        expected_reward=reward,
        expected_cost_usd=cost,
        optimistic_reward=None if planned is None else planned[k],
        worth=_worth(trace, k, context) if limited else weighed - price * cost if known else None,  # type: ignore[operator]
        labels=0 if figures is None else round(figures.labels[k]),
        calls=0 if figures is None else round(figures.calls[k]),
        worst_case_usd=None if trace.worst_usd is None else _finite(trace.worst_usd[k]),
        excluded_by=excluded_by(trace, k),
    )


def _worth(trace: DecisionTrace, k: int, context: int) -> float | None:
    """Return the worth of a model in its context at the prices of budget and limits."""
    limited = trace.choice.limited
    return None if limited is None or context == NO_CONTEXT else float(limited.worth[context, k])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
