"""Setup of the router of a `RunnableWiseRouter`: its pool of chat models, its budget and those of its scopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel

from wiserouter import Budget, Model, Price, Shadow, WiseRouter
from wiserouter.errors import InvalidInput, UnknownPrice
from wiserouter.integration import Unit, check_bounded, keep_conversations, prepare_router, split_arm, trace_decisions
from wiserouter_langchain.calls.call_environment import RoutingChatModel
from wiserouter_langchain.pool.pool_member import PoolMember, pool_member
from wiserouter_langchain.pool.wrapped_models import PLAIN, Wrapping, unwrapped

_ROUTER = "it is a router, which may call several models: put its models into this pool, or start the budget on it"
"""The reason why a hard budget cannot bound the calls of a router."""

_joining: ContextVar[str] = ContextVar("wiserouter_joining", default="")
"""The name of the model that the router learns of before it is a member of the pool."""


def pool_members(
    models: Mapping[str, BaseChatModel],
    router: WiseRouter | None,
    prices: Mapping[str, Price],
    output_version: str | None,
    wrappings: Mapping[str, Wrapping],
) -> dict[str, PoolMember]:
    """Return the members of a pool: prices are the caller's own, else the router's, else the catalogue's.

    Parameters
    ----------
    models : mapping of str to BaseChatModel
        The chat models by name.
    router : WiseRouter or None
        Fitted on history.
    prices : mapping of str to Price
        The caller's own prices.
    output_version : str or None
        A field of the runnable that its models have to honour.
    wrappings : mapping of str to Wrapping
        What was wrapped around models.
    """
    if not models:
        raise InvalidInput("models must hold at least one chat model, got none")
    fitted = {} if router is None else {model.name: model.price for model in router.pool.models}
    fields = {} if output_version is None else {"output_version": output_version}
    kept = {name: None if name in prices else fitted.get(name) for name in models}
    own = {name: prices.get(name) or (None if kept[name] else prices.get(split_arm(name).model)) for name in models}
    return {
        name: _member(
            name, model.model_copy(update=fields) if fields else model, own[name], wrappings.get(name), kept[name]
        )
        for name, model in models.items()
    }


def open_router(
    members: Mapping[str, PoolMember],
    router: WiseRouter | None,
    budget: Budget | None,
    cap_output_tokens: int | None,
    scopes: Mapping[str, Budget],
    shadow: Shadow | None = None,
    signals: Sequence[str] = (),
) -> WiseRouter:
    """Return the router with the members' prices and limits, a running budget, and those of scopes within it.

    Raises
    ------
    UnknownModel
        If the router has no model of some member's name.
    InvalidInput
        If there is no budget, no encoder where one is needed, or a limit of the output that leaves no token.
    UnknownPrice
        If the budget is hard, and nothing limits the output of a model.
    """
    if cap_output_tokens is not None and cap_output_tokens < 1:
        told = f"cap_output_tokens must be at least 1, or None for no limit, got {cap_output_tokens}"
        raise InvalidInput(told, value=cap_output_tokens)
    rate_cards = {name: member.rate_card for name, member in members.items()}
    router, hard = prepare_router(router, rate_cards, budget, shadow=shadow)
    if signals:
        router.signals = signals
    for scope, scope_budget in scopes.items():
        router.start(scope_budget, scope=scope, parent="default", restart=False)
    if hard or any(scope_budget.hard for scope_budget in scopes.values()):
        _check_bounded(members, cap_output_tokens)
    router.check_new_model = partial(_check_member, members)
    return router


def open_conversations(
    router: WiseRouter,
    members: Mapping[str, PoolMember],
    cap_output_tokens: int | None,
    unit: Unit | None,
    **settings: Any,
) -> Unit:
    """Let a router keep conversations as a chat model asks for, and return the unit of its calls.

    Parameters
    ----------
    router : WiseRouter
        The router.
    members : mapping of str to PoolMember
        The pool.
    cap_output_tokens : int or None
        The limit of the output where neither call nor model sets one.
    unit : {"call", "conversation", "run"} or None
        None for that of the router.
    **settings
        Of `Conversations`; None for that of the router, or the default.

    Raises
    ------
    InvalidInput
        If the settings contradict each other or those of the router.
    UnknownPrice
        If the budget of a run is hard, and nothing limits the output of a model.
    """
    unit = keep_conversations(router, unit, **settings)
    kept = router.conversations
    if unit != "call" and kept is not None and kept.has_hard_runs:
        _check_bounded(members, cap_output_tokens)
    return unit


def start_tracing(router: WiseRouter, *, on: bool) -> None:
    """Make a span of each decision from now on, where that is asked for."""
    if on:
        trace_decisions(router)


def add_member(
    router: WiseRouter,
    members: dict[str, PoolMember],
    name: str,
    model: object,
    price: Price | None,
    cap_output_tokens: int | None,
    reward: float | None,
    cost_usd: float | None,
) -> None:
    """Add a chat model to a running router and to its members; raises as `RunnableWiseRouter.add_model` does."""
    if name in members:
        raise InvalidInput(f"the name of a new model must be new, got {name!r}", value=name)
    inner, wrapping = unwrapped(name, model)
    member = _member(name, inner, price, None if wrapping == PLAIN else wrapping)
    if router.is_hard() or (router.conversations is not None and router.conversations.has_hard_runs):
        _check_bounded({name: member}, cap_output_tokens)
    joining = _joining.set(name)
    try:
        router.add_model(member.rate_card.model(name), reward=reward, cost_usd=cost_usd)
    finally:
        _joining.reset(joining)
    members[name] = member  # only now: calls choose among the members, and the router must know those


def _member(
    name: str,
    model: BaseChatModel,
    own_price: Price | None,
    wrapping: Wrapping | None,
    kept_price: Price | None = None,
) -> PoolMember:
    """Return a member of the pool; no hard budget bounds a router, whose models may fail one after another."""
    member = pool_member(name, model, own_price, wrapping, kept_price)
    return replace(member, unbounded=_ROUTER) if isinstance(model, RoutingChatModel) else member


def _check_bounded(members: Mapping[str, PoolMember], cap_output_tokens: int | None) -> None:
    """Raise `UnknownPrice` if a hard budget cannot bound the calls of a model."""
    for name, member in members.items():
        if member.unbounded:
            raise UnknownPrice(name, f"bound on the cost of a call, which a hard budget needs: {member.unbounded}")
    rate_cards = [(name, member.rate_card) for name, member in members.items()]
    caps = {name: cap_output_tokens for name, member in members.items() if member.can_be_capped}
    check_bounded(rate_cards, caps, "limit the output of the model, or give cap_output_tokens")


def _check_member(members: Mapping[str, PoolMember], model: Model) -> None:
    """Refuse a model behind which no chat model stands."""
    if model.name not in members and model.name != _joining.get():
        raise InvalidInput(
            f"no chat model stands behind {model.name!r}: add it with RunnableWiseRouter.add_model(name, model)",
            value=model.name,
        )
