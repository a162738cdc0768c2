"""Shadow mode in LiteLLM: LiteLLM selects a deployment as without us, and the router records its own choice beside it.

The deployments are returned as they came, each copy with the mark of the decision, so that the log event of the call
brings the true cost of what ran. No request is refused, waits for a budget, or is changed; what goes wrong here is
counted as the fault `shadow`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from wiserouter.integration import ContextAssignment, offload, share_key
from wiserouter_litellm.conversations.conversation_ids import stated_ids, tenant_of
from wiserouter_litellm.conversations.feedback_keys import keys_of_decision
from wiserouter_litellm.deployments.registry import Deployment, DeploymentInfo, id_of
from wiserouter_litellm.groups.arm_candidates import arm_note, as_called
from wiserouter_litellm.groups.attempts import Mark
from wiserouter_litellm.groups.candidates import bounds_of
from wiserouter_litellm.groups.group import DECISION_KEY, ONLY_CONTEXT, Group
from wiserouter_litellm.groups.scopes import OWN
from wiserouter_litellm.groups.selection import RoutingRequest, Selection
from wiserouter_litellm.groups.signals import read_request, signs_of
from wiserouter_litellm.requests.client_router import brings_router
from wiserouter_litellm.requests.origin import origin_of
from wiserouter_litellm.requests.request import request_of


def acts_on(group: Group, messages: object, kwargs: dict[str, Any]) -> bool:
    """Return True if a group in shadow mode acts on a request: one with text, whose conversation is in its share.

    Parameters
    ----------
    group : Group
        The group.
    messages : list of dict or None
        As LiteLLM passes them.
    kwargs : mapping
        The request's keyword arguments.
    """
    shadow = group.router.shadow
    if shadow is None or not shadow.share or request_of(messages, kwargs, reads_question=False) is None:
        return False
    return shadow.acts(share_key_of(messages, kwargs))


def share_key_of(messages: object, kwargs: dict[str, Any]) -> str:
    """Return the key by which a request is on one side of shadow mode with the others of its conversation."""
    origin = origin_of(kwargs)
    items = kwargs.get("input") if messages is None else messages
    turns = [items] if isinstance(items, str) else items if isinstance(items, list | tuple) else []
    return share_key(stated_ids(kwargs, origin.caller), turns, tenant_of(origin.metadata))


def observed_request(
    group: Group, owner: str, healthy: Sequence[Deployment], messages: object, kwargs: dict[str, Any], model: str
) -> RoutingRequest | None:
    """Return a request that is only observed, which is left as it is; None for one that is not.

    That is one without a text to route by, and one that LiteLLM sends to deployments of the client's own.

    Parameters
    ----------
    group, messages, kwargs
        As in `acts_on`.
    owner : str
        The recorder whose log events settle it.
    healthy : sequence of mapping
        The deployments that LiteLLM may select.
    model : str
        The model group that LiteLLM asks, another one for a fallback.
    """
    request = request_of(messages, kwargs, reads_question=group.reads_question)
    if request is None or brings_router(kwargs):
        return None
    origin = origin_of(kwargs)
    scope = group.scope_resolver.scope_of(origin.metadata)
    registered = "" if model in {"", group.name} else model
    candidates, new = group.registry.resolve(healthy, origin.failed_ids, registered)
    if new:
        group.add_new_models(new)
    signs = None if group.signals is None else signs_of(messages, kwargs, origin)
    told = (origin.call_id, origin.caller, origin.chose_id, owner)
    key = share_key_of(messages, kwargs)
    return RoutingRequest(candidates, request, scope, *told, signs=signs, share_key=key)


async def aobserve(
    group: Group, routing: RoutingRequest, healthy: Sequence[Any], ran: Mapping[str, DeploymentInfo], *, refused: bool
) -> Selection:
    """Record the choice for a request off the event loop where the store is waited for; see `observe`."""
    step = partial(observe, group, routing, await group.aplaced(routing), healthy, ran, refused=refused)
    waits = group.durable and group.router.waits(routing.scope)
    return await offload(step) if waits else step()


def observe(
    group: Group,
    routing: RoutingRequest,
    assignment: ContextAssignment,
    healthy: Sequence[Any],
    ran: Mapping[str, DeploymentInfo],
    *,
    refused: bool,
) -> Selection:
    """Record the choice for a request, and return all deployments in their order, each with the mark.

    Parameters
    ----------
    group : Group
        In shadow mode.
    routing : RoutingRequest
        The request.
    assignment : ContextAssignment
        The context of its question.
    healthy : sequence of mapping
        The deployments that LiteLLM may select.
    ran : mapping of str to DeploymentInfo
        The model that each of them is with the parameters of this request, by id.
    refused : bool
        Whether the budget of the calls that the group acts on has refused it.
    """
    if routing.scope != OWN:
        group.scope_resolver.open(routing.scope)
    bounds = bounds_of(
        group.name, routing.request, routing.candidates, group.cap_output_tokens, exact=False, hard=False
    )
    decision = group.router.observe(
        context=assignment.context,
        embedding=assignment.embedding,
        eligible=bounds.models,
        scope=routing.scope,
        draw_key=group.draw_key(routing, assignment),
        acts=False,
        share_key=routing.share_key,
        refused=refused,
        call_id=None if routing.chose_id else routing.call_id,  # a chosen id may be that of another call
    )
    keys = keys_of_decision(decision.id, routing.call_id, routing.caller, chosen=routing.chose_id)
    group.alias(keys, decision.id)
    mark = Mark(owner=routing.owner, group=group.name, id=decision.id, keys=keys, caller=routing.caller)
    if group.signals is not None:
        read_request(group, group.signals, routing, mark)
    notes = {id_: arm_note(info) for id_, info in ran.items()}
    copies = [_marked(one, {DECISION_KEY: mark, **notes.get(id_of(one), {})}) for one in healthy]
    return Selection(decision, copies, {id_: info.model for id_, info in ran.items()}, mark, None)


def _as_called(group: Group, routing: RoutingRequest, kwargs: Mapping[str, Any]) -> dict[str, DeploymentInfo]:
    """Return the model that each deployment is with the parameters of a request; a plain one joins the pool."""
    if not group.registry.has_arms:
        return {one.id: one.info for one in routing.candidates}
    ran = as_called(group.registry, routing.candidates, kwargs)
    group.add_missing_models(ran.values())
    return ran


def _marked(deployment: Deployment, notes: Mapping[str, object]) -> dict[str, Any]:
    return {**deployment, "model_info": {**(deployment.get("model_info") or {}), **notes}}


def observed_selection(
    group: Group,
    owner: str,
    healthy: Sequence[Deployment],
    messages: object,
    kwargs: dict[str, Any],
    model: str,
    *,
    refused: bool = False,
) -> Selection | None:
    """Do what `observed_request` and `observe` do, in a thread that may wait; None where nothing is recorded."""
    try:
        routing = observed_request(group, owner, healthy, messages, kwargs, model)
        if routing is None:
            return None
        placed = group.lookup.look_up(routing.request.question) if group.lookup.needs_question else ONLY_CONTEXT
        return observe(group, routing, placed, healthy, _as_called(group, routing, kwargs), refused=refused)
    except Exception as error:  # the call goes where it went
        group.fault("shadow", "a call is not observed", error=error)
        return None


async def aobserved_selection(
    group: Group,
    owner: str,
    healthy: Sequence[Deployment],
    messages: object,
    kwargs: dict[str, Any],
    model: str,
    *,
    refused: bool = False,
) -> Selection | None:
    """Do what `observed_selection` does, off the event loop where something is waited for."""
    try:
        routing = observed_request(group, owner, healthy, messages, kwargs, model)
        if routing is None:
            return None
        return await aobserve(group, routing, healthy, _as_called(group, routing, kwargs), refused=refused)
    except Exception as error:  # the call goes where it went
        group.fault("shadow", "a call is not observed", error=error)
        return None
