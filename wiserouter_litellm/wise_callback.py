"""The hooks that LiteLLM calls: selection before a call, the bill or the release after it, headers with the answer.

Callbacks are global to a process: every router in it calls these. A decision travels in the `model_info` of the
deployment's copy, one per attempt, so that the log event of a retry or a fallback cannot be taken for another's.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from litellm.integrations.custom_logger import CustomLogger

from wiserouter.errors import BudgetError, StoreError, UnknownDecision
from wiserouter.stores.offload import offload
from wiserouter_litellm.billing import Bill, bill_of
from wiserouter_litellm.deployments import Deployment
from wiserouter_litellm.errors import BudgetRefused, BudgetUncertain, ScopeRefused, UnknownCall
from wiserouter_litellm.feedback_keys import feedback_key, is_chosen, keys_to_try
from wiserouter_litellm.group import DECISION_KEY, Group, RoutingRequest, Selection
from wiserouter_litellm.request import request_of

REQUEST_NOTE_KEY = "wiserouter"
"""Key of the request's metadata under which the latest decision is recorded, for headers and retries."""


class Marked(NamedTuple):
    """The decision that a log event belongs to, and the names that feedback finds it by."""

    group: Group
    decision_id: str
    names: list[str]


class Recorder(CustomLogger):
    """Settles the calls of some groups, whoever selected their deployments.

    Parameters
    ----------
    groups : mapping of str to Group
        The groups by name.
    """

    def __init__(self, groups: Mapping[str, Group]) -> None:
        super().__init__()
        self.groups = dict(groups)
        self.owner = uuid.uuid4().hex

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Charge the call."""
        if settled := self._answered(kwargs):
            await settled.group.offload(partial(self._charge, settled, kwargs, response_obj))

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Release the attempt."""
        if settled := self._failed(kwargs):
            await settled.group.offload(partial(settled.group.release, settled.decision_id))

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Charge the call, where it was a synchronous one."""
        if settled := self._answered(kwargs):
            self._charge(settled, kwargs, response_obj)

    def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Release the attempt, where it was a synchronous one."""
        if settled := self._failed(kwargs):
            settled.group.release(settled.decision_id)

    def feedback(
        self,
        call: object,
        score: float,
        *,
        comment: str | None = None,
        caller: str | None = None,
        any_caller: bool = False,
    ) -> bool:
        """Take a user's score of an answer.

        Parameters
        ----------
        call : str or response
            The call id (`x-litellm-call-id`), the decision id (`x-wiserouter-decision`), the response id, or the
            answer itself.
        score : float
            In [0, 1].
        comment : str, optional
            Kept in the journal, where there is one.
        caller : str, optional
            The hash of the key that asks; only the key that made a call may rate it.
        any_caller : bool, default False
            For administrators.

        Returns
        -------
        bool
            Whether it replaced an earlier score.

        Raises
        ------
        UnknownCall
            If there is no such call of this caller.
        AlreadySettled
            If the call failed.
        InvalidInput
            If the score is outside [0, 1].
        StoreUnavailable
            If the store that may know the call cannot be reached.
        """
        id_ = _call_id(call)
        unavailable: StoreError | None = None
        for group in self.groups.values():
            for name in keys_to_try(id_, caller, any_caller=any_caller):
                try:
                    return group.router.reward(name, score, comment=comment)
                except UnknownDecision:
                    continue
                except StoreError as error:
                    unavailable = error
                    break
        raise unavailable or UnknownCall(id_)

    async def afeedback(self, call: object, score: float, **terms: Any) -> bool:
        """Do what `feedback` does, off the event loop where a store is waited for."""
        step = partial(self.feedback, call, score, **terms)
        return await offload(step) if any(group.router.waits() for group in self.groups.values()) else step()

    def decision_of(self, model_info: object) -> Marked | None:
        """Return the decision that a deployment's `model_info` carries, if it is one of ours."""
        mark = model_info.get(DECISION_KEY) if isinstance(model_info, Mapping) else None
        if not isinstance(mark, Mapping) or mark.get("owner") != self.owner:
            return None
        return Marked(self.groups[mark["group"]], mark["id"], mark["names"])

    def _answered(self, kwargs: Mapping[str, Any]) -> Marked | None:
        """Return the decision behind a call that was answered."""
        return self.decision_of(_answering(kwargs))

    def _failed(self, kwargs: Mapping[str, Any]) -> Marked | None:
        """Return the decision behind an attempt, by its own copy of the deployment: the metadata may be at the next."""
        return self.decision_of((kwargs.get("litellm_params") or {}).get("model_info"))

    def _charge(self, settled: Marked, kwargs: Mapping[str, Any], response: object) -> None:
        group, decision_id, _ = settled
        deployment_id = _answering(kwargs).get("id")
        info = group.registry.find(deployment_id)
        if info is None:
            group.fault("lost_decisions", f"deployment {deployment_id} answered, and is unknown")
            return
        try:
            bill = bill_of(kwargs, response, info)
        except Exception as error:  # an answer that cannot be read was paid for all the same
            group.fault("accounting", "the bill of a call cannot be read: what it reserved is charged", error=error)
            bill = Bill(group.router.decision(decision_id).reserved_usd, info.model)
        group.settle(decision_id, bill)
        _rename(settled, kwargs, response, bill)
        if bill.estimated:
            group.fault(
                "estimated_costs",
                f"{bill.model} answered without a usage block, so its tokens were estimated; for streams pass "
                f"stream_options={{'include_usage': True}}",
            )


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
            asked = self.begin(group, healthy_deployments, messages, kwargs)
            if asked is None:
                return healthy_deployments
            return self.record_decision(group, await group.aselect(asked), kwargs)
        except Exception as error:  # whatever fails here must not take traffic down
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
        metadata = _metadata(data)
        note, info = metadata.get(REQUEST_NOTE_KEY), metadata.get("model_info")
        settled = self.decision_of(
            info
        )  # of the deployment that was called last: none after a fallback to another group
        if settled is None or note is None or note["decision"] != settled.decision_id:
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
        """Release the last attempt of a request that failed for good; not all log events tell which attempt it was."""
        note = self._note(request_data)
        if note is not None:
            group = self.groups[note["group"]]
            await group.offload(partial(group.release, note["decision"]))

    def begin(
        self, group: Group, healthy: Sequence[Deployment], messages: object, kwargs: dict[str, Any]
    ) -> RoutingRequest | None:
        """Return what a request asks for, and who pays; None where there is no text to route by.

        Raises
        ------
        ScopeRefused
            If nobody's budget pays for this caller.
        """
        request = request_of(messages, kwargs)
        if request is None:
            return None
        metadata = _metadata(kwargs)
        scope = group.scope_resolver.scope_of(metadata)
        earlier = [one for one in metadata.get("previous_models") or () if isinstance(one, Mapping)]
        offer = group.offer(healthy, {str(attempt.get("deployment_id")) for attempt in earlier})
        call_id = str(kwargs.setdefault("litellm_call_id", str(uuid.uuid4())))
        return RoutingRequest(offer, request, scope, call_id, _caller(metadata), is_chosen(kwargs), self.owner)

    def release_earlier(self, kwargs: Mapping[str, Any]) -> None:
        """Release the attempt that this one follows, of whatever group: it failed, and not every failure is logged."""
        note = self._earlier(kwargs)
        if note is not None:
            self.groups[note["group"]].release(note["decision"])

    async def arelease_earlier(self, kwargs: Mapping[str, Any]) -> None:
        """Do what `release_earlier` does, off the event loop where the store is waited for."""
        note = self._earlier(kwargs)
        if note is not None:
            group = self.groups[note["group"]]
            await group.offload(partial(group.release, note["decision"]))

    def _earlier(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        note = self._note(kwargs)
        return note if note is not None and note["trace"] == _trace(kwargs) else None

    def _note(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the latest decision of a request, if it is one of ours."""
        note = _metadata(kwargs).get(REQUEST_NOTE_KEY)
        return note if isinstance(note, Mapping) and note.get("owner") == self.owner else None

    def record_decision(self, group: Group, selected: Selection, kwargs: dict[str, Any]) -> list[dict[str, Any]]:
        """Note the decision in the request, for headers and retries; return the deployments."""
        decision = selected.decision
        _metadata(kwargs)[REQUEST_NOTE_KEY] = {
            "owner": self.owner,
            "group": group.name,
            "trace": _trace(kwargs),
            "decision": decision.id,
            "context": decision.context,
            "ask_feedback": decision.ask_feedback,
            "models": selected.models,
        }
        return selected.deployments


def translate_error(group: Group, healthy: list[Any], error: Exception, kwargs: Mapping[str, Any]) -> list[Any]:
    """Turn a refusal into LiteLLM's words; let a fault pass traffic in LiteLLM's own order, unless a limit is hard.

    Raises
    ------
    BudgetRefused
        If the budget is used up.
    ScopeRefused
        If nobody's budget pays for this caller.
    BudgetUncertain
        If a hard budget must stay closed.
    """
    if isinstance(error, BudgetError):
        raise BudgetRefused(group.name, error, group.scope_resolver.scope_of(_metadata(kwargs))) from error
    if isinstance(error, ScopeRefused) or type(error).__module__.startswith("litellm"):  # no model or budget takes it
        raise error
    group.fault("store" if isinstance(error, StoreError) else "selection", "selection failed", error=error)
    if group.hard:
        raise BudgetUncertain(group.name) from error
    return healthy


def _answering(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `model_info` of the deployment that answered."""
    params = kwargs.get("litellm_params") or {}
    return params.get("model_info") or _metadata(params).get("model_info") or {}


def _rename(settled: Marked, kwargs: Mapping[str, Any], response: object, bill: Bill) -> None:
    """Let the response id stand for the decision as well; an answer of the cache can be rated by no name."""
    response_id = getattr(response, "id", None) or (response.get("id") if isinstance(response, Mapping) else None)
    if bill.cached:
        settled.group.rename(settled.names, "")
    elif isinstance(response_id, str):
        caller = _caller(_metadata(kwargs.get("litellm_params") or {}))
        settled.group.rename([feedback_key(response_id, caller)], settled.decision_id)


def _metadata(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return LiteLLM's own metadata of a request; `metadata` belongs to the provider where there are both."""
    bucket = kwargs.get("litellm_metadata")
    if not isinstance(bucket, dict):
        bucket = kwargs.get("metadata")
    return bucket if isinstance(bucket, dict) else {}


def _caller(metadata: Mapping[str, Any]) -> str | None:
    caller = metadata.get("user_api_key_hash") or metadata.get("user_api_key")
    return str(caller) if caller else None


def _trace(kwargs: Mapping[str, Any]) -> str:
    return str(kwargs.get("litellm_trace_id"))


def _call_id(call: object) -> str:
    if isinstance(call, str):
        return call
    hidden = getattr(call, "_hidden_params", None) or {}
    found = hidden.get("litellm_call_id") if isinstance(hidden, Mapping) else None
    return str(found or getattr(call, "id", ""))
