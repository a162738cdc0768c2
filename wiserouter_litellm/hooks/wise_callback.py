"""The callback of LiteLLM: it selects a deployment before a call, and adds headers to the answer.

Callbacks are global to a process: every router in it calls these.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast

from wiserouter.errors import BudgetError, UnknownPrice
from wiserouter_litellm.billing.cached_answers import is_replay
from wiserouter_litellm.conversations.continuations import continued
from wiserouter_litellm.conversations.request_conversation import RequestConversation, conversation_of_request
from wiserouter_litellm.deployments.registry import Candidates, Deployment, id_of
from wiserouter_litellm.errors import uncountable
from wiserouter_litellm.groups.arm_candidates import agreeing
from wiserouter_litellm.groups.as_sent import refuse_unselected
from wiserouter_litellm.groups.direct_calls import DirectCall, direct_call, messages_of, unreserved, with_selected
from wiserouter_litellm.groups.fallbacks import (
    GROUP_NOTE_KEY,
    group_note,
    note_group,
    noted_group,
    paying_group,
    refusal,
)
from wiserouter_litellm.groups.group import DECISION_KEY, Group
from wiserouter_litellm.groups.last_look import keep_last, sparing
from wiserouter_litellm.groups.request_values import value_of
from wiserouter_litellm.groups.selection import RoutingRequest, Selection
from wiserouter_litellm.groups.shadow import acts_on, aobserved_selection, share_key_of
from wiserouter_litellm.groups.signals import signs_of
from wiserouter_litellm.groups.translated_errors import translate_error
from wiserouter_litellm.hooks.pre_call_checks import aselect_from, filtered_by_later_checks
from wiserouter_litellm.requests.client_router import refuse_client_router
from wiserouter_litellm.requests.header_text import in_header
from wiserouter_litellm.requests.origin import PARENT_SPAN, TRACE_KEY, Origin, metadata_of, origin_of
from wiserouter_litellm.requests.request import admitted_request
from wiserouter_litellm.requests.several_models import refuse_as_one_of_several
from wiserouter_litellm.settlement.further_calls import as_further_call
from wiserouter_litellm.settlement.other_surfaces import acheck_left, makes_nothing, marked_deployments, reads_response
from wiserouter_litellm.settlement.recorder import REQUEST_NOTE_KEY, Recorder


class WiseCallback(Recorder):
    """Selects the deployment of every call to some groups, and settles the calls.

    Parameters
    ----------
    groups : mapping of str to Group
        The groups by name.

    Attributes
    ----------
    selects : bool
        Whether it selects where LiteLLM filters deployments; False where a strategy selects after that.
    """

    selects = True

    def __init__(self, groups: Mapping[str, Group]) -> None:
        super().__init__(groups)
        self._names: dict[str, str] = {}  # of groups, by the aliases that requests used

    async def async_filter_deployments(
        self,
        model: str,
        healthy_deployments: list[Any],
        messages: list[Any] | None,
        request_kwargs: dict[str, Any] | None = None,
        parent_otel_span: Any = None,
    ) -> list[Any]:
        """Return the healthy deployments of our groups ranked by `order`, those of others as they are.

        Raises
        ------
        BudgetRefused, BudgetUncertain, litellm.ContextWindowExceededError, litellm.BadRequestError
            If the budget, a fault under a hard limit, or the request itself stands in the way.
        """
        kwargs = request_kwargs if request_kwargs is not None else {}
        metadata = metadata_of(kwargs)
        if REQUEST_NOTE_KEY in metadata:
            await self.asettle_earlier(kwargs)
        group = self.paying_group(model, healthy_deployments, kwargs, metadata)
        if group is None or not healthy_deployments:
            return healthy_deployments
        if group.observes and not acts_on(group, messages, kwargs):
            return await self._aobserved(group, healthy_deployments, messages, kwargs, model)
        checks = (self.registered, model, healthy_deployments, messages, kwargs, parent_otel_span)
        filtered = await filtered_by_later_checks(*checks)
        try:
            routing = self.begin(group, filtered.able, messages, kwargs, model)
            if routing is not None:
                pinned = filtered.pinned is not filtered.able
                selection = await (aselect_from(group, routing, filtered) if pinned else group.aselect(routing))
                ranked = self.record(group, selection, kwargs, metadata)
                self.attempts[selection.decision.id].may_change = keep_last(self.registered)
                return ranked
            await acheck_left(group, kwargs)
        except Exception as error:  # a fault here must not stop traffic
            if group.observes and isinstance(error, BudgetError):
                return await self._aobserved(group, healthy_deployments, messages, kwargs, model, refused=True)
            translate_error(group, filtered.able, error, kwargs)
        self.note_group(group, kwargs, metadata, filtered.able)
        return self.unrouted(group, filtered.able, kwargs)

    @sparing
    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Note that a call is sent; reserve one to the id of a deployment, for which LiteLLM selected none.

        It raises what a selection raises.
        """
        info = kwargs.get("model_info")
        if isinstance(info, Mapping) and DECISION_KEY in info:
            if (further := as_further_call(self.attempts, self._mark_of(info), kwargs)) is None:
                await self.aconfirm(info, kwargs)
                return None
            kwargs = further
        metadata = metadata_of(kwargs)
        deployment = unreserved(kwargs, metadata, self.owner)
        if deployment is None or not self.serves(deployment):
            refuse_unselected(self.groups, kwargs, call_type)
            return await super().async_pre_call_deployment_hook(kwargs, call_type)
        await self.asettle_earlier(kwargs)
        group = self.paying_group(id_of(deployment), [deployment], kwargs, metadata)
        if group is None or group.observes:  # a call to one deployment is no choice
            return None
        messages, model = messages_of(kwargs), str(deployment["model_name"])
        try:
            routing = self.begin(group, [deployment], messages, kwargs, model, direct_call(call_type, kwargs))
            selection = None if routing is None else await group.aselect(routing)
            if routing is None:
                await acheck_left(group, kwargs)
        except Exception as error:  # a fault here must not stop traffic
            translate_error(group, [deployment], error, kwargs)
            selection = None
        if selection is None:
            self.note_group(group, kwargs, metadata, [deployment])
            return with_selected(kwargs, metadata, self.unrouted(group, [deployment], kwargs)[0])
        selected = with_selected(kwargs, metadata, self.record(group, selection, kwargs, metadata)[0])
        self.attempts[selection.decision.id].may_change = keep_last(self.registered)
        await self.aconfirm(selected["model_info"], selected)
        return selected

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str] | None:
        """Return the `x-wiserouter-*` headers of an answer of one of our groups."""
        note, served = self._selection_of(data), (litellm_call_info or {}).get("model_id")
        info = metadata_of(data).get("model_info") or {}
        if served is None:
            marked, served = self.decision_of(info), info.get("id")
            note = note if marked is not None and note and note["decision"] == marked.decision_id else None
        if served == info.get("id"):  # where the request brings credentials, LiteLLM has given it another one
            served = info.get("original_model_id", served)
        if note is None or str(served) not in note["models"]:
            return None
        return {
            "x-wiserouter-model": in_header(note["models"][str(served)]),
            "x-wiserouter-context": str(note["context"]),
            "x-wiserouter-decision": note["decision"],
            **({"x-wiserouter-ask-feedback": "true"} if note["ask_feedback"] else {}),
            **({"x-wiserouter-would-be": in_header(note["would_be"])} if note["would_be"] else {}),
            **({} if note["conversation"] is None else note["conversation"].headers),
        }

    def _selection_of(self, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the note of a request's latest decision, that of a fallback included."""
        noted = metadata_of(data).get(GROUP_NOTE_KEY)
        if isinstance(noted, Mapping) and noted.get("owner") == self.owner and "selection" in noted:
            return cast("Mapping[str, Any]", noted["selection"])
        return self.note_of(data)

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        """Settle the last attempt of a request that failed for good, or that its client cancelled."""
        note = self._selection_of(request_data)
        if note is not None:
            await self.asettle_noted(note, original_exception)

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield the pieces of a stream; where its client leaves, settle its attempt, which LiteLLM may not report."""
        is_complete, attempt = False, self.attempts.get((self._selection_of(request_data) or {}).get("decision", ""))
        if attempt is not None:
            attempt.replayed = is_replay(request_data)
        try:
            async for piece in response:
                yield piece
            is_complete = True
        finally:
            note = None if is_complete else self._selection_of(request_data)
            if note is not None:
                self.attempts.end_soon(note["decision"])

    def serves(self, deployment: Deployment) -> bool:
        """Return True if a deployment belongs to the routers that this callback is for: here to any."""
        return True

    def hands_out(self, deployment: Deployment) -> bool:
        """Return True if it is these routers that hand out a deployment, and not others with deployments like it."""
        return True

    def paying_group(
        self, model: str, deployments: Sequence[Deployment], kwargs: dict[str, Any], metadata: dict[str, Any]
    ) -> Group | None:
        """Return the group whose budget pays for a call, and note it; None where none of ours does.

        Raises
        ------
        FallbackRefused
            If it is a fallback that the group's policy refuses.
        """
        if model in self.groups and not kwargs.get("fallback_depth"):
            self._names[str(metadata.get("model_group"))] = model
            if GROUP_NOTE_KEY not in metadata:  # this is the first of our groups that the request reaches
                self.note_group(self.groups[model], kwargs, metadata)
                return self.groups[model]
        noted = noted_group(metadata, kwargs, self.owner)
        noted = self._names.get(noted or "", noted)
        group = paying_group(self.groups, noted, model, deployments)
        if group is not None:
            self.note_group(group, kwargs, metadata)
        elif noted in self.groups:
            self.note_group(self.groups[noted], kwargs, metadata, deployments)
        return group

    def note_group(
        self,
        group: Group,
        kwargs: Mapping[str, Any],
        metadata: dict[str, Any],
        uncounted: Sequence[Deployment] = (),
    ) -> None:
        """Note the group that a request is made under, and the deployments that may serve it uncounted."""
        note_group(metadata, kwargs, self.owner, group.name, [id_of(each) for each in uncounted])

    def record(
        self, group: Group, selection: Selection, kwargs: Mapping[str, Any], metadata: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Note a decision in the metadata of its request, for headers and retries; return the ranked deployments."""
        decision = selection.decision
        self.attempts.begin(group, decision, selection.worst_usd, selection.mark)
        metadata[REQUEST_NOTE_KEY] = metadata.setdefault(GROUP_NOTE_KEY, {})["selection"] = {
            "owner": self.owner,
            "group": group.name,
            "trace": kwargs.get(TRACE_KEY),
            "decision": decision.id,
            "context": decision.context,
            "ask_feedback": decision.ask_feedback,
            "would_be": decision.would_be,
            "models": selection.models,
            "conversation": selection.conversation,
        }
        return selection.deployments

    async def _aobserved(
        self, group: Group, healthy: list[Any], messages: object, kwargs: dict[str, Any], model: str, **terms: bool
    ) -> list[Any]:
        """Record the choice for a request in shadow mode, and return the deployments in their order."""
        selection = await aobserved_selection(group, self.owner, healthy, messages, kwargs, model, **terms)
        return healthy if selection is None else self.record(group, selection, kwargs, metadata_of(kwargs))

    def begin(
        self,
        group: Group,
        healthy: Sequence[Deployment],
        messages: object,
        kwargs: dict[str, Any],
        model: str = "",
        call: DirectCall | None = None,
    ) -> RoutingRequest | None:
        """Return a request with its candidates and its scope; None where there is no text to route by.

        Parameters
        ----------
        group : Group
            The group whose budget pays.
        healthy : sequence of mapping
            The deployments that can serve the request.
        messages, model : list of dict or None, str
            As LiteLLM passes them; a fallback is asked for under another model group.
        kwargs : dict
            The request's keyword arguments; its limits are written back.
        call : DirectCall, optional
            The call, where LiteLLM selects no deployment for it.

        Raises
        ------
        FallbackRefused
            If no deployment of a fallback has a price.
        ScopeRefused
            If no budget pays for this caller.
        litellm.BadRequestError
            If a hard budget cannot bound the call: because of a parameter, or because the call has no text. If the
            request asks several models at once, or brings a router of its own.
        """
        if "proxy_server_request" in kwargs:
            refuse_as_one_of_several(group.name, kwargs, model)
            refuse_client_router(group.name, kwargs)
        surface, given = call or ("", None)
        request = admitted_request(
            group.name, messages, kwargs, surface, given, hard=group.hard, reads_question=group.reads_question
        )
        if request is None:
            if group.hard and not makes_nothing(messages, kwargs, given):
                raise uncountable(group.name)
            return None
        origin = origin_of(kwargs)
        scope = group.scope_resolver.scope_of(origin.metadata)
        candidates = candidates_of(group, healthy, origin.failed_ids, model, are_calls=call is not None)
        if group.registry.has_arms:
            candidates = agreeing(group.registry, candidates, None if call else kwargs)
            group.add_missing_models(one.info for one in candidates)
        candidates, references, lasting_ids = continued(candidates, messages, kwargs)
        return RoutingRequest(
            candidates,
            request,
            scope,
            origin.call_id,
            origin.caller,
            origin.chose_id,
            self.owner,
            references,
            lasting_ids,
            self._conversation_of(messages, kwargs, origin, scope) if group.keeps_conversations else None,
            None if group.signals is None else signs_of(messages, kwargs, origin),
            origin.metadata.get(PARENT_SPAN) if group.traces else None,
            None if group.value_rule is None else value_of(group.name, group.value_rule, kwargs, origin.metadata),
            share_key_of(messages, kwargs) if group.observes else None,
        )

    def _conversation_of(
        self, messages: object, kwargs: dict[str, Any], origin: Origin, scope: str
    ) -> RequestConversation | None:
        """Return the conversation of a request, that of its earlier attempts where it has any."""
        noted = group_note(origin.metadata, kwargs, self.owner) or {}
        earlier = (noted.get("selection") or {}).get("conversation")
        known = None if earlier is None else earlier.id
        return conversation_of_request(messages, kwargs, origin.metadata, origin.caller, scope, known)

    def unrouted(self, group: Group, deployments: list[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return deployments among which LiteLLM picks by itself, marked so that the call is charged after its answer.

        Raises
        ------
        ScopeRefused
            If no budget pays for this caller.
        """
        if not kwargs or reads_response(kwargs):  # without arguments, LiteLLM counts tokens, and no call follows
            return deployments
        scope = group.scope_resolver.scope_of(metadata_of(kwargs))
        return marked_deployments(deployments, self.owner, group.name, scope, kwargs.get("litellm_logging_obj"))


def candidates_of(
    group: Group, healthy: Sequence[Deployment], failed_ids: set[str], model: str, *, are_calls: bool = False
) -> Candidates:
    """Return the candidates of a request, those of a fallback under the model group that it goes to.

    Models that are new join the pool, and those whose deployments have changed follow these.

    Raises
    ------
    UnknownPrice, FallbackRefused
        If none of them has a price.
    """
    is_fallback = model not in {"", group.name}
    candidates, new = group.registry.resolve(healthy, failed_ids, model if is_fallback else "", are_calls=are_calls)
    if new:
        group.add_new_models(new)
    if not candidates:
        error = UnknownPrice(str(healthy[0]["litellm_params"].get("model")), "price, nor has any other that is healthy")
        raise refusal(group, model, str(error)) if is_fallback else error
    return candidates
