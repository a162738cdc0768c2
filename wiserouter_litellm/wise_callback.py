"""The callback of LiteLLM: it selects a deployment before a call, and adds headers to the answer.

Callbacks are global to a process: every router in it calls these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wiserouter.errors import BudgetError, StoreError
from wiserouter_litellm.deployments import Deployment
from wiserouter_litellm.errors import BudgetRefused, BudgetUncertain, ScopeRefused, uncountable
from wiserouter_litellm.group import Group, RoutingRequest
from wiserouter_litellm.limits import drop_null_limits, write_limits
from wiserouter_litellm.recorder import REQUEST_NOTE_KEY, Recorder, metadata_of, origin_of
from wiserouter_litellm.request import request_of


class WiseCallback(Recorder):
    """Selects the deployment of every call to some groups, and settles the calls."""

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
        group, kwargs = self.groups.get(model), request_kwargs if request_kwargs is not None else {}
        await self.arelease_earlier(kwargs)
        if group is None or not healthy_deployments:
            return healthy_deployments
        try:
            routing = self.begin(group, healthy_deployments, messages, kwargs)
            if routing is None:
                return healthy_deployments
            return self.record_decision(group, await group.aselect(routing), kwargs)
        except Exception as error:  # a fault here must not stop traffic
            return translate_error(group, healthy_deployments, error, kwargs)

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str] | None:
        """Return the `x-wiserouter-*` headers of an answer of one of our groups."""
        metadata = metadata_of(data)
        note, info = metadata.get(REQUEST_NOTE_KEY), metadata.get("model_info")
        marked = self.decision_of(info)  # of the deployment called last: None after a fallback to another group
        if marked is None or note is None or note["decision"] != marked.decision_id:
            return None
        served = str((litellm_call_info or {}).get("model_id") or (info or {}).get("id"))
        if served not in note["models"]:
            return None
        return {
            "x-wiserouter-model": note["models"][served],
            "x-wiserouter-context": str(note["context"]),
            "x-wiserouter-decision": note["decision"],
            **({"x-wiserouter-ask-feedback": "true"} if note["ask_feedback"] else {}),
        }

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        """Release the last attempt of a request that failed for good; not all log events say which attempt it was."""
        note = self.note_of(request_data)
        if note is not None:
            await self.arelease_noted(note)

    def begin(
        self, group: Group, healthy: Sequence[Deployment], messages: object, kwargs: dict[str, Any]
    ) -> RoutingRequest | None:
        """Return a request with its candidates and its scope; None where there is no text to route by.

        Raises
        ------
        ScopeRefused
            If no budget pays for this caller.
        litellm.BadRequestError
            If a hard budget cannot bound the call: because of a parameter, or because the call has no text.
        """
        if group.hard:
            write_limits(group.name, kwargs)
        else:
            drop_null_limits(kwargs)
        request = request_of(messages, kwargs)
        if request is None:
            if group.hard:
                raise uncountable(group.name)
            group.fault("uncounted_calls", "a call without text, such as an embedding or an image, is not counted")
            return None
        origin = origin_of(kwargs)
        scope = group.scope_resolver.scope_of(origin.metadata)
        candidates = group.candidates(healthy, origin.failed_ids)
        return RoutingRequest(candidates, request, scope, origin.call_id, origin.caller, origin.chose_id, self.owner)


def translate_error(group: Group, healthy: list[Any], error: Exception, kwargs: Mapping[str, Any]) -> list[Any]:
    """Raise LiteLLM's error for a refusal; after a fault return LiteLLM's own order, unless a limit is hard.

    Raises
    ------
    BudgetRefused
        If the budget is used up.
    ScopeRefused
        If no budget pays for this caller.
    BudgetUncertain
        If a hard budget must stay closed.
    """
    if isinstance(error, BudgetError):
        raise BudgetRefused(group.name, error, group.scope_resolver.scope_of(metadata_of(kwargs))) from error
    if isinstance(error, ScopeRefused) or type(error).__module__.startswith("litellm"):  # no model or budget takes it
        raise error
    group.fault("store" if isinstance(error, StoreError) else "selection", "selection failed", error=error)
    if group.hard:
        raise BudgetUncertain(group.name) from error
    return healthy
