"""Setup of a router for an adapter: its models, their prices, its encoder and its budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from wiserouter.budgets.budget import Budget
from wiserouter.conversations.conversation import Unit
from wiserouter.conversations.settings import Conversations
from wiserouter.errors import InvalidInput, NotStarted, UnknownModel, UnknownPrice
from wiserouter.integration.rate_card import RateCard
from wiserouter.pricing.pool import Model
from wiserouter.prompts.encoders.remote import RemoteEncoder
from wiserouter.router import WiseRouter
from wiserouter.routing.shadow import Shadow
from wiserouter.validation import check_kind


class PreparedRouter(NamedTuple):
    """A router whose budget runs, and whether that budget is hard."""

    router: WiseRouter
    hard: bool


def prepare_router(
    router: WiseRouter | None,
    rate_cards: Mapping[str, RateCard],
    budget: Budget | None,
    *,
    owner: str = "the router",
    adds_models: bool = False,
    shadow: Shadow | None = None,
    **settings: Any,
) -> PreparedRouter:
    """Return a router with the prices and limits of its models and a running budget.

    Parameters
    ----------
    router : WiseRouter or None
        Fitted on history. By default one that knows the prices and learns the rest.
    rate_cards : mapping of str to RateCard
        Prices and limits by the models' names in the pool.
    budget : Budget or None
        Started on the router; needed where none runs yet. One that runs goes on, with the amount and horizon given now.
    owner : str
        The subject of error messages.
    adds_models : bool, default False
        Whether the adapter adds models that the router does not know; by default they are refused.
    shadow : Shadow, optional
        Whether the router only observes, and the share of calls on which it acts.
    **settings
        Of `WiseRouter`, where none is given.

    Raises
    ------
    UnknownModel
        If the router has no model of some name.
    InvalidInput
        If there is no budget, or no encoder where there are several contexts.
    """
    if router is None:
        router = WiseRouter([card.model(name) for name, card in rate_cards.items()], **settings)
    check_kind("router", router, WiseRouter, "WiseRouter.load('support.wise')")
    unknown = [name for name in rate_cards if name not in router.pool.names]
    if unknown and not adds_models:
        raise UnknownModel(unknown[0], router.pool.names)
    n_contexts = router.contexts.n_contexts
    if n_contexts > 1 and router.encoder is None:
        raise InvalidInput(f"{owner} has {n_contexts} contexts and needs an encoder")
    for name, card in rate_cards.items():
        if name not in unknown:
            router.update_model(_with_own(router.pool.by_name[name], card.model(name)))
    if isinstance(router.encoder, RemoteEncoder):
        router.encoder.pay, router.encoder.apay = router.spend, router.aspend
    return PreparedRouter(router, _start(router, budget, owner, shadow))


def _with_own(own: Model, model: Model) -> Model:
    """Return a card's model with the prior quality and the parameters of the router's where the card has none."""
    if model.score is None:
        model = replace(model, score=own.score, score_weight=own.score_weight)
    return model if model.params else replace(model, params=own.params, family=own.family)


def shadow_of(mode: str, share: float) -> Shadow | None:
    """Return the setting of shadow mode; None where the router routes.

    Raises
    ------
    InvalidInput
        If the mode is unknown, or a share is given to a router that routes.
    """
    if mode == "route":
        if share:
            raise InvalidInput(f"share needs mode='shadow', got share={share} and mode='route'", value=share)
        return None
    if mode != "shadow":
        raise InvalidInput(f"mode must be 'route' or 'shadow', got {mode!r}", value=mode)
    return Shadow(share)


def keep_conversations(router: WiseRouter, unit: Unit | None, **settings: Any) -> Unit:
    """Let a router keep conversations, where its calls are to be decided in their unit, and return that unit.

    Parameters
    ----------
    router : WiseRouter
        The router.
    unit : {"call", "conversation", "run"} or None
        None for that of the router.
    **settings
        Of `Conversations`; None for that of the router, or the default.

    Raises
    ------
    InvalidInput
        If the settings contradict each other or those of the router.
    """
    kept, given = router.conversations, {name: value for name, value in settings.items() if value is not None}
    if unit is None:
        unit = "call" if kept is None else kept.unit
    if unit == "call":
        if given:
            needed = "unit='run'" if given.keys() - {"ttl_s"} else "unit='run' or unit='conversation'"
            raise InvalidInput(f"{', '.join(given)} needs {needed}, got unit='call'")
        return unit
    if router.shadow is not None:
        raise InvalidInput(f"mode='shadow' decides each call alone: it needs unit='call', got {unit!r}", value=unit)
    own = kept if kept is not None and kept.unit == unit else Conversations(unit)
    router.keep_conversations(replace(own, **given))
    return unit


def check_bounded(
    rate_cards: Iterable[tuple[str, RateCard]], output_caps: Mapping[str, int | None], remedy: str
) -> None:
    """Check that a hard budget can bound the calls of every model.

    Parameters
    ----------
    rate_cards : iterable of (str, RateCard)
        Prices and limits with the models' names.
    output_caps : mapping of str to int or None
        The limit that is sent along where a call sets none, by model.
    remedy : str
        How the operator limits the output of a model.

    Raises
    ------
    UnknownPrice
        If nothing bounds the cost of even an empty call.
    """
    for name, card in rate_cards:
        if card.worst_case_usd(0, output_caps.get(name)) == float("inf"):
            raise UnknownPrice(name, f"bound on the cost of a call, which a hard budget needs: {remedy}")


def _start(router: WiseRouter, budget: Budget | None, owner: str, shadow: Shadow | None) -> bool:
    """Start the budget, if one is given, and return True if the running one is hard."""
    if shadow is not None:
        if budget is None:
            raise InvalidInput(f"{owner} needs a budget for mode='shadow', which divides it: give budget=")
        router.shadow = shadow
    if budget is not None:
        router.start(budget, restart=False)
    try:
        return router.is_hard()
    except NotStarted as error:
        raise InvalidInput(f"{owner} needs a budget: give one, or a router with a running one") from error
