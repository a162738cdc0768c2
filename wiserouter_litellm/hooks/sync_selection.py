"""Selection on LiteLLM's synchronous path, which has no hook: LiteLLM selects within one model after the other.

All but the deployments of one model are excluded at a time, so that health, cooldowns and the router's own strategy
still apply. The key that excludes them is the one that LiteLLM uses for failover between deployments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from litellm.router import Router
from litellm.types.router import RouterRateLimitError

from wiserouter.errors import BudgetError
from wiserouter_litellm.deployments.litellm_compat import deployments_of
from wiserouter_litellm.deployments.registry import Deployment, id_of
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.last_look import keep_last
from wiserouter_litellm.groups.selection import Selection
from wiserouter_litellm.groups.shadow import acts_on, observed_selection
from wiserouter_litellm.groups.single_send import send_once
from wiserouter_litellm.groups.translated_errors import translate_error
from wiserouter_litellm.hooks.wise_callback import WiseCallback
from wiserouter_litellm.requests.origin import metadata_of
from wiserouter_litellm.settlement.other_surfaces import check_left

Select = Callable[..., Any]

_EXCLUDED = "_excluded_deployment_ids"
_CONSUMED = (_EXCLUDED, "_target_order", "_retry_skipped_deployment_ids")


def selecting(litellm_router: Router, callback: WiseCallback, select: Select) -> Select:
    """Return LiteLLM's synchronous selection, preceded by ours.

    Parameters
    ----------
    litellm_router : litellm.Router
        The router that it is for.
    callback : WiseCallback
        Selects for its groups; other groups keep LiteLLM's selection.
    select : callable
        LiteLLM's own selection, bound before this one replaces it.
    """

    def get_available_deployment(
        model: str,
        messages: Any = None,
        input: Any = None,  # noqa: A002 - LiteLLM's name
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = request_kwargs if request_kwargs is not None else {}

        def select_by_litellm() -> Any:
            return select(
                model=model,
                messages=messages,
                input=input,
                specific_deployment=specific_deployment,
                request_kwargs=kwargs,
            )

        callback.settle_earlier(kwargs)
        metadata = metadata_of(kwargs)
        if specific_deployment:
            return select_by_litellm()
        deployments, select_one = deployments_of(litellm_router, model), select_by_litellm
        if not deployments:  # the id of one, or a pattern: there is nothing to choose from
            only = select_by_litellm()
            deployments, select_one = [only], lambda: only
        group = callback.paying_group(model, deployments, kwargs, metadata)
        if group is None:
            return select_one()
        return select_in_order(callback, group, deployments, messages, kwargs, select_one, model)

    return get_available_deployment


def select_in_order(
    callback: WiseCallback,
    group: Group,
    deployments: Sequence[Deployment],
    messages: object,
    kwargs: dict[str, Any],
    select: Callable[[], Any],
    model: str,
) -> Any:
    """Return the deployment of the best model that LiteLLM finds healthy.

    Parameters
    ----------
    callback : WiseCallback
        Owns the decision.
    group : Group
        The group of the call.
    deployments : sequence of mapping
        All deployments of the group.
    messages : list of dict or None
        As LiteLLM passes them.
    kwargs : dict
        The request's keyword arguments; LiteLLM's selection reads them.
    select : callable
        LiteLLM's own selection.
    model : str
        The model group that LiteLLM asks, another one for a fallback.

    Raises
    ------
    BudgetRefused, BudgetUncertain, litellm.ContextWindowExceededError, litellm.BadRequestError
        As the selection hook does.
    RouterRateLimitError
        If no deployment is healthy.
    """
    if group.observes and not acts_on(group, messages, kwargs):
        return _observed(callback, group, select, messages, kwargs, model)
    consumed = {key: kwargs[key] for key in _CONSUMED if key in kwargs}
    try:
        routing = callback.begin(group, deployments, messages, kwargs, model)
        selection = None if routing is None else group.select(routing)
        if routing is None:
            check_left(group, kwargs)
    except Exception as error:  # a fault here must not stop traffic
        if group.observes and isinstance(error, BudgetError):
            kwargs |= consumed
            return _observed(callback, group, select, messages, kwargs, model, refused=True)
        translate_error(group, [], error, kwargs)
        selection = None
    kwargs |= consumed
    if selection is None:
        return callback.unrouted(group, [select()], kwargs)[0]
    try:
        deployment = _first_healthy(selection, {id_of(each) for each in deployments}, kwargs, select)
    except Exception:
        group.release(selection.decision.id)
        raise
    callback.record(group, selection, kwargs, metadata_of(kwargs))
    attempt = callback.attempts[selection.decision.id]
    send_once(callback.attempts.while_open(attempt))
    if keep_last(callback.registered):  # LiteLLM asks callbacks on this path about responses alone
        attempt.watch_call(deployment["litellm_params"])
    callback.confirm(deployment["model_info"], kwargs)
    return deployment


def _observed(
    callback: WiseCallback,
    group: Group,
    select: Callable[[], Any],
    messages: object,
    kwargs: dict[str, Any],
    model: str,
    **terms: bool,
) -> Any:
    """Return the deployment that LiteLLM selects, with the mark of the choice that is recorded beside it."""
    deployment = select()
    selection = observed_selection(group, callback.owner, [deployment], messages, kwargs, model, **terms)
    if selection is None:
        return deployment
    return callback.record(group, selection, kwargs, metadata_of(kwargs))[0]


def _first_healthy(selection: Selection, all_ids: set[str], kwargs: dict[str, Any], select: Callable[[], Any]) -> Any:
    """Return our copy of the deployment that LiteLLM selects for the best model that has a healthy one.

    A deployment of a pattern keeps the model that LiteLLM put in place of the pattern.
    """
    ranked = sorted(selection.deployments, key=lambda copy: copy["litellm_params"]["order"])
    orders = list(dict.fromkeys(copy["litellm_params"]["order"] for copy in ranked))
    consumed = {key: kwargs[key] for key in _CONSUMED if key in kwargs}
    for order in orders:
        copies = {id_of(copy): copy for copy in ranked if copy["litellm_params"]["order"] == order}
        kwargs |= {**consumed, _EXCLUDED: [*consumed.get(_EXCLUDED, ()), *(all_ids - copies.keys())]}
        try:
            selected = select()
        except RouterRateLimitError:
            if order == orders[-1]:
                raise
            continue
        finally:
            kwargs.pop(_EXCLUDED, None)  # where LiteLLM has nothing to exclude, it would send it to the provider
        copy = copies.get(id_of(selected))
        if copy is None:
            return selected
        return {**copy, "litellm_params": {**copy["litellm_params"], "model": selected["litellm_params"]["model"]}}
    raise RuntimeError("a selection holds at least one deployment")
