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
    forced : str or None
        The only model that may take it.
    preferred : str or None
        The model that takes it if it can and the budget pays for it.
    cap_output_tokens : int or None
        The limit of the output where neither call nor model sets one.
    scope : str, default "default"
        The scope whose budget pays.
    may_wait : bool, default False
        As in `WiseRouter.decide`.

    Raises
    ------
    UnknownModel, NoEligibleModel, UnknownPrice
        If no model can take the call, or a hard budget cannot bound its cost.
    BudgetExhausted, HorizonExhausted, NotStarted
        If no budget pays for it.
    """
    bound_tokens = request.input_bound_tokens
    names = candidates(members, request, bound_tokens, forced)
    worst_usd = None
    if router.is_hard(scope):
        worst_usd = worst_cases_usd(members, names, request, bound_tokens, cap_output_tokens)
    terms: dict[str, Any] = {**assignment._asdict(), "worst_case_usd": worst_usd, "scope": scope}
    decision = _decide_preferred(router, names, preferred, terms)
    if decision is None:
        decision = router.decide(**terms, eligible=names, may_wait=may_wait)
    return RoutedCall(router, decision, members[decision.model], request)


def needed_usd(
    router: WiseRouter,
    members: Mapping[str, PoolMember],
    request: CallRequest,
    forced: str | None,
    cap_output_tokens: int | None,
    scope: str = "default",
) -> float:
    """Return the least worst case of a call; 0 where no limit is hard. Parameters and errors are those above."""
    if not router.is_hard(scope):
        return 0.0
    bound_tokens = request.input_bound_tokens
    names = candidates(members, request, bound_tokens, forced)
    return min(worst_cases_usd(members, names, request, bound_tokens, cap_output_tokens).values())


def candidates(
    members: Mapping[str, PoolMember], request: CallRequest, bound_tokens: int, forced: str | None
) -> list[str]:
    """Return the models that can take a call of at most `bound_tokens` input tokens of text.

    Raises
    ------
    UnknownModel
        If the forced one is not in the pool.
    NoEligibleModel
        With the reason of each model, if there is none.
    """
    if forced is not None and forced not in members:
        raise UnknownModel(forced, members)
    names = list(members) if forced is None else [forced]
    windows = [window for name in names if (window := members[name].rate_card.max_input_tokens) is not None]
    may_exceed = bool(request.media) or bound_tokens > min(windows, default=bound_tokens)
    if not (may_exceed or request.tools or request.structured):
        return names  # plain text that fits every window
    tokens = about_tokens(request) if may_exceed else 0
    reasons = {name: members[name].can_take(request, tokens) for name in names}
    able = [name for name, reason in reasons.items() if reason is None]
    if not able:
        raise NoEligibleModel({name: reason or "" for name, reason in reasons.items()})
    return able


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
