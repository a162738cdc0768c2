"""Setup of the router of a `RunnableWiseRouter`: its pool of chat models, its budget and those of its scopes."""

from __future__ import annotations

from collections.abc import Mapping

from langchain_core.language_models import BaseChatModel

from wiserouter import Budget, Price, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.integration import check_bounded, prepare_router
from wiserouter_langchain.pool_member import PoolMember, pool_member


def pool_members(
    models: Mapping[str, BaseChatModel],
    router: WiseRouter | None,
    prices: Mapping[str, Price],
    output_version: str | None,
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
    """
    if not models:
        raise InvalidInput("models must hold at least one chat model, got none")
    fitted = {} if router is None else {model.name: model.price for model in router.pool.models}
    fields = {} if output_version is None else {"output_version": output_version}
    own = {name: prices.get(name) or fitted.get(name) for name in models}
    return {name: pool_member(name, _with_fields(model, fields), own[name]) for name, model in models.items()}


def open_router(
    members: Mapping[str, PoolMember],
    router: WiseRouter | None,
    budget: Budget | None,
    cap_output_tokens: int | None,
    scopes: Mapping[str, Budget],
) -> WiseRouter:
    """Return the router with the members' prices and limits, a running budget, and those of scopes within it.

    Raises
    ------
    UnknownModel
        If the router has no model of some member's name.
    InvalidInput
        If there is no budget, or no encoder where one is needed.
    UnknownPrice
        If the budget is hard, and nothing limits the output of a model.
    """
    rate_cards = {name: member.rate_card for name, member in members.items()}
    router, hard = prepare_router(router, rate_cards, budget)
    for scope, scope_budget in scopes.items():
        router.start(scope_budget, scope=scope, parent="default")
    if hard or any(scope_budget.hard for scope_budget in scopes.values()):
        caps = {name: cap_output_tokens for name, member in members.items() if member.cap_field is not None}
        check_bounded(rate_cards.items(), caps, "limit the output of the model")
    return router


def _with_fields(model: BaseChatModel, fields: Mapping[str, object]) -> BaseChatModel:
    return model.model_copy(update=fields) if fields and isinstance(model, BaseChatModel) else model
