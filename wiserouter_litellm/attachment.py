"""`attach`: route a model group of a `litellm.Router` in Python, asynchronous calls and synchronous ones.

Asynchronous calls go through the selection hook. LiteLLM has no such hook on its synchronous path, so `attach` also
wraps the router's synchronous selection, on that one object.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Literal

from litellm.router import Router

from wiserouter import Budget, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.integration import MAX_WAIT_S, DrawBy, Params, Unit, shadow_of
from wiserouter_litellm.deployments.litellm_compat import (
    call_defaults_of,
    check_litellm,
    deployments_of,
    hands_out,
    ownership,
)
from wiserouter_litellm.deployments.registry import Deployment
from wiserouter_litellm.groups.group import FallbackPolicy
from wiserouter_litellm.groups.group_setup import Limit, conversation_terms, open_group
from wiserouter_litellm.groups.request_values import value_in_metadata
from wiserouter_litellm.groups.scopes import ScopeFromMetadata
from wiserouter_litellm.hooks.dispatcher import register, unregister
from wiserouter_litellm.hooks.pre_call_checks import move_before_pins
from wiserouter_litellm.hooks.sync_selection import selecting
from wiserouter_litellm.hooks.wise_callback import WiseCallback

_ATTACHED = "_wiserouter_callback"
_SYNC = "get_available_deployment"
_CALL = "async_function_with_fallbacks"
_CHECK = "routing_strategy_pre_call_checks"


def attach(
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
    mode: Literal["route", "shadow"] = "route",
    share: float = 0.0,
    signals: Sequence[str] = (),
    arms: Mapping[str, Sequence[Params]] | None = None,
) -> WiseCallback:
    """Route the calls of one model group of a LiteLLM router under a budget.

    Parameters
    ----------
    litellm_router : litellm.Router
        With the group's deployments.
    group : str
        The group: a `model_name`, or the `group_name` of a routing group.
    router : WiseRouter, optional
        Fitted on history, with the budget started or given here. By default one that knows the deployments' prices and
        learns the rest. Groups that are attached with the same router share its budget.
    budget : Budget, optional
        Started on the router; needed where none runs yet.
    cap_output_tokens : int, optional
        The limit of the output where a request sets none; also sent to the provider.
    encoder_timeout_s : float, default 1
        The longest time that a question waits for its embedding before it is routed without a context.
    max_wait_s : float, default 10
        How long a request waits while the rest of the budget is only held by calls in flight; 0 refuses it at once.
    fallback_policy : {"inside", "refuse", "outside"}, default "inside"
        Whether the group's budget pays for calls that LiteLLM sends on to another group, they are refused, or they are
        outside of the budget, which the fault `outside_calls` counts.
    draw_by : {"request", "question", "context"}, default "request"
        Where the plan mixes two models, each call draws for itself, or those of equal questions, or of one context and
        hour, get the same model.
    unit : {"call", "conversation", "run"}, optional
        Decide each call alone, each turn of a chat with its warm caches in the price, or once for all calls of a run.
        By default as `router` does, or "call".
    run_budget_usd, run_limit, conversation_ttl_s : optional
        As in `Conversations`.
    mode : {"route", "shadow"}, default "route"
        In shadow mode the router decides and records, and LiteLLM selects as without it.
    share : float, default 0
        In shadow mode: the share of conversations on which it acts, within the same share of the budget.
    signals : sequence of str, optional
        Names of rules that score an answer 0 where it has certainly failed, such as "truncated".
    arms : mapping of str to sequence of mapping, optional
        The parameters with which the deployments of a model are called, a model of the pool for each:
        `{"gpt-5": [{"reasoning_effort": "low"}, {"reasoning_effort": "high"}]}`. By default those of `router`.

    Returns
    -------
    WiseCallback
        Takes feedback. Attaching another group of the same router extends it.

    Raises
    ------
    InvalidInput
        If the group has no deployments, is attached already, there is no budget, or LiteLLM takes no callback.
    SettingsError
        If LiteLLM is of a version whose router could not keep a budget: 1.110 or later.
    UnknownPrice
        If a deployment has no price, or a hard budget could never bound its calls.

    Notes
    -----
    A call with `metadata={"wiserouter_scope": "team-a"}` is paid from the budget of that scope, which
    `router.start(budget, scope="team-a")` starts.

    Examples
    --------
    >>> import litellm
    >>> answer = {"model": "openai/small", "api_key": "none", "mock_response": "hello"}
    >>> price = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    >>> llms = litellm.Router([{"model_name": "wise", "litellm_params": {**answer, **price}}])
    >>> callback = attach(llms, "wise", budget=Budget(amount_usd=1.0, horizon=100))
    >>> llms.completion(model="wise", messages=[{"role": "user", "content": "hi"}]).choices[0].message.content
    'hello'
    >>> detach(llms)
    """
    check_litellm()
    callback: AttachedCallback | None = getattr(litellm_router, _ATTACHED, None)
    if callback is not None and group in callback.groups:
        raise InvalidInput(f"group {group!r} is attached already: detach(router) first", value=group)
    sharing = [] if callback is None else [one for one in callback.groups.values() if one.router is router]
    if sharing and budget is not None:
        raise InvalidInput(
            f"group {group!r} shares the router of group {sharing[0].name!r}, whose budget runs: leave out budget",
            value=budget,
        )
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
        sharing=sharing,
        shadow=shadow_of(mode, share),
        rules=signals,
    )
    opened.value_rule = value_in_metadata
    if callback is None:
        callback = AttachedCallback(litellm_router)
        register(callback)
        setattr(litellm_router, _ATTACHED, callback)
        setattr(litellm_router, _SYNC, selecting(litellm_router, callback, getattr(litellm_router, _SYNC)))
        setattr(litellm_router, _CALL, _ending(callback, getattr(litellm_router, _CALL)))
        callback.watch_checks()
        move_before_pins(callback.registered)
    opened.registry.is_served = ownership(litellm_router)
    callback.groups[group] = opened
    return callback


def detach(litellm_router: Router) -> None:
    """Undo `attach`: the router goes back to its own strategy; calls in flight are no longer settled."""
    callback = getattr(litellm_router, _ATTACHED, None)
    if callback is None:
        return
    delattr(litellm_router, _ATTACHED)
    delattr(litellm_router, _SYNC)
    delattr(litellm_router, _CHECK)
    delattr(litellm_router, _CALL)
    unregister(callback)


def _ending(callback: AttachedCallback, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return LiteLLM's function for a call with its retries and fallbacks, which ends attempts that it never sent."""

    @wraps(call)
    async def ending(*arguments: Any, **kwargs: Any) -> Any:
        try:
            return await call(*arguments, **kwargs)
        except Exception:
            await callback.aend_unsent(kwargs)
            raise

    return ending


class AttachedCallback(WiseCallback):
    """The callback of one LiteLLM router; it ignores the other routers of the process.

    Parameters
    ----------
    litellm_router : litellm.Router
        The router whose calls it selects deployments for.
    """

    def __init__(self, litellm_router: Router) -> None:
        super().__init__({})
        self._router, self._owns = litellm_router, ownership(litellm_router)

    def serves(self, deployment: Deployment) -> bool:
        """Return True if a deployment is one of this router's."""
        return self._owns(str((deployment.get("model_info") or {}).get("id")))

    def hands_out(self, deployment: Deployment) -> bool:
        """Return True if a deployment is the very one of this router."""
        return hands_out(self._router, deployment)

    def watch_checks(self) -> None:
        """Have the calls released that LiteLLM's limits of a deployment refuse on the synchronous path.

        They are checked after the last step that a callback sees on that path.
        """
        check = getattr(self._router, _CHECK)

        @wraps(check)
        def checking(deployment: Deployment) -> None:
            try:
                check(deployment=deployment)
            except Exception:
                attempt = self._attempt_of(deployment.get("model_info"))
                if attempt is not None and attempt.decision.id in self.attempts:
                    del self.attempts[attempt.decision.id]
                    attempt.sent = False
                    attempt.settle(None)
                raise

        setattr(self._router, _CHECK, checking)

    async def aend_unsent(self, kwargs: Mapping[str, Any]) -> None:
        """Release the attempt of a call that failed before it was sent, such as by a filter or a limit of LiteLLM's.

        LiteLLM reports no such failure, and the reservation would be held until Python frees the attempt.
        """
        note = self._earlier(kwargs)
        if note is not None and (attempt := self.attempts.get(note["decision"])) and not attempt.sent:
            await self._aend(note["decision"], None)
