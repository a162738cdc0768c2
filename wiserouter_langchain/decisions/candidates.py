"""The decision on a call: its candidates, the bound on its cost with each of them, and the one that is chosen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage

from wiserouter import Decision, WiseRouter
from wiserouter.errors import BudgetExhausted, NoEligibleModel, UnknownModel, UnknownPrice
from wiserouter.integration import CallRequest, ContextAssignment
from wiserouter_langchain.decisions.conversation_call import CallConversation
from wiserouter_langchain.decisions.routed_call import RoutedCall
from wiserouter_langchain.pool.pool_member import PoolMember, about_tokens
from wiserouter_langchain.requests.limits import OUTPUT_LIMITS, CallLimits, bounded_limits


@dataclass(frozen=True, slots=True)
class CallTerms:
    """The terms of a decision that do not follow from the question.

    Attributes
    ----------
    kwargs : mapping
        The caller's keyword arguments, and the queued operations.
    messages : sequence of BaseMessage
        The conversation.
    forced : str or None
        The only model that may take the call.
    preferred : str or None
        The model that takes it if it can and the budget pays for it.
    cap_output_tokens : int or None
        The limit of the output where neither call nor model sets one.
    scope : str
        The scope whose budget pays.
    failed : collection of str
        The models that have failed this call.
    resting : collection of str
        The models that have failed other calls a short time ago: they are left out where the budget pays for others
        that can take the call.
    draw_key : str or None
        The key by which its model is drawn.
    conversation : CallConversation or None
        The conversation that it belongs to; None for a call of its own.
    value : float or None
        Its value; None for 1.
    """

    kwargs: Mapping[str, Any] = field(default_factory=dict)
    messages: Sequence[BaseMessage] = ()
    forced: str | None = None
    preferred: str | None = None
    cap_output_tokens: int | None = None
    scope: str = "default"
    failed: Collection[str] = ()
    resting: Collection[str] = ()
    draw_key: str | None = None
    conversation: CallConversation | None = None
    value: float | None = None


def begin_call(
    router: WiseRouter,
    members: Mapping[str, PoolMember],
    request: CallRequest,
    assignment: ContextAssignment,
    terms: CallTerms,
    *,
    may_wait: bool = False,
) -> RoutedCall:
    """Decide on a call and reserve its cost.

    Parameters
    ----------
    router : WiseRouter
        Decides.
    members : mapping of str to PoolMember
        The pool.
    request : CallRequest
        The call.
    assignment : ContextAssignment
        The context of its question.
    terms : CallTerms
        What else bears on the decision.
    may_wait : bool, default False
        As in `WiseRouter.decide`.

    Raises
    ------
    UnknownModel, NoEligibleModel, UnknownPrice
        If no model can take the call, or a hard budget cannot bound its cost.
    InvalidInput
        If the budget is hard, and a setting of the call may change its cost.
    BudgetExhausted, HorizonExhausted, NotStarted
        If no budget pays for it.
    """
    members = at_present_prices(router, members)
    limits = _hard_limits(router, terms)
    if limits is not None:
        request = _bounded(request, limits)
    bound_tokens = request.input_bound_tokens if limits is not None or _has_windows(members) else 0
    names = candidates(members, request, bound_tokens, terms)
    worst_usd = None
    if limits is not None:
        worst_usd = worst_cases_usd(members, names, request, bound_tokens, terms.cap_output_tokens)
    asked: dict[str, Any] = {**assignment._asdict(), "worst_case_usd": worst_usd, "scope": terms.scope}
    asked["draw_key"], asked["value"] = terms.draw_key, terms.value
    if terms.conversation is not None:
        asked.update(terms.conversation.arguments())
    awake = [name for name in names if name not in terms.resting]
    decision = _decide_preferred(router, awake or names, terms.preferred, asked)
    if decision is None and 0 < len(awake) < len(names):
        decision = _decide_if_paid(router, awake, asked)
    if decision is None:
        decision = router.decide(**asked, eligible=names, may_wait=may_wait)
    return RoutedCall(router, decision, members[decision.model], request, limits)


def needed_usd(router: WiseRouter, members: Mapping[str, PoolMember], request: CallRequest, terms: CallTerms) -> float:
    """Return the least worst case of a call; 0 where no limit is hard. Parameters and errors are those above."""
    limits = _hard_limits(router, terms)
    if limits is None:
        return 0.0
    members, request = at_present_prices(router, members), _bounded(request, limits)
    bound_tokens = request.input_bound_tokens
    names = candidates(members, request, bound_tokens, terms)
    return min(worst_cases_usd(members, names, request, bound_tokens, terms.cap_output_tokens).values())


def at_present_prices(router: WiseRouter, members: Mapping[str, PoolMember]) -> dict[str, PoolMember]:
    """Return the members at the router's prices, which an operator may change; others may be added meanwhile."""
    present = dict(members)  # before the pool, which has each of them
    models = router.pool.by_name
    return {name: member.at_price(models[name].price) for name, member in present.items()}


def _hard_limits(router: WiseRouter, terms: CallTerms) -> CallLimits | None:
    """Return the limits of a call under a hard budget, or in a run that has one; None under an expected one."""
    hard = router.is_hard(terms.scope)
    if terms.conversation is not None and router.conversations is not None:
        hard = hard or router.conversations.has_hard_runs
    return bounded_limits(terms.kwargs, terms.messages) if hard else None


def _has_windows(members: Mapping[str, PoolMember]) -> bool:
    """Return True if the context window of a model is known."""
    return any(member.rate_card.max_input_tokens is not None for member in members.values())


def _bounded(request: CallRequest, limits: CallLimits) -> CallRequest:
    return request._replace(output_tokens=limits.output_tokens, choices=limits.answers or 1)


def candidates(
    members: Mapping[str, PoolMember], request: CallRequest, bound_tokens: int, terms: CallTerms
) -> list[str]:
    """Return the models that can take a call of at most `bound_tokens` input tokens of text.

    Raises
    ------
    UnknownModel
        If the forced one is not in the pool.
    NoEligibleModel
        With the reason of each model, if there is none.
    """
    if terms.forced is not None and terms.forced not in members:
        raise UnknownModel(terms.forced, members)
    asked = _agreeing(members, terms.kwargs) if terms.forced is None else [terms.forced]
    names = [name for name in asked if name not in terms.failed]
    windows = [window for name in names if (window := members[name].rate_card.max_input_tokens) is not None]
    may_exceed = not request.countable or bound_tokens > min(windows, default=bound_tokens)
    able = names
    if may_exceed or request.tools or request.structured:  # not plain text that fits every window
        tokens = about_tokens(request) if may_exceed else 0
        reasons = {name: members[name].can_take(request, tokens) for name in names}
        able = [name for name, reason in reasons.items() if reason is None]
        if not able and reasons:
            raise NoEligibleModel({name: reason or "" for name, reason in reasons.items()})
    if not able:
        raise NoEligibleModel(dict.fromkeys(asked, "failed"))
    return able


def _agreeing(members: Mapping[str, PoolMember], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the models, and of the arms of each those that say what a call does, apart from limits of the output.

    Where no arm does, the plain model, or else the first arm, is called as the call says.
    """
    if not kwargs:
        return list(members)
    families: dict[str, list[PoolMember]] = {}
    for member in members.values():
        families.setdefault(member.family, []).append(member)
    kept: set[str] = set()
    for arms in families.values():
        names = {name for arm in arms for name in arm.params if name not in OUTPUT_LIMITS}
        said = {name: value for name in names if (value := kwargs.get(name)) is not None}
        agreeing = [arm for arm in arms if all(arm.params.get(name) == value for name, value in said.items())]
        kept.update(arm.name for arm in agreeing or [min(arms, key=lambda arm: bool(arm.params))])
    return [name for name in members if name in kept]


def worst_cases_usd(
    members: Mapping[str, PoolMember],
    names: list[str],
    request: CallRequest,
    bound_tokens: int,
    cap_output_tokens: int | None,
) -> dict[str, float]:
    """Return the most that a call can cost with each model; raises `UnknownPrice` if all of them are unbounded."""
    worst_usd = {name: members[name].worst_case_usd(request, bound_tokens, cap_output_tokens) for name in names}
    if min(worst_usd.values()) == float("inf"):
        reason = members[names[0]].unbounded
        remedy = f"{reason}, which a hard budget cannot bound" if reason else "limit the output, or send no media"
        raise UnknownPrice(names[0], f"bound on the cost of this call: {remedy}")
    return worst_usd


def _decide_preferred(
    router: WiseRouter, names: list[str], preferred: str | None, asked: dict[str, Any]
) -> Decision | None:
    return _decide_if_paid(router, [preferred], asked) if preferred in names else None


def _decide_if_paid(router: WiseRouter, names: list[str], asked: dict[str, Any]) -> Decision | None:
    """Decide among some of the models; None where the budget pays for none of them."""
    try:
        return router.decide(**asked, eligible=names)
    except BudgetExhausted:
        return None
