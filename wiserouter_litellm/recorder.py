"""The recorder of calls: it notes decisions, settles the calls that LiteLLM reports and takes users' scores.

A decision travels in the `model_info` of the deployment's copy, one per attempt, so that the log event of a retry or a
fallback cannot be mistaken for that of another attempt.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from litellm.integrations.custom_logger import CustomLogger

from wiserouter.errors import StoreError, UnknownDecision
from wiserouter.integration import Bill, offload
from wiserouter_litellm.billing import bill_of
from wiserouter_litellm.errors import UnknownCall
from wiserouter_litellm.feedback_keys import feedback_key, keys_to_try
from wiserouter_litellm.group import DECISION_KEY, Group, Selection

CALL_ID_HEADER = "x-litellm-call-id"
"""The header by which a client of the proxy chooses the id of its call."""

REQUEST_NOTE_KEY = "wiserouter"
"""Key of the request's metadata under which the latest decision is recorded, for headers and retries."""


class Marked(NamedTuple):
    """The decision that a log event belongs to, and the keys by which feedback finds it."""

    group: Group
    decision_id: str
    keys: list[str]


class Origin(NamedTuple):
    """The origin of a request, as its keyword arguments state it.

    Attributes
    ----------
    metadata : dict
        LiteLLM's own metadata.
    call_id : str
        The id of its call.
    caller : str or None
        The hash of the key that made it.
    chose_id : bool
        Whether the client of a proxy chose the id of its call.
    failed_ids : set of str
        The deployments that failed earlier in the request.
    """

    metadata: dict[str, Any]
    call_id: str
    caller: str | None
    chose_id: bool
    failed_ids: set[str]


class Recorder(CustomLogger):
    """Settles the calls of some groups, whichever object selected their deployments.

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
        if marked := self.decision_of(_answering(kwargs)):
            await _off_the_loop(marked.group, partial(self._charge, marked, kwargs, response_obj))

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Release the attempt."""
        if marked := self.decision_of(_attempted(kwargs)):
            await _off_the_loop(marked.group, partial(marked.group.release, marked.decision_id))

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Charge the call, where it was a synchronous one."""
        if marked := self.decision_of(_answering(kwargs)):
            self._charge(marked, kwargs, response_obj)

    def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Release the attempt, where it was a synchronous one."""
        if marked := self.decision_of(_attempted(kwargs)):
            marked.group.release(marked.decision_id)

    def release_earlier(self, kwargs: Mapping[str, Any]) -> None:
        """Release the attempt that this one follows, of whatever group: it failed, and not every failure is logged."""
        note = self._earlier(kwargs)
        if note is not None:
            self.groups[note["group"]].release(note["decision"])

    async def arelease_earlier(self, kwargs: Mapping[str, Any]) -> None:
        """Do what `release_earlier` does, off the event loop where the store is waited for."""
        note = self._earlier(kwargs)
        if note is not None:
            await self.arelease_noted(note)

    async def arelease_noted(self, note: Mapping[str, Any]) -> None:
        """Release the decision of a note, off the event loop where the store is waited for."""
        group = self.groups[note["group"]]
        await _off_the_loop(group, partial(group.release, note["decision"]))

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
            Whether the caller may rate the calls of every key, as administrators may.

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
            for key in keys_to_try(id_, caller, any_caller=any_caller):
                try:
                    return group.router.reward(key, score, comment=comment)
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
        """Return the decision that a deployment's `model_info` carries, if this recorder owns it."""
        mark = model_info.get(DECISION_KEY) if isinstance(model_info, Mapping) else None
        if not isinstance(mark, Mapping) or mark.get("owner") != self.owner:
            return None
        return Marked(self.groups[mark["group"]], mark["id"], mark["keys"])

    def record_decision(self, group: Group, selection: Selection, kwargs: dict[str, Any]) -> list[dict[str, Any]]:
        """Note the decision in the request, for headers and retries; return the deployments."""
        decision = selection.decision
        metadata_of(kwargs)[REQUEST_NOTE_KEY] = {
            "owner": self.owner,
            "group": group.name,
            "trace": _trace(kwargs),
            "decision": decision.id,
            "context": decision.context,
            "ask_feedback": decision.ask_feedback,
            "models": selection.models,
        }
        return selection.deployments

    def note_of(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the note of a request's latest decision, if this recorder owns it."""
        note = metadata_of(kwargs).get(REQUEST_NOTE_KEY)
        return note if isinstance(note, Mapping) and note.get("owner") == self.owner else None

    def _earlier(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if metadata_of(kwargs).get("is_silent_experiment"):  # it runs beside the call whose note it copied
            return None
        note = self.note_of(kwargs)
        return note if note is not None and note["trace"] == _trace(kwargs) else None

    def _charge(self, marked: Marked, kwargs: Mapping[str, Any], response: object) -> None:
        group, decision_id, _ = marked
        deployment_id = _answering(kwargs).get("id")
        info = group.registry.find(deployment_id)
        if info is None:
            group.fault("lost_decisions", f"deployment {deployment_id} answered, and is unknown")
            return
        try:
            bill = bill_of(kwargs, response, info)
        except Exception as error:  # an answer that cannot be read was paid for all the same
            group.fault("accounting", "the bill of a call cannot be read: its reservation is charged", error=error)
            bill = Bill(group.router.decision(decision_id).reserved_usd, model=info.model)
        group.settle(decision_id, bill)
        if not bill.learn:  # an answer of LiteLLM's cache cannot be rated
            group.alias(marked.keys, "")
        elif (key := _answer_key(kwargs, response)) is not None:
            group.alias([key], decision_id)
        if bill.estimated:
            group.fault(
                "estimated_costs",
                f"{bill.model} answered without a usage block, so its tokens were estimated; for streams pass "
                f"stream_options={{'include_usage': True}}",
            )


def metadata_of(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return LiteLLM's own metadata of a request; `metadata` belongs to the provider where there are both."""
    bucket = kwargs.get("litellm_metadata")
    if not isinstance(bucket, dict):
        bucket = kwargs.get("metadata")
    return bucket if isinstance(bucket, dict) else {}


def origin_of(kwargs: dict[str, Any]) -> Origin:
    """Return the origin of a request; a call without an id gets one."""
    metadata = metadata_of(kwargs)
    earlier = [attempt for attempt in metadata.get("previous_models") or () if isinstance(attempt, Mapping)]
    failed_ids = {str(attempt.get("deployment_id")) for attempt in earlier}
    call_id = str(kwargs.setdefault("litellm_call_id", str(uuid.uuid4())))
    return Origin(metadata, call_id, _caller(metadata), _chose_id(kwargs), failed_ids)


def _chose_id(kwargs: Mapping[str, Any]) -> bool:
    request = kwargs.get("proxy_server_request")
    headers = request.get("headers") if isinstance(request, Mapping) else None
    return isinstance(headers, Mapping) and any(str(name).lower() == CALL_ID_HEADER for name in headers)


def _caller(metadata: Mapping[str, Any]) -> str | None:
    caller = metadata.get("user_api_key_hash") or metadata.get("user_api_key")
    return str(caller) if caller else None


def _trace(kwargs: Mapping[str, Any]) -> str:
    """Return the id that all attempts of a request share."""
    return str(kwargs.get("litellm_trace_id"))


def _answering(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `model_info` of the deployment that answered."""
    params = kwargs.get("litellm_params") or {}
    return params.get("model_info") or metadata_of(params).get("model_info") or {}


def _attempted(kwargs: Mapping[str, Any]) -> object:
    """Return the `model_info` of an attempt's own deployment; the metadata may hold that of the next attempt."""
    return (kwargs.get("litellm_params") or {}).get("model_info")


def _answer_key(kwargs: Mapping[str, Any], response: object) -> str | None:
    """Return the key of the response id, by which feedback finds the decision as well."""
    response_id = getattr(response, "id", None) or (response.get("id") if isinstance(response, Mapping) else None)
    if not isinstance(response_id, str):
        return None
    return feedback_key(response_id, _caller(metadata_of(kwargs.get("litellm_params") or {})))


async def _off_the_loop(group: Group, step: Callable[[], object]) -> None:
    """Settle or release, off the event loop where the store is waited for."""
    if group.router.waits():
        await offload(step)
    else:
        step()


def _call_id(call: object) -> str:
    if isinstance(call, str):
        return call
    hidden = getattr(call, "_hidden_params", None) or {}
    found = hidden.get("litellm_call_id") if isinstance(hidden, Mapping) else None
    return str(found or getattr(call, "id", ""))
