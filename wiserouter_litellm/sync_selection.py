"""Selection on LiteLLM's synchronous path, which has no hook: its own pick is asked for one model after the other.

All but the deployments of one model are excluded at a time, so that health, cooldowns and the router's own strategy go
on to count. The key that excludes them is one that LiteLLM uses itself, for failover between deployments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from litellm.router import Router
from litellm.types.router import RouterRateLimitError

from wiserouter_litellm.deployments import Deployment, id_of
from wiserouter_litellm.group import Group, Selection
from wiserouter_litellm.litellm_compat import deployments_of
from wiserouter_litellm.wise_callback import WiseCallback, translate_error

Pick = Callable[..., Any]

_EXCLUDED = "_excluded_deployment_ids"
_CONSUMED = (_EXCLUDED, "_target_order", "_retry_skipped_deployment_ids")


def selecting(litellm_router: Router, callback: WiseCallback, pick: Pick) -> Pick:
    """Return LiteLLM's synchronous selection with ours before it.

    Parameters
    ----------
    litellm_router : litellm.Router
        Whose selection it is.
    callback : WiseCallback
        Whose groups are selected for; the others go their own way.
    pick : callable
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

        def go_on() -> Any:
            return pick(
                model=model,
                messages=messages,
                input=input,
                specific_deployment=specific_deployment,
                request_kwargs=kwargs,
            )

        callback.release_earlier(kwargs)
        group = None if specific_deployment else callback.groups.get(model)
        if group is None:
            return go_on()
        return pick_in_order(callback, group, deployments_of(litellm_router, model), messages, kwargs, go_on)

    return get_available_deployment


def pick_in_order(
    callback: WiseCallback,
    group: Group,
    deployments: Sequence[Deployment],
    messages: object,
    kwargs: dict[str, Any],
    pick: Callable[[], Any],
) -> Any:
    """Return the deployment of the best model that LiteLLM finds healthy.

    Parameters
    ----------
    callback : WiseCallback
        Whose decisions these are.
    group : Group
        The group of the call.
    deployments : sequence of mapping
        All deployments of the group.
    messages : list of dict or None
        As LiteLLM passes them.
    kwargs : dict
        The request's keyword arguments; LiteLLM's pick reads them.
    pick : callable
        LiteLLM's own pick.

    Raises
    ------
    BudgetRefused, BudgetUncertain, litellm.ContextWindowExceededError, litellm.BadRequestError
        As the selection hook does.
    RouterRateLimitError
        If no deployment is healthy.
    """
    try:
        asked = callback.begin(group, deployments, messages, kwargs)
        selected = None if asked is None else group.select(asked)
    except Exception as error:  # whatever fails here must not take traffic down
        translate_error(group, [], error, kwargs)
        selected = None
    if selected is None:
        return pick()
    try:
        picked = _first_healthy(selected, {id_of(d) for d in deployments}, kwargs, pick)
    except Exception:
        group.release(selected.decision.id)
        raise
    callback.record_decision(group, selected, kwargs)
    return picked


def _first_healthy(selected: Selection, all_ids: set[str], kwargs: dict[str, Any], pick: Callable[[], Any]) -> Any:
    """Return our copy of what LiteLLM picks among the deployments of the best model that has a healthy one."""
    ranked = sorted(selected.deployments, key=lambda copy: copy["litellm_params"]["order"])
    orders = list(dict.fromkeys(copy["litellm_params"]["order"] for copy in ranked))
    consumed = {key: kwargs[key] for key in _CONSUMED if key in kwargs}
    for order in orders:
        copies = {id_of(copy): copy for copy in ranked if copy["litellm_params"]["order"] == order}
        kwargs |= {**consumed, _EXCLUDED: [*consumed.get(_EXCLUDED, ()), *(all_ids - copies.keys())]}
        try:
            picked = pick()
        except RouterRateLimitError:
            if order == orders[-1]:
                raise
            continue
        return copies.get(id_of(picked), picked)
    raise RuntimeError("a selection holds at least one deployment")
