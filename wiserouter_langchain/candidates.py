"""From what a call asks for to a decision: which models can take it, what it can cost, and which one does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter import Decision, WiseRouter
from wiserouter.errors import BudgetExhausted, NoEligibleModel, UnknownModel, UnknownPrice
from wiserouter.integration.context_lookup import ContextAssignment
from wiserouter_langchain.pool_member import PoolMember, about_tokens
from wiserouter_langchain.request import Ask
from wiserouter_langchain.routed_call import RoutedCall


def begin_call(
    core: WiseRouter,
    arms: Mapping[str, PoolMember],
    ask: Ask,
    placed: ContextAssignment,
    forced: str | None,
    preferred: str | None,
    cap_output_tokens: int | None,
    scope: str = "default",
) -> RoutedCall:
    """Decide, and hold back the cost of the call.

    Parameters
    ----------
    core : WiseRouter
        Decides.
    arms : mapping of str to PoolMember
        The pool.
    ask : Ask
        What the call asks for.
    placed : ContextAssignment
        Where its question falls.
    forced : str or None
        The only model that may take it.
    preferred : str or None
        The model that takes it if it can and the budget pays for it.
    cap_output_tokens : int or None
        The limit of the output where neither call nor model sets one.
    scope : str, default "default"
        Whose budget pays.

    Raises
    ------
    UnknownModel, NoEligibleModel, UnknownPrice
        If no model can take the call, or a hard budget cannot bound its cost.
    BudgetExhausted, HorizonExhausted, NotStarted
        If nothing pays for it.
    """
    names = able(arms, ask, forced)
    hard = core.is_hard(scope)
    worst = worst_cases_usd(arms, names, ask, cap_output_tokens) if hard else None
    pays: dict[str, Any] = {**placed._asdict(), "worst_case_usd": worst, "scope": scope}
    decision = _preferred(core, names, preferred, pays) or core.decide(**pays, eligible=names)
    return RoutedCall(core, decision, arms[decision.model], ask)


def able(arms: Mapping[str, PoolMember], ask: Ask, forced: str | None) -> list[str]:
    """Return the models that can take a call.

    Raises
    ------
    UnknownModel
        If the forced one is not in the pool.
    NoEligibleModel
        With the reason of each model, if there is none.
    """
    if forced is not None and forced not in arms:
        raise UnknownModel(forced, arms)
    windows = [arm.max_input_tokens for arm in arms.values() if arm.max_input_tokens is not None]
    tight = any(window < ask.at_most_tokens for window in windows) or bool(ask.media)
    about = about_tokens(ask) if tight else 0  # a text of fewer bytes than the window has tokens fits uncounted
    reasons = {name: arm.can_take(ask, about) for name, arm in arms.items() if forced in {None, name}}
    names = [name for name, reason in reasons.items() if reason is None]
    if not names:
        raise NoEligibleModel({name: reason or "" for name, reason in reasons.items()})
    return names


def worst_cases_usd(
    arms: Mapping[str, PoolMember], names: list[str], ask: Ask, cap_output_tokens: int | None
) -> dict[str, float]:
    """Return the most that a call can cost with each model; raises `UnknownPrice` where nothing bounds any."""
    worst = {name: arms[name].worst_case_usd(ask, cap_output_tokens) for name in names}
    if min(worst.values()) == float("inf"):
        raise UnknownPrice(names[0], "bound on the cost of this call: limit the output, or send no media")
    return worst


def _preferred(core: WiseRouter, names: list[str], preferred: str | None, pays: dict[str, Any]) -> Decision | None:
    if preferred not in names:
        return None
    try:
        return core.decide(**pays, eligible=[preferred])
    except BudgetExhausted:
        return None
