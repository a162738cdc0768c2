"""Setup of a group: its deployments are registered, its router is prepared and its budget started."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, get_args

from wiserouter import Budget, Price, Shadow, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.integration import (
    MAX_WAIT_S,
    ContextLookup,
    DrawBy,
    Params,
    PriorScores,
    RateCard,
    Unit,
    check_amount,
    check_bounded,
    keep_conversations,
    prepare_router,
)
from wiserouter_litellm.deployments.arms import Arms, arms_of_settings
from wiserouter_litellm.deployments.deployment_defaults import changes_cost
from wiserouter_litellm.deployments.price_map import MODEL_ROUTER
from wiserouter_litellm.deployments.registry import Deployment, DeploymentInfo, DeploymentRegistry
from wiserouter_litellm.groups.group import FallbackPolicy, Group
from wiserouter_litellm.groups.scopes import GroupScope, ScopeResolver
from wiserouter_litellm.requests.limits import CHAT_LIMITS

Limit = Literal["hard", "expected"]


def open_group(
    name: str,
    deployments: Sequence[Deployment],
    *,
    router: WiseRouter | None = None,
    budget: Budget | None = None,
    prices: Mapping[str, Price] | None = None,
    priors: PriorScores | None = None,
    cap_output_tokens: int | None = None,
    encoder_timeout_s: float = 1.0,
    max_wait_s: float = MAX_WAIT_S,
    fallback_policy: FallbackPolicy = "inside",
    draw_by: DrawBy = "request",
    conversations: Mapping[str, Any] = MappingProxyType({}),
    scope_resolver: Callable[[WiseRouter], ScopeResolver] | None = None,
    shared_budget: str | None = None,
    sharing: Sequence[Group] = (),
    to_join: Mapping[str, Sequence[Deployment]] = MappingProxyType({}),
    shadow: Shadow | None = None,
    rules: Sequence[str] = (),
    arms: Mapping[str, Sequence[Params]] = MappingProxyType({}),
    call_defaults: Mapping[str, Any] | None = None,
    **settings: object,
) -> Group:
    """Return a group whose budget runs.

    Parameters
    ----------
    name : str
        The group's name in LiteLLM.
    deployments : sequence of mapping
        The deployments that serve it now.
    router : WiseRouter, optional
        Fitted on history; its models are matched with the deployments by name. By default one that knows the
        deployments' prices and learns the rest.
    budget : Budget, optional
        Started on the router; needed where none runs yet.
    prices : mapping of str to Price, optional
        Prices by model, deployment id or LiteLLM model, which come before LiteLLM's.
    priors : PriorScores, optional
        Prior qualities by the same names.
    cap_output_tokens : int, optional
        The limit of the output where a request sets none.
    encoder_timeout_s : float, default 1
        The longest time that a question waits for its embedding.
    max_wait_s : float, default 10
        How long a request waits while the rest of the budget is only held by calls in flight; 0 refuses it at once.
    fallback_policy : {"inside", "refuse", "outside"}, default "inside"
        Whose budget pays for a call that LiteLLM sends on to another group.
    draw_by : {"request", "question", "context"}, default "request"
        What calls that get the same model, where the plan mixes two, have in common.
    conversations : mapping of str to object
        The arguments of `keep_conversations`.
    scope_resolver : callable, optional
        Makes the resolver of scopes, once the group's own budget runs.
    shared_budget : str, optional
        The name of the budget, where several groups share it.
    sharing : sequence of Group
        The groups that have the same router already.
    to_join : mapping of str to sequence of mapping
        The deployments of the groups that will share a new router, so that its pool holds their models from the start.
    shadow : Shadow, optional
        Whether the group only observes, and the share of calls on which it acts.
    rules : sequence of str, optional
        The rules that score an answer 0 where it has certainly failed.
    arms : mapping of str to sequence of mapping
        The parameters with which the deployments of a model are called, a model of the pool for each; by model,
        deployment id or LiteLLM model. By default those of the router's models of that family.
    call_defaults : mapping of str to object, optional
        The parameters that LiteLLM's Router adds to each call.
    **settings
        Of `WiseRouter`, where none is given.

    Raises
    ------
    InvalidInput
        If there is no deployment, two of one model differ in price, or there is no budget or no encoder; or if the
        router has other settings of conversations already.
    UnknownPrice
        If a deployment has no price, or nothing bounds the cost of its calls and the budget is hard.
    """
    if not deployments:
        raise InvalidInput(
            f"group {name!r} has no deployments: add models of that name, or a routing group", value=name
        )
    _check_choice("fallback_policy", fallback_policy, get_args(FallbackPolicy))
    _check_choice("draw_by", draw_by, get_args(DrawBy))
    stated = arms_of_settings(arms)
    registry = DeploymentRegistry(name, () if router is None else router.pool.models, prices, priors, stated)
    registry.call_defaults = dict(call_defaults or {})
    infos = registry.register(deployments, strict=True)
    shared = {one.name: one.registry.infos for one in sharing}
    registries = {peer: DeploymentRegistry(peer, (), prices, priors, stated) for peer in to_join}
    joining = {peer: registries[peer].register(rows, strict=True) for peer, rows in to_join.items()}
    if not sharing:
        _check_arms(name, stated, [registry, *registries.values()])
    _check_one_price({name: infos, **shared, **joining})
    rate_cards = {info.model: info.rate_card for info in chain(infos, *joining.values())}
    terms = {"owner": f"group {name!r}", "adds_models": True, "shadow": shadow}
    router, hard = prepare_router(router, rate_cards, budget, **terms, **settings)  # type: ignore[arg-type]
    if rules:
        router.signals = rules
    unit = keep_conversations(router, **{"unit": None, **conversations})
    resolver = GroupScope() if scope_resolver is None else scope_resolver(router)
    group = Group(
        name,
        router,
        registry,
        ContextLookup(router, encoder_timeout_s),
        hard=hard or resolver.hard,
        scope_resolver=resolver,
        cap_output_tokens=cap_output_tokens,
        max_wait_s=check_amount("max_wait_s", max_wait_s),
        fallback_policy=fallback_policy if router.shadow is None else "inside",
        draw_by=draw_by,
        shared_budget=shared_budget,
        keeps_conversations=unit != "call",
    )
    if group.hard:
        check_can_be_hard(name, registry, cap_output_tokens)
    group.add_missing_models(infos)
    return group


def conversation_terms(
    unit: Unit | None, run_budget_usd: float | None, run_limit: Limit | None, conversation_ttl_s: float | None
) -> dict[str, Any]:
    """Return the arguments of `keep_conversations`; what is None is left to the router."""
    return {
        "unit": unit,
        "run_budget_usd": run_budget_usd,
        "run_limit": run_limit,
        "ttl_s": conversation_ttl_s,
    }


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(choices)}, got {value!r}", value=value)


def _check_arms(group: str, arms: Arms, registries: Sequence[DeploymentRegistry]) -> None:
    """Check that each model which has arms is a deployment of one of the groups that share a router."""
    unused = set(arms).intersection(*(registry.unused_arms for registry in registries))
    if unused:
        known = ", ".join(sorted({info.model for registry in registries for info in registry.infos}))
        rule = f"arms must name a model ({known}), a deployment id or a LiteLLM model of group {group!r}"
        raise InvalidInput(f"{rule}, got {min(unused)!r}", value=min(unused))


def _check_one_price(infos: Mapping[str, Iterable[DeploymentInfo]]) -> None:
    """Check that each model has one price in all groups of a router."""
    seen: dict[str, tuple[str, RateCard]] = {}
    for group, info in ((group, info) for group, ones in infos.items() for info in ones):
        first, card = seen.setdefault(info.model, (group, info.rate_card))
        if card.price != info.rate_card.price:
            raise InvalidInput(
                f"groups that share a budget must have one price for each model, got {card.price} in {first!r} and "
                f"{info.rate_card.price} in {group!r} for {info.model!r}: tell them apart by "
                f"model_info.wiserouter_model",
                value=info.model,
            )


def check_can_be_hard(group: str, registry: DeploymentRegistry, cap_output_tokens: int | None) -> None:
    """Check that something bounds the cost of every call to the deployments of a group.

    Raises
    ------
    UnknownPrice, InvalidInput
        If nothing bounds it; the error names the remedy.
    """
    infos = registry.infos
    limited = [info for info in infos if not info.unknown_limits.issuperset(CHAT_LIMITS)]
    check_bounded(
        [(info.model, info.rate_card) for info in infos],
        {info.model: cap_output_tokens or info.defaults.output_tokens for info in limited},
        "set model_info.max_output_tokens, or cap_output_tokens",
    )
    _check_defaults(group, infos)
    _check_call_defaults(group, registry.call_defaults)


def _check_defaults(group: str, infos: Iterable[DeploymentInfo]) -> None:
    """Check that no deployment of a hard group adds a parameter to its calls whose cost nothing bounds."""
    for info in infos:
        if info.defaults.unbounded is not None:
            is_router = info.defaults.unbounded == MODEL_ROUTER
            remedy = "state the highest prices of its models there" if is_router else "take it out, or the deployment"
            raise InvalidInput(
                f"group {group!r} is hard, and nothing bounds {info.defaults.unbounded} in the litellm_params of "
                f"{info.model!r}, or in LiteLLM's map: {remedy}",
                value=info.defaults.unbounded,
            )


def _check_call_defaults(group: str, defaults: Mapping[str, Any]) -> None:
    """Check that the Router adds nothing to calls that changes their cost after they were bounded."""
    for name, value in defaults.items():
        if changes_cost(name, value):
            raise InvalidInput(
                f"group {group!r} is hard, and default_litellm_params sets {name}, which replaces what was bounded in "
                "each call: set it in the litellm_params of the deployments",
                value=name,
            )
