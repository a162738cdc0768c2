"""`WiseRoutingStrategy`: a custom routing strategy of a `litellm.Router`, for programs that set one.

LiteLLM replaces the selection of all groups by a custom strategy, skips health checks before it, and drops it where
settings change. So this one asks for the healthy deployments itself, and leaves every other group to the router's own
strategy. `attach` needs none of that: prefer it.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from litellm.router import Router
from litellm.types.router import CustomRoutingStrategyBase

from wiserouter import Budget, WiseRouter
from wiserouter.integration import MAX_WAIT_S, DrawBy, Params, Unit
from wiserouter_litellm.attachment import AttachedCallback
from wiserouter_litellm.deployments.litellm_compat import call_defaults_of, check_litellm, deployments_of, ownership
from wiserouter_litellm.groups.group import FallbackPolicy, Group
from wiserouter_litellm.groups.group_setup import Limit, conversation_terms, open_group
from wiserouter_litellm.groups.last_look import keep_last
from wiserouter_litellm.groups.request_values import value_in_metadata
from wiserouter_litellm.groups.scopes import ScopeFromMetadata
from wiserouter_litellm.groups.selection import Selection
from wiserouter_litellm.groups.translated_errors import translate_error
from wiserouter_litellm.hooks.dispatcher import register
from wiserouter_litellm.hooks.sync_selection import selecting
from wiserouter_litellm.requests.origin import metadata_of
from wiserouter_litellm.settlement.other_surfaces import acheck_left


class StrategyCallback(AttachedCallback):
    """Settles the calls of a strategy, and reserves those to the id of a deployment, which no strategy selects."""

    selects = False


class WiseRoutingStrategy(CustomRoutingStrategyBase):
    """Selects the deployments of one group under a budget, and leaves the others to the router's own strategy.

    Parameters
    ----------
    litellm_router : litellm.Router
        The router that `install` sets it on.
    group : str
        The group: a `model_name`, or the `group_name` of a routing group.
    router, budget, cap_output_tokens, encoder_timeout_s, max_wait_s, fallback_policy, draw_by, unit
        As in `attach`.
    run_budget_usd, run_limit, conversation_ttl_s, arms
        As in `attach`.
    rng : random.Random, optional
        Generator of the draws between the deployments of one model.

    Attributes
    ----------
    callback : StrategyCallback
        Settles the calls, and takes feedback.

    Notes
    -----
    `Router.update_settings(routing_strategy=...)` removes every custom strategy; set it again after that.

    Examples
    --------
    >>> import litellm
    >>> answer = {"model": "openai/small", "api_key": "none", "mock_response": "hello"}
    >>> price = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    >>> llms = litellm.Router([{"model_name": "wise", "litellm_params": {**answer, **price}}])
    >>> strategy = WiseRoutingStrategy(llms, "wise", budget=Budget(amount_usd=1.0, horizon=100))
    >>> strategy.install()
    >>> llms.completion(model="wise", messages=[{"role": "user", "content": "hi"}]).choices[0].message.content
    'hello'
    """

    def __init__(
        self,
        litellm_router: Router,
        group: str,
        *,
        router: WiseRouter | None = None,
        budget: Budget | None = None,
        cap_output_tokens: int | None = None,
        encoder_timeout_s: float = 1.0,
        max_wait_s: float = MAX_WAIT_S,
        fallback_policy: FallbackPolicy = "inside",
        draw_by: DrawBy = "request",
        unit: Unit | None = None,
        run_budget_usd: float | None = None,
        run_limit: Limit | None = None,
        conversation_ttl_s: float | None = None,
        arms: Mapping[str, Sequence[Params]] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        check_litellm()
        self._router = litellm_router
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, keeps no secret
        self._async_select, sync_select = _own_selections(litellm_router)
        opened = open_group(
            group,
            deployments_of(litellm_router, group),
            router=router,
            budget=budget,
            cap_output_tokens=cap_output_tokens,
            encoder_timeout_s=encoder_timeout_s,
            max_wait_s=max_wait_s,
            fallback_policy=fallback_policy,
            draw_by=draw_by,
            arms=arms or {},
            call_defaults=call_defaults_of(litellm_router),
            conversations=conversation_terms(unit, run_budget_usd, run_limit, conversation_ttl_s),
            scope_resolver=lambda _: ScopeFromMetadata(),
        )
        opened.value_rule = value_in_metadata
        opened.registry.is_served = ownership(litellm_router)
        self.callback = StrategyCallback(litellm_router)
        self.callback.groups[group] = opened
        self._select_sync = selecting(litellm_router, self.callback, sync_select)
        register(self.callback)
        self.callback.watch_checks()

    def install(self) -> None:
        """Set the strategy on its router, by the name that this version of LiteLLM has for it."""
        set_on = getattr(self._router, "register_plugin", None) or self._router.set_custom_routing_strategy
        set_on(self)

    async def async_get_available_deployment(
        self,
        model: str,
        messages: Any = None,
        input: Any = None,  # noqa: A002 - LiteLLM's name
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Return the deployment for an asynchronous call."""
        kwargs = request_kwargs if request_kwargs is not None else {}
        call = {"messages": messages, "input": input, "specific_deployment": specific_deployment}
        await self.callback.asettle_earlier(kwargs)
        metadata = metadata_of(kwargs)
        offered = [] if specific_deployment else deployments_of(self._router, model)
        group = None if specific_deployment else self.callback.paying_group(model, offered, kwargs, metadata)
        if group is None:
            return await self._async_select(model=model, request_kwargs=kwargs, **call)
        healthy = await _healthy(self._router, model, kwargs, call)
        healthy = [healthy] if isinstance(healthy, dict) else healthy  # a fallback may name a deployment
        try:
            routing = self.callback.begin(group, healthy, messages, kwargs, model)
            selection = None if routing is None else await group.aselect(routing)
            if routing is None:
                await acheck_left(group, kwargs)
        except Exception as error:  # a fault here must not stop traffic
            translate_error(group, healthy, error, kwargs)
            selection = None
        if selection is None:
            self.callback.note_group(group, kwargs, metadata, healthy)
            return self._rng.choice(self.callback.unrouted(group, healthy, kwargs))
        return self._first(group, selection, kwargs)

    def get_available_deployment(self, model: str, **call: Any) -> Any:  # type: ignore[override]
        """Return the deployment for a synchronous call; LiteLLM passes everything by keyword."""
        return self._select_sync(model=model, **call)

    def _first(self, group: Group, selection: Selection, kwargs: dict[str, Any]) -> dict[str, Any]:
        copies = self.callback.record(group, selection, kwargs, metadata_of(kwargs))
        self.callback.attempts[selection.decision.id].may_change = keep_last(self.callback.registered)
        first = min(copy["litellm_params"]["order"] for copy in copies)
        return self._rng.choice([copy for copy in copies if copy["litellm_params"]["order"] == first])


def _own_selections(litellm_router: Router) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the router's own asynchronous and synchronous selection, bound before a strategy replaces them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the public name of the bound method, from 1.109 on
        return litellm_router.async_get_available_deployment, litellm_router.get_available_deployment


async def _healthy(litellm_router: Router, model: str, kwargs: dict[str, Any], call: dict[str, Any]) -> Any:
    """Return the deployments that all filters leave; called once per selection, since LiteLLM keeps notes of it."""
    if hasattr(litellm_router, "registry"):  # LiteLLM 1.109 and later
        return await litellm_router.select(model, kwargs, kind="healthy", **call)  # type: ignore[attr-defined]
    return await litellm_router.async_get_healthy_deployments(model=model, request_kwargs=kwargs, **call)
