"""From chat models, a budget and perhaps a fitted router to a router whose budget runs."""

from __future__ import annotations

from collections.abc import Mapping

from langchain_core.language_models import BaseChatModel

from wiserouter import Budget, Price, WiseRouter
from wiserouter.errors import InvalidInput, NotStarted, UnknownModel, UnknownPrice
from wiserouter.prompts.encoders.remote import RemoteEncoder
from wiserouter_langchain.pool_member import PoolMember, pool_member


def pool_members(
    models: Mapping[str, BaseChatModel],
    router: WiseRouter | None,
    prices: Mapping[str, Price],
    output_version: str | None,
) -> dict[str, PoolMember]:
    """Return the arms of a pool: prices are your own, else the router's, else the catalogue's.

    Parameters
    ----------
    models : mapping of str to BaseChatModel
        The pool.
    router : WiseRouter or None
        Fitted on history.
    prices : mapping of str to Price
        Your own.
    output_version : str or None
        A field of the router that its models have to honour.
    """
    if not models:
        raise InvalidInput("models must hold at least one chat model, got none")
    known = {} if router is None else {model.name: model.price for model in router.pool.models}
    pushed = {} if output_version is None else {"output_version": output_version}
    own = {name: prices.get(name) or known.get(name) for name in models}
    return {name: pool_member(name, _copied(model, pushed), own[name]) for name, model in models.items()}


def open_router(
    arms: Mapping[str, PoolMember],
    router: WiseRouter | None,
    budget: Budget | None,
    cap_output_tokens: int | None,
    scopes: Mapping[str, Budget],
) -> WiseRouter:
    """Return the router with the arms' prices and limits, a running budget, and those of scopes within it.

    Raises
    ------
    UnknownModel
        If the router knows no model of that name.
    InvalidInput
        If there is no budget, or no encoder where one is needed.
    UnknownPrice
        If the budget is hard, and nothing limits the output of a model.
    """
    router = router or WiseRouter([arm.core_model() for arm in arms.values()])
    strange = next((name for name in arms if name not in router.pool.names), None)
    if strange is not None:
        raise UnknownModel(strange, router.pool.names)
    if router.contexts.n_contexts > 1 and router.encoder is None:
        raise InvalidInput(f"a router with {router.contexts.n_contexts} contexts needs an encoder")
    for arm in arms.values():
        router.update_model(arm.core_model())
    if isinstance(router.encoder, RemoteEncoder):
        router.encoder.pay, router.encoder.apay = router.spend, router.aspend
    if budget is not None:
        router.start(budget)
    hard = _is_hard(router)
    for scope, one in scopes.items():
        router.start(one, scope=scope, parent="default")
    if hard or any(one.hard for one in scopes.values()):
        _check_limited(arms, cap_output_tokens)
    return router


def _copied(model: BaseChatModel, pushed: Mapping[str, object]) -> BaseChatModel:
    return model.model_copy(update=pushed) if pushed and isinstance(model, BaseChatModel) else model


def _is_hard(router: WiseRouter) -> bool:
    try:
        return router.is_hard()
    except NotStarted as error:
        raise InvalidInput("the router needs a budget: give budget=, or a router with a running one") from error


def _check_limited(arms: Mapping[str, PoolMember], cap_output_tokens: int | None) -> None:
    for arm in arms.values():
        if arm.max_output_tokens is None and (cap_output_tokens is None or arm.cap_field is None):
            raise UnknownPrice(
                arm.name, "bound on the cost of a call, which a hard budget needs: limit the output of the model"
            )
