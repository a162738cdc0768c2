"""The decision on a call: its candidates, the bound on its cost with each of them, and the one that is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter import Decision, WiseRouter
from wiserouter.errors import BudgetExhausted, NoEligibleModel, UnknownModel, UnknownPrice
from wiserouter.integration import CallRequest, ContextAssignment
from wiserouter_langchain.pool_member import PoolMember, about_tokens
from wiserouter_langchain.routed_call import RoutedCall


def begin_call(
    router: WiseRouter,
    members: Mapping[str, PoolMember],
    request: CallRequest,
    assignment: ContextAssignment,
    forced: str | None,
    preferred: str | None,
    cap_output_tokens: int | None,
    scope: str = "default",
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
    forced : str or None
        The only model that may take it.
    preferred : str or None
        The model that takes it if it can and the budget pays for it.
    cap_output_tokens : int or None
        The limit of the output where neither call nor model sets one.
    scope : str, default "default"
        The scope whose budget pays.

    Raises
    ------
    UnknownModel, NoEligibleModel, UnknownPrice
        If no model can take the call, or a hard budget cannot bound its cost.
    BudgetExhausted, HorizonExhausted, NotStarted
        If no budget pays for it.
    """
    names = candidates(members, request, forced)
    worst_usd = worst_cases_usd(members, names, request, cap_output_tokens) if router.is_hard(scope) else None
    terms: dict[str, Any] = {**assignment._asdict(), "worst_case_usd": worst_usd, "scope": scope}
    decision = _decide_preferred(router, names, preferred, terms) or router.decide(**terms, eligible=names)
    return RoutedCall(router, decision, members[decision.model], request)


def candidates(members: Mapping[str, PoolMember], request: CallRequest, forced: str | None) -> list[str]:
    """Return the models that can take a call.

    Raises
    ------
    UnknownModel
        If the forced one is not in the pool.
    NoEligibleModel
        With the reason of each model, if there is none.
    """
    if forced is not None and forced not in members:
        raise UnknownModel(forced, members)
    windows = [window for member in members.values() if (window := member.rate_card.max_input_tokens) is not None]
    # a text of fewer bytes than every window has tokens fits without being counted
    may_exceed = bool(request.media) or any(window < request.input_bound_tokens for window in windows)
    tokens = about_tokens(request) if may_exceed else 0
    reasons = {name: member.can_take(request, tokens) for name, member in members.items() if forced in {None, name}}
    names = [name for name, reason in reasons.items() if reason is None]
    if not names:
        raise NoEligibleModel({name: reason or "" for name, reason in reasons.items()})
    return names


def worst_cases_usd(
    members: Mapping[str, PoolMember], names: list[str], request: CallRequest, cap_output_tokens: int | None
) -> dict[str, float]:
    """Return the most that a call can cost with each model; raises `UnknownPrice` where nothing bounds any."""
    worst_usd = {name: members[name].worst_case_usd(request, cap_output_tokens) for name in names}
    if min(worst_usd.values()) == float("inf"):
        raise UnknownPrice(names[0], "bound on the cost of this call: limit the output, or send no media")
    return worst_usd


def _decide_preferred(
    router: WiseRouter, names: list[str], preferred: str | None, terms: dict[str, Any]
) -> Decision | None:
    if preferred not in names:
        return None
    try:
        return router.decide(**terms, eligible=[preferred])
    except BudgetExhausted:
        return None
