"""From deployments, a budget and perhaps a fitted router to a group that is ready to serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import litellm

from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.errors import InvalidInput, NotStarted, UnknownPrice
from wiserouter.integration.context_lookup import ContextLookup
from wiserouter.prompts.encoders.remote import RemoteEncoder
from wiserouter_litellm.deployments import Deployment, DeploymentInfo, DeploymentRegistry
from wiserouter_litellm.group import Group
from wiserouter_litellm.scopes import GroupScope, ScopeResolver

_ENCODINGS = Path(litellm.__file__).parent / "litellm_core_utils" / "tokenizers"
"""The tokenizers that LiteLLM ships; it points tiktoken there itself, at its first count."""


def open_group(
    name: str,
    deployments: Sequence[Deployment],
    *,
    router: WiseRouter | None = None,
    budget: Budget | None = None,
    prices: Mapping[str, Price] | None = None,
    cap_output_tokens: int | None = None,
    encoder_timeout_s: float = 1.0,
    scope_resolver: Callable[[WiseRouter], ScopeResolver] | None = None,
    **settings: object,
) -> Group:
    """Return a group whose budget runs.

    Parameters
    ----------
    name : str
        The group's name in LiteLLM.
    deployments : sequence of mapping
        Those that serve it now.
    router : WiseRouter, optional
        Fitted on history; its models are matched with the deployments by name. By default one that knows the
        deployments' prices and learns the rest.
    budget : Budget, optional
        Started on the router; needed where it has none yet.
    prices : mapping of str to Price, optional
        Prices of your own, by model, deployment id or LiteLLM model.
    cap_output_tokens : int, optional
        The limit of the output where a request names none.
    encoder_timeout_s : float, default 1
        How long a question waits for its embedding.
    scope_resolver : callable, optional
        Makes what says whose budget pays, once the group's own runs.
    **settings
        Of `WiseRouter`, where none is given.

    Raises
    ------
    InvalidInput
        If there is no deployment, two of one model differ in price, or there is no budget or no encoder.
    UnknownPrice
        If a deployment has no price, or nothing bounds the cost of its calls and the budget is hard.
    """
    if not deployments:
        raise InvalidInput(
            f"group {name!r} has no deployments: add models of that name, or a routing group", value=name
        )
    registry = DeploymentRegistry(name, () if router is None else router.pool.names, prices)
    infos = registry.register(deployments, strict=True)
    if router is None:
        router = WiseRouter(_models(infos), **settings)  # type: ignore[arg-type]
    for info in infos:
        if info.model in router.pool.names:
            router.update_model(info.tariff.model(info.model))
    if router.contexts.n_contexts > 1 and router.encoder is None:
        raise InvalidInput(f"group {name!r}: a router with {router.contexts.n_contexts} contexts needs an encoder")
    hard = _started(name, router, budget)
    paying = GroupScope() if scope_resolver is None else scope_resolver(router)
    hard |= paying.hard
    if isinstance(router.encoder, RemoteEncoder):
        router.encoder.pay, router.encoder.apay = router.spend, router.aspend
    group = Group(
        name,
        router,
        registry,
        ContextLookup(router.contexts, router.encoder, encoder_timeout_s, keeps_embedding=router.needs_embedding),
        hard=hard,
        scope_resolver=paying,
        cap_output_tokens=cap_output_tokens,
    )
    if hard:
        _check_bounded(infos, cap_output_tokens)
    group.add_new_models(infos)
    return group


def _models(infos: Sequence[DeploymentInfo]) -> list[Model]:
    """Return one model per name, in the order of the deployments."""
    return list({info.model: info.tariff.model(info.model) for info in reversed(infos)}.values())[::-1]


def _started(name: str, router: WiseRouter, budget: Budget | None) -> bool:
    """Start the budget, if one is given, and return whether the running one is hard."""
    if budget is not None:
        router.start(budget)
    try:
        return router.is_hard()
    except NotStarted as error:
        raise InvalidInput(f"group {name!r} needs a budget: give one, or a router with a running one") from error


def _check_bounded(infos: Sequence[DeploymentInfo], cap_output_tokens: int | None) -> None:
    """Raise `UnknownPrice` if not even an empty request to a deployment has a worst case."""
    for info in infos:
        if info.tariff.worst_case_usd(0, cap_output_tokens) == float("inf"):
            raise UnknownPrice(
                info.model,
                "bound on the cost of a call, which a hard budget needs: set model_info.max_output_tokens, or "
                "cap_output_tokens",
            )
