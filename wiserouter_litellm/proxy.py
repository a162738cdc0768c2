"""The callback of the proxy, `callbacks: ["wiserouter_litellm.callback"]`, built when a worker reads the configuration.

At that moment the proxy has its application and its configuration, but no router yet: deployments come from the
configuration first, and from each request later.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import litellm

from wiserouter import (
    EpsilonFirst,
    ExploreShare,
    Growing,
    LabelBudget,
    Limit,
    Limits,
    Optimistic,
    UseRate,
    WiseRouter,
    open_store,
)
from wiserouter.errors import InvalidInput, WiseRouterError
from wiserouter.integration import PriorScore, PriorScores, shadow_of, trace_decisions
from wiserouter_litellm.deployments.litellm_compat import check_litellm, ownership
from wiserouter_litellm.deployments.registry import Deployment, id_of
from wiserouter_litellm.encoder import LiteLLMEncoder
from wiserouter_litellm.errors import SettingsError, uncountable
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.group_setup import open_group
from wiserouter_litellm.groups.request_values import CallerValues
from wiserouter_litellm.groups.scopes import CallerScopes
from wiserouter_litellm.groups.translated_errors import translate_error
from wiserouter_litellm.hooks.wise_callback import WiseCallback
from wiserouter_litellm.operating.alerts import start_alerts
from wiserouter_litellm.operating.metrics import watch_groups
from wiserouter_litellm.operating.worker_end import close_at_end, closed_at_end
from wiserouter_litellm.requests.several_models import refuse_several
from wiserouter_litellm.requests.stream_usage import ask_for_usage
from wiserouter_litellm.settings.boot_refusal import announce_refusal
from wiserouter_litellm.settings.budget_settings import AccountSettings, ScopeSettings
from wiserouter_litellm.settings.limit_settings import MEASURED, LimitSettings
from wiserouter_litellm.settings.proxy_settings import ROOT, RoutingSettings, in_memory, settings_of, store_of
from wiserouter_litellm.settings.store_wait import once_reachable
from wiserouter_litellm.settlement.judge import start_judge
from wiserouter_litellm.settlement.other_surfaces import acheck_left, asked_groups

logger = logging.getLogger("wiserouter.litellm")

PROXY = "litellm.proxy.proxy_server"

CALLBACK = "wiserouter_litellm.callback"
"""The name by which a configuration lists the callback of a worker."""


class ProxyCallback(WiseCallback):
    """The callback of a proxy worker."""

    # LiteLLM looks for these names in the class itself and never calls an inherited hook
    async_post_call_streaming_iterator_hook = WiseCallback.async_post_call_streaming_iterator_hook
    async_post_call_response_headers_hook = WiseCallback.async_post_call_response_headers_hook

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: Any
    ) -> None:
        """Refuse a call that a hard budget cannot bound, report one that none can pay for, and ask streams for usage.

        Raises
        ------
        litellm.BadRequestError
            If the call uses a group with a hard budget, and is not routed by its text; or if it asks several models at
            once, a group of ours among them.
        """
        refuse_several(self.groups, data.get("model"))
        name = str(getattr(call_type, "value", call_type))
        named = self.groups.get(str(data.get("model")))
        if named is not None and not named.observes and name in {"completion", "acompletion"}:
            ask_for_usage(data, sys.modules[PROXY].general_settings)
        for group in asked_groups(self.groups, data, name):
            if group.hard and not group.observes:
                raise uncountable(group.name)
            if "batch" in name:
                if not group.observes:
                    await self._check_left(group, data)
                group.fault("uncounted_calls", "a batch is not counted: LiteLLM reports no cost when it is created")

    async def _check_left(self, group: Group, data: dict[str, Any]) -> None:
        """Refuse a call for which LiteLLM selects no deployment, where the budget is paused or used up."""
        try:
            await acheck_left(group, data)
        except Exception as error:  # a fault here must not stop traffic
            translate_error(group, [], error, data)


def build_callback() -> ProxyCallback:
    """Return the callback that the proxy's configuration asks for, its routes mounted.

    Raises
    ------
    SettingsError
        If a setting is missing or wrong; the boot stops.
    """
    try:
        return _build()
    except SettingsError as error:
        announce_refusal(error)
        raise


def _build() -> ProxyCallback:
    check_litellm()
    settings = settings_of((getattr(litellm, "callback_settings", None) or {}).get("wiserouter"))
    config = _config()
    _check_place(config.get("litellm_settings") or {})
    opened: dict[str, Group] = {}
    for name, account in settings.accounts.items():
        opened |= once_reachable(partial(_groups_of, name, account, settings.members(name), config))
    callback = ProxyCallback({name: opened[name] for name in settings.groups})
    watch_groups(callback.groups, on=settings.metrics)
    start_alerts(callback.groups, settings.alerts)
    if settings.feedback_pull is not None:
        from wiserouter_litellm.settlement.feedback_pull import start_pull  # most proxies pull nothing

        start_pull(callback, settings.feedback_pull)
    proxy = sys.modules.get(PROXY)
    if proxy is not None:
        from wiserouter_litellm.operating.proxy_routes import (
            mount,  # imports the proxy, which only its workers have loaded
        )

        mount(proxy.app, callback)
        close_at_end(proxy)
        if settings.batches is not None or hasattr(proxy.app.state, "wiserouter_batches"):
            from wiserouter_litellm.batches.service import start_batches  # few proxies have batches

            start_batches(proxy.app, callback.groups, settings.batches, _proxy_router)
    return callback


def _check_place(settings: Mapping[str, Any]) -> None:
    """Check that the callback is not listed only where LiteLLM asks it nothing before a call.

    Raises
    ------
    SettingsError
        If it is.
    """
    lists = [key for key, one in settings.items() if one == CALLBACK or (isinstance(one, list) and CALLBACK in one)]
    if lists and "callbacks" not in lists:
        rule = "must be in litellm_settings.callbacks: here LiteLLM asks it nothing before a call, and no budget holds"
        raise SettingsError(f"litellm_settings.{lists[0]}", f"{CALLBACK} {rule}")


def configured_deployments(config: Mapping[str, Any], group: str) -> list[Deployment]:
    """Return the deployments that a proxy configuration gives a group: by name, or as members of a routing group."""
    routing = (config.get("router_settings") or {}).get("routing_groups") or []
    members = {member for one in routing if one.get("group_name") == group for member in one.get("models") or ()}
    rows = config.get("model_list") or []
    return [row for row in rows if row.get("model_name") in members | {group} and row.get("litellm_params")]


def _config() -> Mapping[str, Any]:
    proxy = sys.modules.get(PROXY)
    return {} if proxy is None else proxy.proxy_config.get_config_state()


def _groups_of(
    name: str, account: AccountSettings, members: Mapping[str, RoutingSettings], config: Mapping[str, Any]
) -> dict[str, Group]:
    """Return the groups under one budget, which share one router; the budget of one group has the group's name."""
    key = f"{ROOT}.{'groups' if name in members else 'budgets'}.{name}"
    share = 1.0 / _workers(account, key)
    deployments = {group: configured_deployments(config, group) for group in members}
    opened: dict[str, Group] = {}
    for group, settings in members.items():
        first = next(iter(opened.values()), None)
        with _named_faults(key if first is None else f"{ROOT}.groups.{group}"):
            opened[group] = open_group(
                group,
                deployments[group],
                prices={model: price.price() for model, price in account.prices.items()},
                priors=_priors(account),
                cap_output_tokens=settings.cap_output_tokens,
                encoder_timeout_s=settings.encoder_timeout_s,
                max_wait_s=settings.wait_s,
                fallback_policy=settings.fallback_policy,
                draw_by=settings.draw_by,
                arms=account.arms,
                call_defaults=(config.get("router_settings") or {}).get("default_litellm_params"),
                shared_budget=None if name in members else name,
                **(_account_of(name, account, share, group, deployments) if first is None else _as_in(first, group)),
            )
            opened[group].registry.is_served = _is_served
            opened[group].traces = account.otel_decisions
            if account.values is not None:
                opened[group].value_rule = CallerValues(**account.values.model_dump())
            if first is None:
                _limit(opened[group].router, account, share)
                _observe(opened[group].router, name, account)
                _judge(opened[group].router, account, share, config)
    rows = [row for ones in deployments.values() for row in ones]
    _warn_of_others(name, account, next(iter(opened.values())).router, rows)
    return opened


def _warn_of_others(name: str, account: AccountSettings, router: WiseRouter, rows: Sequence[Deployment]) -> None:
    """Say which models that `prices` and `priors` name are none of a budget, as where a name is misspelt."""
    models = router.pool.names
    known = {*models, *(one.family for one in router.pool.models)}
    known |= {str(one) for row in rows for one in (id_of(row), row["litellm_params"].get("model"))}
    bases = {str((row.get("model_info") or {}).get("base_model")) for row in rows}
    priors = account.priors if isinstance(account.priors, dict) else {}
    unused = {
        "prices": [one for one in account.prices if one not in known],
        "priors": [one for one in priors if not PriorScores([PriorScore(one, 0.5)]).find(*known, *bases)],
    }
    for key, others in unused.items():
        if others:
            told = "%s of models that %r does not have are not used: %s; it has %s"
            logger.warning(told, key, name, ", ".join(others), ", ".join(models))


def _account_of(
    name: str, account: AccountSettings, share: float, group: str, deployments: Mapping[str, Sequence[Deployment]]
) -> dict[str, Any]:
    """Return the terms of the first group under a budget: those of its router."""
    scopes = account.scopes
    return {
        "router": _fitted(name, account),
        "budget": account.budgets(share),
        "scope_resolver": None if scopes is None else partial(_caller_scopes, group, scopes, share),
        "to_join": {peer: rows for peer, rows in deployments.items() if peer != group},
        "policy": _policy(account),
        "encoder": _encoder(account) if account.grows else None,
        "growing": _growing(account),
        "store": _store(name, account),
        "seed": account.seed,
        "conversations": account.conversations,
        "shadow": shadow_of(account.mode, account.share),
        "rules": account.signals,
    }


def _as_in(first: Group, group: str) -> dict[str, Any]:
    """Return the terms of a group that shares the budget of another one."""
    scopes = first.scope_resolver
    own = scopes.of_group(group) if isinstance(scopes, CallerScopes) else scopes
    return {"router": first.router, "sharing": [first], "scope_resolver": lambda _: own}


@contextmanager
def _named_faults(key: str) -> Iterator[None]:
    """Raise what goes wrong as an error of a setting."""
    try:
        yield
    except WiseRouterError as error:
        raise SettingsError(key, str(error)) from error
    except OSError as error:
        fault = f"{error.filename} cannot be opened ({error.strerror}): correct its path or its permissions"
        raise SettingsError(key, str(error) if error.filename is None else fault) from error


def _limit(router: WiseRouter, settings: AccountSettings, share: float) -> None:
    """Set the limits beside the budget, where the settings have any; of totals this worker's share."""
    rates = {
        name: {key: UseRate(**one.model_dump()) for key, one in row.items()} for name, row in settings.uses.items()
    }
    if rates:
        router.set_use_rates(rates)
    for resource in settings.limits.keys() - MEASURED:
        for model in router.pool.models:
            if not any(resource in rates.get(name, {}) for name in (model.name, model.family)):
                raise InvalidInput(f"uses must say what {model.name!r} uses of {resource}, since limits name it")
    limits: dict[str, Limit] = {resource: _limit_of(one, share) for resource, one in settings.limits.items()}
    if limits or settings.max_share or settings.min_share or settings.min_quality is not None:
        router.set_limits(Limits(limits, settings.min_quality, settings.max_share, settings.min_share))


def _limit_of(settings: LimitSettings, share: float) -> Limit:
    fields = settings.model_dump()
    return Limit(**fields if settings.total is None else fields | {"total": share * settings.total})


def _observe(router: WiseRouter, name: str, settings: AccountSettings) -> None:
    """Set the journal, the label budget and the share of exploration of a router, where the settings have them."""
    if settings.otel_evaluations:
        router.emit_evaluations()
    if settings.otel_decisions:
        trace_decisions(router, name)
    if settings.journal is not None:
        closed_at_end(router.journal_to(settings.journal))
    if settings.label_share is not None:
        router.labels = LabelBudget(settings.label_share)
    if settings.explore_share is not None:
        router.explore = ExploreShare(settings.explore_share)


def _judge(router: WiseRouter, settings: AccountSettings, share: float, config: Mapping[str, Any]) -> None:
    """Start the judge that the settings name."""
    if settings.judge is not None:
        deployments = configured_deployments(config, settings.judge.model)
        start_judge(router, settings.judge, deployments, _proxy_router, share)


def _priors(settings: AccountSettings) -> PriorScores | None:
    """Return the prior qualities that the settings name, or hold."""
    priors = settings.priors
    if isinstance(priors, dict):
        return PriorScores([PriorScore(model, score) for model, score in priors.items()])
    return None if priors is None else PriorScores.open(priors)


def _policy(settings: AccountSettings) -> Optimistic | EpsilonFirst:
    """Return the policy of a group without history."""
    return Optimistic() if settings.explore_requests is None else EpsilonFirst(settings.explore_requests)


def _fitted(name: str, settings: AccountSettings) -> WiseRouter | None:
    if settings.artifact is None:
        return None
    encoder = _encoder(settings)
    return WiseRouter.load(settings.artifact, store=_store(name, settings), encoder=encoder, seed=settings.seed)


def _growing(settings: AccountSettings) -> Growing | Literal["auto"] | None:
    """Return the fits of the contexts of a group without an artifact."""
    if not settings.grows:
        return None
    return "auto" if settings.contexts is None else Growing(settings.contexts)


def _encoder(settings: AccountSettings) -> LiteLLMEncoder | None:
    """Return the embedding model that the settings name."""
    model = (settings.encoder or "").removeprefix("litellm/")
    return LiteLLMEncoder(model, router=_proxy_router, **settings.encoder_params) if model else None


def _caller_scopes(name: str, settings: ScopeSettings, share: float, router: WiseRouter) -> CallerScopes:
    """Return the budgets of teams, users and other callers; those of named callers are opened."""
    return CallerScopes(
        name,
        router,
        settings.by,
        {id_: one.budgets(share) for id_, one in settings.budgets.items()},
        others=settings.others if isinstance(settings.others, str) else settings.others.budgets(share),
        within_group=settings.within_group,
        from_request=settings.from_request,
        max_others=settings.max_others,
    )


def _store(name: str, settings: AccountSettings) -> Any:
    store = open_store(
        store_of(name, settings.store),
        reservation_ttl_s=settings.reservation_ttl_s,
        decision_ttl_s=settings.feedback_ttl_s,
    )
    return closed_at_end(store)


def _proxy_router() -> Any:
    return getattr(sys.modules.get(PROXY), "llm_router", None)


def _is_served(deployment_id: str) -> bool:
    """Return False for a deployment that the proxy has removed."""
    router = _proxy_router()
    return router is None or ownership(router)(deployment_id)


def _workers(settings: AccountSettings, key: str) -> int:
    """Return the number of processes that split the budget, since their stores in memory are separate."""
    workers = int(os.environ.get("NUM_WORKERS") or 1)
    if workers <= 1 or not in_memory(settings.store):
        return 1
    logger.warning(
        "%s: %d workers and a store in memory: each gets 1/%d of the budget, and feedback reaches the worker that "
        "answered only by chance; use one worker, or a shared store",
        key,
        workers,
        workers,
    )
    return workers
